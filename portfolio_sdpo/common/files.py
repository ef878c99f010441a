"""Files and folders that survive a crash: afterwards the content is the old one or the new one, never a mixture.

The data directory holds everything that the tool makes or downloads. A file is replaced in one step
(`write_atomically`); a folder of results is written as a whole and never changed afterwards (`FolderStore`). Locks on
files are released by the system when their process ends, so a crash leaves nothing to clean up.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from platformdirs import user_data_path

from portfolio_sdpo.errors import RunError

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
CONFIG = "config.json"
SEAL = "sha256"
"""The entry of a sealed object that holds the hash of the others."""
SUMS = "SHA256SUMS"
"""The hashes of a folder's files, as `sha256sum -c` reads them."""


def data_directory() -> Path:
    """Return the user's data directory; the variable `PORTFOLIO_SDPO_HOME` overrides the platform's default."""
    override = os.environ.get("PORTFOLIO_SDPO_HOME")
    return Path(override).expanduser() if override else user_data_path("portfolio_sdpo", appauthor=False)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the content of `path` in one step: a crash leaves the old file or the new one, never a mixture."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_new_file(temporary, content)
    try:
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_new_file(path: Path, content: bytes) -> None:
    """Write a file that must not exist, down to the disk; a failure leaves no file. Its name is not on the disk yet."""
    # Not tempfile's mode 0600: what one user's job writes, others read as the umask allows.
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def sync_directory(folder: Path) -> None:
    """Flush the folder to disk, so that created and renamed files survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def to_parquet(table: pd.DataFrame) -> bytes:
    """Return a table, without its index, as the content of a Parquet file."""
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def json_ready(value: Any) -> Any:
    """The value with NaN and infinities as None, all the way down."""
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def make_id(created: datetime, content: Any) -> str:
    """Make a name from the time and the content: names of equal content end in the same eight digits."""
    text = json.dumps(content, sort_keys=True).encode()
    return f"{created:%Y%m%d-%H%M%S}-{hashlib.sha256(text).hexdigest()[:8]}"


@dataclass(frozen=True)
class FolderStore:
    """All folders of one sort: each is complete or absent, and is never written to again.

    A folder holds the hashes of its files, and a file that was changed is not read. Folders of earlier versions, which
    hold no hashes, are read as they are.
    """

    noun: str
    """What a folder holds, as errors call it."""
    command: str
    """The command that makes one."""
    place: str
    """Default folder, below the user's data directory."""

    def home(self) -> Path:
        """Return the default place of these folders."""
        return data_directory() / self.place

    def new_folder(self, name: str) -> Path:
        """Return the path of a folder below `home` that does not exist yet."""
        folder, again = self.home() / name, 2
        while folder.exists():
            folder, again = self.home() / f"{name}-{again}", again + 1
        return folder

    def check_free(self, folder: Path) -> None:
        """Raise a `RunError` unless the folder can be written: a new one, or an empty one."""
        try:
            empty = folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
            taken = not empty and (folder.exists() or folder.is_symlink())
            ground = next(parent for parent in folder.absolute().parents if parent.exists())
        except OSError as error:
            raise self._unusable(folder, error.strerror) from None
        if taken:
            raise RunError(f"{folder} exists already, and results are never overwritten: choose another folder.")
        if not ground.is_dir() or not os.access(ground, os.W_OK | os.X_OK):
            raise self._unusable(folder, f"{ground} is not a folder that can be written to")

    def write(self, folder: Path, contents: Mapping[str, bytes]) -> None:
        """Write the files into a new folder; a failure leaves no folder."""
        self.check_free(folder)
        sums = "".join(f"{_hash_bytes(content)}  {name}\n" for name, content in contents.items())
        temporary = folder.parent / f".{folder.name}.{secrets.token_hex(4)}"
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary.mkdir()
            for name, content in {**contents, SUMS: sums.encode()}.items():
                with (temporary / name).open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            sync_directory(temporary)
            # This fails, as it should, if another process has filled the folder in the meantime.
            os.rename(temporary, folder)
            sync_directory(folder.parent)
        except OSError as error:
            raise self._unusable(folder, error.strerror) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def list(self, root: Path | None = None) -> tuple[Path, ...]:
        """List the folders below `root` (by default `home`) by name in reverse, so that the newest come first."""
        try:
            found = [path for path in (root or self.home()).iterdir() if not path.name.startswith(".")]
        except FileNotFoundError:
            return ()
        return tuple(sorted((path for path in found if (path / CONFIG).is_file()), reverse=True))

    def read(self, folder: Path, name: str) -> bytes:
        """Return the content of a file; a `RunError` if it is not what was written."""
        try:
            content = (folder / name).read_bytes()
            written = _read_sums(folder / SUMS).get(name)
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(
                f"{folder} holds no {name}, so it is no {self.noun}: name a folder that `{self.command}` made."
            ) from None
        except OSError as error:
            raise RunError(f"{folder / name} cannot be read ({error.strerror}): correct its permissions.") from None
        if written not in (None, _hash_bytes(content)):
            raise self.make_damage_error(folder, name, ValueError("it was changed after it was written"))
        return content

    def read_json(self, folder: Path, name: str) -> dict[str, Any]:
        """Read an object that `to_json` wrote."""
        return self.parse_json(self.read(folder, name), folder, name)

    def parse_json(self, content: bytes, folder: Path, name: str) -> dict[str, Any]:
        """Parse the content of a file; the folder is only used in the error about a damaged file."""
        try:
            value = json.loads(content)
            version = value.pop("format")
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise self.make_damage_error(folder, name, error) from None
        if version != FORMAT:
            raise RunError(f"{folder} was written by another version of portfolio_sdpo: install that one.")
        return dict(value)

    def make_damage_error(self, folder: Path, name: str, error: Exception) -> RunError:
        """Return the error about a file that is not what was written."""
        reason = " ".join(str(error).split()) or type(error).__name__
        return RunError(f"{folder / name} is damaged ({reason}): make it again with `{self.command}`.")

    def _unusable(self, folder: Path, reason: str | None) -> RunError:
        return RunError(f"The {self.noun} cannot be written to {folder} ({reason}): make room or name another folder.")


def to_json(value: dict[str, Any]) -> bytes:
    """Return the object, with the version of the format, as the content of a JSON file."""
    return (json.dumps({"format": FORMAT, **value}, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def seal_json(content: dict[str, Any]) -> bytes:
    """The object as JSON, with a hash of everything in it.

    >>> open_sealed_json(seal_json({"wealth": 1.25}))
    {'wealth': 1.25}
    """
    return json.dumps(content | {SEAL: _hash_content(content)}).encode()


def open_sealed_json(sealed: bytes) -> dict[str, Any]:
    """The object that was sealed; a `ValueError` if it was changed since, or never sealed."""
    content = json.loads(sealed)
    if not isinstance(content, dict) or content.pop(SEAL, None) != _hash_content(content):
        raise ValueError("its hash does not match its content")
    return content


def _hash_content(content: dict[str, Any]) -> str:
    return _hash_bytes(json.dumps(content, sort_keys=True).encode())


def _hash_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_sums(path: Path) -> dict[str, str]:
    """The hashes of a folder's files by name; none where an earlier version wrote it."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


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
