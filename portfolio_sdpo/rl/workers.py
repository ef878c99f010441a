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
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, Self

from gymnasium import spaces
from gymnasium.vector import VectorEnv

from portfolio_sdpo.errors import EnvironmentFault, PortfolioSdpoError, SettingsError
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.rl.checkpoint import single_thread
from portfolio_sdpo.rl.rollout import Rollout
from portfolio_sdpo.rl.worker_process import LaneRunner, Recipe, Task, serve, unpack_answer

MakeEnv = Callable[[int], VectorEnv[Any, Any, Any]]
"""Number of environments → a vector environment of them; a function at the top of a module, so that it can be sent."""
ATTEMPTS = 3
"""How often a lane is tried when workers die of it."""
GRACE = 5.0
"""Seconds that an idle worker has to close its environments."""

_PROCESSES = threading.Lock()
"""Processes of `multiprocessing` may not be started and waited for by two threads at once."""


Job = tuple[Task, "Future[Any]"]


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
        self._here = LaneRunner(recipe)
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
