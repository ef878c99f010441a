"""Where runs are made: in processes of this machine, or on a Ray cluster.

Any worker may die at any moment: killed, out of memory, its node lost. That should cost its own run a retry, and the
other runs nothing. So each run has a worker of its own, a loky executor of one process or a Ray task, and a joblib
thread that waits for it. (In joblib's own loky backend the death of one worker ends all of them; so it does in
`ray.util.joblib`, which also assigns runs in turn to a fixed pool, whether its members are busy or not.)

Every worker has one thread, so that as many workers as there are cores do not compete, and the result does not depend
on their number.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from joblib import cpu_count
from joblib.externals.loky.process_executor import ProcessPoolExecutor
from joblib.parallel import ParallelBackendBase

from portfolio_sdpo.common.files import try_lock
from portfolio_sdpo.errors import RunError

T = TypeVar("T")
SINGLE = dict.fromkeys(ParallelBackendBase.MAX_NUM_THREADS_VARS, "1")
"""Variables that keep a worker's libraries to one thread."""
UNDER_WAY = ".under-way"
"""Folder in an experiment's folder, while its runs are made on a cluster: their status files and locks."""
PATIENCE = 120.0
"""Seconds in which a node has to answer, and in which a worker that was presumed lost has to end."""


class LostWorkerError(RunError):
    """A worker died for a reason that is not in its run."""


class GridCancelledError(RunError):
    """The grid was stopped before the run ended."""

    def __init__(self) -> None:
        super().__init__("the grid was stopped.")


class Workers(ABC):
    """Workers that are ready while a grid is made."""

    jobs: int
    """Number of workers at a time."""
    folder: Path
    """A folder that all workers see."""
    locks: Path | None = None
    """A folder for locks, if a worker that was presumed lost may still be running for a while."""

    @abstractmethod
    def execute(self, call: Callable[[], T]) -> T:
        """Let a worker make the call; a `LostWorkerError` if the worker died. Several threads may call this at once."""


class Parallel(ABC):
    """A kind of workers."""

    @abstractmethod
    def open(self, root: Path, jobs: int | None, cores: int) -> Any:
        """A context with `Workers` for runs in this folder, each on `cores` cores; jobs=None for as many as fit."""


@dataclass(frozen=True)
class Local(Parallel):
    """Processes of this machine, or this process if there is only one job."""

    @contextmanager
    def open(self, root: Path, jobs: int | None = None, cores: int = 1) -> Iterator[Workers]:
        jobs = max(1, cpu_count() // cores) if jobs is None else jobs
        with tempfile.TemporaryDirectory() as folder:
            if jobs == 1:
                yield _InProcess(Path(folder))
                return
            processes = _Processes(jobs, Path(folder))
            try:
                yield processes
            finally:
                processes.close()


@dataclass
class _InProcess(Workers):
    """This process."""

    folder: Path
    jobs: int = 1

    def execute(self, call: Callable[[], T]) -> T:
        return call()


@dataclass
class _Processes(Workers):
    """Executors of one process each, which serve one run after the other."""

    jobs: int
    folder: Path
    _idle: list[ProcessPoolExecutor] = field(default_factory=list)
    _all: list[ProcessPoolExecutor] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def execute(self, call: Callable[[], T]) -> T:
        executor = self._take()
        try:
            result: T = executor.submit(call).result()
        except BrokenProcessPool:
            executor.shutdown(wait=False, kill_workers=True)
            if self._closed:
                raise GridCancelledError from None
            raise LostWorkerError("its worker process was killed, perhaps for lack of memory") from None
        except BaseException:
            self._idle.append(executor)
            if self._closed:
                raise GridCancelledError from None
            raise
        self._idle.append(executor)
        return result

    def _take(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._closed:
                raise GridCancelledError
            if not self._idle:
                watch = partial(exit_with_parent, os.getpid())
                self._all.append(ProcessPoolExecutor(max_workers=1, env=SINGLE, initializer=watch))
                return self._all[-1]
            return self._idle.pop()

    def close(self) -> None:
        """End all processes; runs that are not finished have their checkpoints."""
        with self._lock:
            self._closed = True
        for executor in self._all:
            executor.shutdown(wait=True, kill_workers=True)


def exit_with_parent(parent: int) -> None:
    """End this process as soon as its parent has ended, so that a run that is resumed does not have two workers."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def shared_folder(root: Path) -> Iterator[Path]:
    """A folder of this grid below `UNDER_WAY`, where all grids have their locks; it is removed after the block."""
    folder = root / UNDER_WAY / secrets.token_hex(8)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise RunError(f"cannot make {folder} ({error.strerror}): make room or choose another folder.") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            for path in folder.parent.glob("*.lock"):
                with path.open("ab") as file:
                    if _acquire(file):  # not held by anyone
                        path.unlink(missing_ok=True)
            folder.parent.rmdir()  # unless another grid is in it


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of this file, which ends with its process; wait for another holder, but not for ever."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with path.open("ab") as file:
            if _acquire(file) and _is_same_file(file, path):
                yield
                return
        if time.monotonic() > deadline:
            raise LostWorkerError("a worker that was presumed lost still holds the run")
        time.sleep(0.1)


def _acquire(file: IO[bytes]) -> bool:
    try:
        return try_lock(file)
    except OSError:  # a file system without locks
        return True


def _is_same_file(file: IO[bytes], path: Path) -> bool:
    """Whether the path still leads to this file, which may have been removed meanwhile."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
