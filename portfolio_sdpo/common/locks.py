"""Locks on files. The system releases them when their process ends, so a crash leaves nothing to clean up."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any


def try_lock(file: IO[Any]) -> bool:
    """Take the lock of an open file; False if another process has it, an `OSError` if files cannot be locked here."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of this file, which is created if necessary; wait as long as another process has it."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class LockHeldError(Exception):
    """Another process holds the lock; the message is what it wrote about itself."""


@contextmanager
def claim_lock(path: Path, owner: str) -> Iterator[None]:
    """Hold the lock of this file with the owner's name in it; raise a `LockHeldError` if another process has it.

    An `OSError` is raised if the file cannot be created.
    """
    with path.open("a+", encoding="utf-8", errors="replace") as file:
        if not try_lock(file):
            file.seek(0)
            raise LockHeldError(file.read().strip())
        file.truncate(0)
        file.write(owner)
        file.flush()
        yield


def share_lock(file: IO[Any]) -> None:
    """Take a shared lock of an open file, as a sign of life (see `is_alive`)."""
    fcntl.flock(file, fcntl.LOCK_SH)


@contextmanager
def mark_alive(path: Path) -> Iterator[None]:
    """Make `is_alive(path)` true for every process while the block runs; afterwards the file is removed.

    It is only a sign: several processes may give it at once, and where files cannot be locked there is none.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            file = stack.enter_context(path.open("ab"))
            stack.callback(path.unlink, missing_ok=True)
            share_lock(file)
        yield


def is_alive(path: Path) -> bool:
    """Whether a process holds the lock of this file; a process that was killed does not."""
    try:
        with path.open("rb") as file:
            return not try_lock(file)
    except OSError:
        return False
