"""Experience from worker processes: each holds a copy of the policy and some environments and runs whole episodes.

An environment that steps some thousand times a second is no faster where every step crosses a process border. So the
`count` environments of an iteration are split into lanes of a fixed size, and a lane's whole batch is made inside one
process: policy and environments in lockstep, torch on one thread. Only weights go in and a finished rollout comes out.

A lane draws from a random stream of its own. What is collected is therefore a function of policy, seed, iteration and
lanes, and not of how many workers there are, nor of which one took which lane: an idle worker takes the next, and what
a worker that was killed had not delivered is collected again to the same bytes. With no worker at all it is done here.

Workers end with their collector, and with the process that made it, however that one ends: they ignore Ctrl-C, which a
terminal sends to all, and leave when the pipe to their parent closes.
"""

from __future__ import annotations

import atexit
import os
import pickle
import queue
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from typing import Any, Self

from gymnasium import spaces
from gymnasium.vector import VectorEnv

from portfolio_sdpo.errors import EnvironmentFault, PortfolioSdpoError, SettingsError
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.rl.checkpoint import single_thread
from portfolio_sdpo.rl.rollout import Collector, Rollout
from portfolio_sdpo.rl.worker_process import Job, Worker

MakeEnv = Callable[[int], VectorEnv[Any, Any, Any]]
"""Number of environments → a vector environment of them; a function at the top of a module, so that it can be sent."""


@dataclass(frozen=True)
class Recipe:
    """What a worker has to know from the start."""

    make_env: bytes
    """pickled, so that what is wrong with it is found where it can be told"""
    signals: tuple[str, ...]
    steps: int
    seed: int

    def open_lanes(self) -> Lanes:
        """The lanes of one process, which have no environments yet."""
        return Lanes(self)


@dataclass(frozen=True)
class Task:
    """A lane's batch; without a policy only its spaces are asked for."""

    lane: int
    size: int
    iteration: int = 0
    policy: bytes = b""


class Lanes:
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


class WorkerCollector:
    """Collects an iteration's batch in lanes, in `workers` processes, or here if that is 0.

    >>> # with WorkerCollector(make_env, 30, lane=10, workers=2, signals=["cost"], steps=1000, seed=0) as collector:
    >>> #     collector.begin(policy, 0); ...; rollout = collector.finish()
    """

    def __init__(
        self, make_env: MakeEnv, count: int, lane: int, workers: int, signals: Iterable[str], steps: int, seed: int
    ) -> None:
        if not 1 <= lane <= count:
            raise SettingsError(f"lane: needs at least 1 and at most count = {count} environments (got {lane}).")
        if workers < 0:
            raise SettingsError(f"workers: must not be negative (got {workers}).")
        self.layout, self.steps, self.seed = (count, lane), steps, seed
        self.signals = list(dict.fromkeys(["reward", *signals]))
        self.sizes = tuple(min(lane, count - first) for first in range(0, count, lane))
        """Environments in each lane; the last may have fewer."""
        try:
            recipe = Recipe(pickle.dumps(make_env), tuple(self.signals), steps, seed)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise SettingsError(
                f"make_env: cannot be sent to another process ({error}); give a function at the top of a module, or a "
                "functools.partial of one."
            ) from None
        self._pending: list[Future[Any]] | None = None
        self._closed = False
        self._owner = os.getpid()
        # Before multiprocessing ends them by itself: a worker that dies of that would be replaced.
        atexit.register(self.close)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._here = recipe.open_lanes()
        self._workers = [Worker(number, recipe, self._jobs) for number in range(min(workers, len(self.sizes)))]
        try:
            self.single_observation_space, self.single_action_space = self._spaces()
            self.codec = ObservationCodec(self.single_observation_space)
        except BaseException:
            self.close()
            raise

    def _spaces(self) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        found: tuple[spaces.Space[Any], spaces.Space[Any]] = self._submit(Task(0, self.sizes[0])).result()
        return found

    @property
    def pids(self) -> list[int]:
        """Of the workers that have begun to work."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def collect(self, policy: Policy, iteration: int) -> Rollout:
        """One batch of every lane, in the order of lanes."""
        self.begin(policy, iteration)
        return self.finish()

    def begin(self, policy: Policy, iteration: int) -> None:
        """Start on a batch with the policy as it is now; what was begun before and not finished is dropped."""
        self._drop()
        copied = pickle.dumps(policy)
        self._pending = [self._submit(Task(lane, size, iteration, copied)) for lane, size in enumerate(self.sizes)]

    def finish(self) -> Rollout:
        """Wait for the batch that was begun."""
        if self._pending is None:
            raise RuntimeError("finish() comes after begin()")
        pending, self._pending = self._pending, None
        try:
            wait(pending, return_when=FIRST_EXCEPTION)
            for future in filter(Future.done, pending):
                future.result()  # an error of any lane, without waiting for those before it
            return Rollout.join([future.result() for future in pending])
        finally:
            for future in pending:
                future.cancel()

    def _submit(self, task: Task) -> Future[Any]:
        if self._closed:
            raise RuntimeError("the collector was closed")
        future: Future[Any] = Future()
        if self._workers:
            self._jobs.put((task, future))
            return future
        try:
            with single_thread():
                future.set_result(self._here.run(task))
        except PortfolioSdpoError as error:
            future.set_exception(error)
        return future

    def _drop(self) -> None:
        for future in self._pending or ():
            future.cancel()
        self._pending = None

    def close(self) -> None:
        """End the workers; a batch under way is lost."""
        atexit.unregister(self.close)
        if self._closed or os.getpid() != self._owner:  # they are not those of a process that is forked off
            return
        self._drop()
        self._closed = True
        for _ in self._workers:
            self._jobs.put(None)
        for worker in self._workers:
            worker.close()
        self._here.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
