"""Files that are written side by side: the disk is waited for once, not file by file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from portfolio_sdpo.common.files import sync_directory, write_new_file


@dataclass(frozen=True)
class Staged:
    """A file that is on its way to the disk under a name that nobody looks for."""

    temporary: Path
    written: Future[None]


class WriteGroup:
    """Files are staged, to be written in the background, and published: then they are on the disk under their names.

    What was staged and not published is removed at the end of the `with` block; a process that is killed leaves files
    whose names begin with a dot.
    """

    def __init__(self, pool: Executor, unsynced: Iterable[Path] = ()) -> None:
        """pool: writes the files. unsynced: folders in which something may be that is not on the disk yet."""
        self._pool = pool
        self._unsynced = set(unsynced)
        self._staged: list[Staged] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        wait([staged.written for staged in self._staged])
        for staged in self._staged:
            staged.temporary.unlink(missing_ok=True)

    def stage(self, folder: Path, content: bytes) -> Staged:
        """Begin to write the content below the folder, which is made if necessary."""
        self._make(folder)
        temporary = folder / f".{secrets.token_hex(8)}.new"
        staged = Staged(temporary, self._pool.submit(write_new_file, temporary, content))
        self._staged.append(staged)
        return staged

    def publish(self, files: Mapping[Path, Staged]) -> None:
        """Give the files their names once all of them are on the disk; on return the names are there, too."""
        for staged in files.values():
            staged.written.result()
        for path, staged in files.items():
            self._make(path.parent)
            os.replace(staged.temporary, path)
            self._unsynced.add(path.parent)
        for folder in self._unsynced:  # mostly the first one brings the others to the disk as well
            sync_directory(folder)
        self._unsynced.clear()

    def publish_existing(self, path: Path) -> None:
        """See to it that the name of a file that is there already is on the disk with the next ones."""
        self._unsynced.add(path.parent)

    def _make(self, folder: Path) -> None:
        if not folder.exists():
            folder.mkdir()
            self._unsynced.add(folder.parent)
