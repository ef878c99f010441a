"""The past of the audit log: rows of past months in compressed files, which stay links of its chain.

A file holds rows of one month as JSON lines, as they were in the table. The registry records its hash, its first and
last row, and later that it was deleted; the record is a chain itself. The database lets nobody delete a row that is not
recorded as archived, and a file is complete on disk before its rows go: a crash in between leaves both, and archiving
again writes the same file.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from portfolio_sdpo.common.files import data_directory, sync_directory
from portfolio_sdpo.errors import RegistryUnavailableError
from portfolio_sdpo.registry import schema
from portfolio_sdpo.registry.database import Database
from portfolio_sdpo.registry.hash_chain import START, HashChain, Head, LogCheck
from portfolio_sdpo.registry.records import Repository, Row, format_moment, utc_now

AUDIT = HashChain(schema.audit)
CHAIN = HashChain(schema.audit_archives)
ROWS = 50_000
"""Rows of one file, which are deleted from the table in one transaction while no answer can be recorded."""


@dataclass(frozen=True)
class Archive:
    """One file of archived rows."""

    file: str
    sha256: str
    month: str
    first_seq: int
    last_seq: int
    last_hash: str
    deleted: bool = False

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return self.last_seq - self.first_seq + 1


class Archives(Repository):
    """Archives the audit log, deletes archives and verifies them."""

    @property
    def archive_folder(self) -> Path:
        """Where the files are: beside an SQLite registry, otherwise in the data directory."""
        return get_archive_folder(self.database)

    def archives(self) -> list[Archive]:
        """All files from the first, with those that were deleted."""
        with self.database.reading() as connection:
            return _read_archives(connection)

    def archive_audit(self, before: date) -> list[Archive]:
        """Move the rows before a day, which should be the first of a month, to files; returns the new files."""
        made = []
        while (archive := self._archive_next(before)) is not None:
            made.append(archive)
        return made

    def delete_archives(self, before: str) -> list[Archive]:
        """Delete the files of months before one such as `2025-11`; that they were there stays on record."""
        due = [archive for archive in self.archives() if archive.month < before and not archive.deleted]
        if due:
            with self.database.writing() as connection:
                CHAIN.append(connection, CHAIN.lock(connection), [_make_row("deleted", archive) for archive in due])
        for archive in self.archives():
            if archive.deleted:  # also what a crash left behind
                (self.archive_folder / archive.file).unlink(missing_ok=True)
        return due

    def _archive_next(self, before: date) -> Archive | None:
        with self.database.reading(still=True) as connection:
            start = _get_start(_read_archives(connection))
            generation = connection.execute(sa.select(schema.identity.c.generation)).scalar_one()
            table = schema.audit
            query = table.select().where(table.c.seq > start.seq).order_by(table.c.seq).limit(ROWS)
            rows = _take_month(connection.execute(query).mappings().all(), before)
        if not rows:
            return None
        check = AUDIT.follow(Head(rows[-1]["seq"], rows[-1]["hash"]), rows, start)
        if not check.sound:
            raise AUDIT.make_damage_error(str(check.problem))
        month = rows[0]["at"][:7]
        # Rows with the same numbers may have been other ones before a backup was restored.
        name = f"audit-{month}-{rows[0]['seq']:012d}-{generation[:12]}.jsonl.gz"
        archive = Archive(
            name,
            _write_file(self.archive_folder / name, rows),
            month,
            rows[0]["seq"],
            rows[-1]["seq"],
            rows[-1]["hash"],
        )
        with self.database.writing() as connection:
            head = CHAIN.lock(connection)
            now = connection.execute(sa.select(schema.identity.c.generation)).scalar_one()
            if now != generation or _get_start(_read_archives(connection)) != start:
                raise RegistryUnavailableError(
                    "The audit log was archived or restored by another process meanwhile: archive it again."
                )
            CHAIN.append(connection, head, [_make_row("archived", archive)])
            connection.execute(table.delete().where(table.c.seq.between(archive.first_seq, archive.last_seq)))
        return archive


def get_archive_folder(database: Database) -> Path:
    """Where a registry's archives are."""
    return Path(f"{database.place}.audit") if database.embedded else data_directory() / "audit"


def verify_archives(connection: sa.Connection, folder: Path) -> tuple[Head, LogCheck | None]:
    """The row at which the table has to continue, and what is wrong with the files before it, if anything."""
    record = CHAIN.verify(connection)
    if not record.sound:
        return START, LogCheck("audit", 0, "", 1, f"the record of its archives is damaged ({record.problem})")
    position = START
    for archive in _read_archives(connection):
        end = Head(archive.last_seq, archive.last_hash)
        problem = None if archive.deleted else _find_problem(folder / archive.file, archive, position)
        if problem is not None:
            return position, LogCheck("audit", position.seq, archive.last_hash, position.seq + 1, problem)
        position = end
    return position, None


def _read_archives(connection: sa.Connection) -> list[Archive]:
    found: dict[str, Archive] = {}
    for row in connection.execute(schema.audit_archives.select().order_by(schema.audit_archives.c.seq)).mappings():
        found[row["file"]] = Archive(
            row["file"],
            row["sha256"],
            row["month"],
            row["first_seq"],
            row["last_seq"],
            row["last_hash"],
            row["action"] == "deleted",
        )
    return list(found.values())


def _get_start(archives: Sequence[Archive]) -> Head:
    """The last archived row."""
    return Head(archives[-1].last_seq, archives[-1].last_hash) if archives else START


def _take_month(rows: Sequence[Row], before: date) -> list[Row]:
    """The rows up to the first of another month, or of a day that is to stay."""
    taken: list[Row] = []
    for row in rows:
        if row["at"] >= before.isoformat() or row["at"][:7] != rows[0]["at"][:7]:
            break
        taken.append(row)
    return taken


def _make_row(action: str, archive: Archive) -> dict[str, Any]:
    return {
        "action": action,
        "at": format_moment(utc_now()),
        "file": archive.file,
        "sha256": archive.sha256,
        "month": archive.month,
        "first_seq": archive.first_seq,
        "last_seq": archive.last_seq,
        "last_hash": archive.last_hash,
    }


def _write_file(path: Path, rows: Sequence[Row]) -> str:
    """Write the rows as a whole or not at all; returns the hash of the file, which is always the same for them."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                for row in rows:
                    packed.write(json.dumps(dict(row), separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
        return _hash_file(path)
    except OSError as error:
        raise RegistryUnavailableError(
            f"The archive {path} cannot be written ({error.strerror}): free some space or correct its permissions."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _find_problem(path: Path, archive: Archive, start: Head) -> str | None:
    """What is wrong with a file whose rows have to follow another row; None if nothing is."""
    try:
        if _hash_file(path) != archive.sha256:
            return f"the archive {path} was changed"
        check = AUDIT.follow(Head(archive.last_seq, archive.last_hash), _read_file(path), start)
    except FileNotFoundError:
        return f"the archive {path} is missing"
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        return f"the archive {path} cannot be read ({' '.join(str(error).split())})"
    return check.problem


def _read_file(path: Path) -> Iterator[Row]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
