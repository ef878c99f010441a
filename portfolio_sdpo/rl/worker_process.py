"""What runs inside a worker process: lanes of environments, and the loop that answers tasks (see `rl.workers`)."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from typing import Any

import torch

from portfolio_sdpo.errors import EnvironmentFault, PortfolioSdpoError
from portfolio_sdpo.rl.rollout import Collector, Rollout


@dataclass(frozen=True)
class Recipe:
    """What a worker has to know from the start."""

    make_env: bytes
    """pickled, so that what is wrong with it is found where it can be told"""
    signals: tuple[str, ...]
    steps: int
    seed: int


@dataclass(frozen=True)
class Task:
    """A lane's batch; without a policy only its spaces are asked for."""

    lane: int
    size: int
    iteration: int = 0
    policy: bytes = b""


class LaneRunner:
    """The environments of one process, built when they are first needed and kept."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._collectors: dict[int, Collector] = {}

    def run(self, task: Task) -> Any:
        """A rollout, or a pair of spaces; whatever goes wrong is an error of this package."""
        try:
            collector = self._collector(task.size)
            if not task.policy:
                return collector.env.single_observation_space, collector.env.single_action_space
            return collector.collect(pickle.loads(task.policy), task.iteration, task.lane)
        except PortfolioSdpoError:
            raise
        except Exception as error:
            raise EnvironmentFault(
                f"lane {task.lane} of iteration {task.iteration} failed with {describe_error(error)}: correct the "
                "environment."
            ) from error

    def _collector(self, size: int) -> Collector:
        # Each batch begins with a seeded reset, so lanes of the same size can share their environments.
        if size not in self._collectors:
            recipe = self._recipe
            try:
                env = pickle.loads(recipe.make_env)(size)
            except PortfolioSdpoError:
                raise
            except Exception as error:
                raise EnvironmentFault(
                    f"{size} environments could not be made ({describe_error(error)}): correct make_env, which must "
                    "also work in another process."
                ) from error
            found = getattr(env, "num_envs", None)
            if found != size:
                raise EnvironmentFault(
                    f"make_env({size}) returned {'no vector environment' if found is None else f'{found} of them'}: "
                    "it must return a VectorEnv of as many environments as it is asked for."
                )
            self._collectors[size] = Collector(env, recipe.signals, recipe.steps, recipe.seed)
        return self._collectors[size]

    def close(self) -> None:
        """Close the environments."""
        for collector in self._collectors.values():
            collector.env.close()
        self._collectors.clear()


def describe_error(error: BaseException) -> str:
    """An error and where it came from, in a few words."""
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" in {os.path.basename(place[0].filename)}:{place[0].lineno}" if place else ""
    return f"{type(error).__name__}{where}, '{error}'"


def serve(connection: Connection, recipe: Recipe) -> None:
    """Run a worker's loop: a task in, its result out, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    lanes = LaneRunner(recipe)
    while True:
        try:
            task = pickle.loads(connection.recv_bytes())
        except EOFError:
            break
        try:
            answer = pack_answer(lanes.run(task))
        except PortfolioSdpoError as error:
            # What caused it stays here: it need not be an error that can be sent.
            answer = pickle.dumps((type(error), str(error), "".join(traceback.format_exception(error))))
        try:
            connection.send_bytes(answer)
        except OSError:
            break
    lanes.close()


def _end_with_parent() -> None:
    """Also in the middle of a batch."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def pack_answer(result: Any) -> bytes:
    """A result as bytes; tensors as arrays, since torch would send them by file descriptors."""
    if isinstance(result, Rollout):
        columns = {item.name: getattr(result, item.name) for item in fields(Rollout) if item.init}
        signals = {name: values.numpy() for name, values in columns.pop("signals").items()}
        result = {name: values.numpy() for name, values in columns.items()} | {"signals": signals}
    return pickle.dumps((None, result, ""), protocol=5)


def unpack_answer(answer: bytes) -> Any:
    """The result, or the error that came instead."""
    failed, result, told = pickle.loads(answer)
    if failed is not None:
        error = failed(result)
        error.add_note(f"In the worker process:\n{told}")
        raise error
    if not isinstance(result, dict):
        return result
    signals = {name: torch.from_numpy(values) for name, values in result.pop("signals").items()}
    return Rollout(**{name: torch.from_numpy(values) for name, values in result.items()}, signals=signals)
