"""Files that survive a crash: the old one or the new one, and locks that die with whoever held them."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step: a crash leaves the old file or the new one, never a part of either."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # Not tempfile's mode 0600: what one user's job writes, others read as the umask allows.
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(folder: Path) -> None:
    """Make what was created or renamed in the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def living(path: Path) -> Iterator[None]:
    """While the block runs `lives(path)` is true, for every process, and after it the file is gone.

    Only a sign, and in nobody's way: several may give it, and where files cannot be locked there is none.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            file = stack.enter_context(path.open("ab"))
            stack.callback(path.unlink, missing_ok=True)
            fcntl.flock(file, fcntl.LOCK_SH)
        yield


def lives(path: Path) -> bool:
    """Whether a process holds the lock of this file; one that was killed does not."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
