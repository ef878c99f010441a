"""A worker process (see `rl.workers`): the thread that hands it tasks, and the loop in which it answers them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from concurrent.futures import Future
from dataclasses import fields
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

import torch

from portfolio_sdpo.errors import EnvironmentFault, PortfolioSdpoError
from portfolio_sdpo.rl.rollout import Rollout

if TYPE_CHECKING:
    from portfolio_sdpo.rl.workers import Recipe, Task

ATTEMPTS = 3
"""How often a lane is tried when workers die of it."""
GRACE = 5.0
"""Seconds that an idle worker has to close its environments."""

_PROCESSES = threading.Lock()
"""Processes of `multiprocessing` may not be started and waited for by two threads at once."""

Job = tuple["Task", "Future[Any]"]


class Worker:
    """One process, and the thread of ours that hands it tasks from a queue that all workers share."""

    def __init__(self, number: int, recipe: Recipe, jobs: queue.SimpleQueue[Job | None]) -> None:
        self._name = f"worker-{number}"
        self._recipe = recipe
        self._jobs = jobs
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._busy = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Of the process; None before its first task."""
        return self._process.pid if self._process else None

    def close(self) -> None:
        """End the process: an idle one by itself, one in the middle of a batch at once."""
        self._closed = True
        with _PROCESSES:
            if self._process is not None and self._connection is not None:
                if self._busy:
                    self._process.kill()
                else:
                    self._connection.close()
                    self._process.join(GRACE)
                    self._process.kill()
                self._process.join()
        self._thread.join(GRACE)

    def _work(self) -> None:
        for task, future in iter(self._jobs.get, None):
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._answer(task))
            except BaseException as error:
                future.set_exception(error)

    def _answer(self, task: Task) -> Any:
        code: int | None = None
        for _ in range(ATTEMPTS):
            self._busy = True
            try:
                connection = self._connection or self._start()
                connection.send_bytes(pickle.dumps(task))
                answer = connection.recv_bytes()
            except (EOFError, OSError):
                code = self._bury()
            else:
                return unpack_answer(answer)
            finally:
                self._busy = False
        how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
        raise EnvironmentFault(
            f"the worker process of lane {task.lane} ended {how} in {ATTEMPTS} attempts at iteration {task.iteration}: "
            "allow fewer workers if memory ran out, and call from `if __name__ == '__main__':` in a script."
        )

    def _start(self) -> Connection:
        with _PROCESSES:
            if self._closed:
                raise RuntimeError("the collector was closed")
            ours, theirs = multiprocessing.Pipe()
            try:
                self._process = _start_process(_context(), self._name, theirs, self._recipe)
            except ChildProcessError:
                # We were forked off a process whose fork server is not ours to use.
                self._process = _start_process(multiprocessing.get_context("spawn"), self._name, theirs, self._recipe)
            theirs.close()
            self._connection = ours
            return ours

    def _bury(self) -> int | None:
        """How the process died."""
        with _PROCESSES:
            process, self._process = self._process, None
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if process is None:
            return None
        with _PROCESSES:
            process.join(GRACE)
            if process.exitcode is None:  # only its pipe is gone
                process.kill()
                process.join()
            return process.exitcode


def _context() -> BaseContext:
    """Workers are forked off a small process that has only imported this module, and never run torch's threads."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # A worker is told its parent's usual way of starting processes and has to know it; in joblib's it is joblib's own.
    context.set_forkserver_preload([__name__, type(multiprocessing.get_context()).__module__])
    return context


def _start_process(context: BaseContext, name: str, connection: Connection, recipe: Recipe) -> BaseProcess:
    process: BaseProcess = context.Process(  # type: ignore[attr-defined]
        target=serve, args=(connection, recipe), name=name, daemon=True
    )
    process.start()
    return process


def serve(connection: Connection, recipe: Recipe) -> None:
    """Run a worker's loop: a task in, its result out, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    lanes = recipe.open_lanes()
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
