"""Backups of a registry while it is in use, and their restoration beside a running service.

SQLite: a copy by SQLite's own backup, which sees one moment of the database and lets writers continue. PostgreSQL: its
own tools, `pg_dump`, `pg_restore` and `psql`, on the registry's tables only. A restored registry gets a new generation,
by which services that have it open notice that it was replaced.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from portfolio_sdpo.common.files import sync_directory
from portfolio_sdpo.errors import NotRegisteredError, RegistryError, RegistryUnavailableError, SettingsError
from portfolio_sdpo.registry import schema
from portfolio_sdpo.registry.database import Database, resolve_url
from portfolio_sdpo.registry.hash_chain import LogCheck
from portfolio_sdpo.registry.records import utc_now
from portfolio_sdpo.registry.registry import Registry
from portfolio_sdpo.registry.schema import VERSION_TABLE
from portfolio_sdpo.registry.witness import find_replacement, get_witness_path

TABLES = (*(table.name for table in schema.metadata.sorted_tables), VERSION_TABLE)
"""Those of the registry; the database may hold tables of other programs."""


@dataclass(frozen=True)
class RegistryCheck:
    """The result of checking a whole registry."""

    place: str
    id: str
    generation: str
    models: int
    damaged: dict[str, str]
    logs: tuple[LogCheck, ...]
    replaced: str | None = None
    """How the file contradicts what was noted about it while it was served; see `witness`."""

    @property
    def sound(self) -> bool:
        """Whether everything is as it was written."""
        return not self.damaged and self.replaced is None and all(log.sound for log in self.logs)

    @property
    def problem(self) -> str:
        """What is wrong, without a full stop."""
        broken = [f"{log.log}: {log.problem}" for log in self.logs if not log.sound]
        replaced = [] if self.replaced is None else [self.replaced]
        return "; ".join([*replaced, *broken, *(sentence.rstrip(".") for sentence in self.damaged.values())])


def verify_registry(registry: Registry) -> RegistryCheck:
    """Check every model's hashes and the chains of the logs, with the archives of the audit log."""
    identity = registry.look()
    return RegistryCheck(
        registry.place,
        identity.id,
        identity.generation,
        len(registry.model_ids()),
        registry.damaged_models(),
        (registry.verify_promotions(), registry.verify_audit()),
        find_replacement(registry.database, identity),
    )


def back_up(registry: Registry, path: Path) -> None:
    """Write a backup to a new file while the registry is in use; it is complete and was checked, or not there."""
    if path.exists():
        raise SettingsError(f"backup: {path} exists already, and backups are never overwritten: name another file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(path) as temporary:
            if registry.database.embedded:
                _copy_sqlite(Path(registry.place), temporary)
                _check_copy(temporary, registry.archive_folder)
                _leave_wal_mode(temporary)
            else:
                _dump_postgresql(registry.database, temporary)
            _publish(temporary, path)
    except (OSError, sqlite3.Error) as error:
        raise RegistryUnavailableError(f"The backup {path} cannot be written ({_describe(error)}).") from None


def restore(path: Path, place: str | None, *, force: bool = False) -> Path | None:
    """Put a backup in the place of a registry, beside running services; returns where the registry of before is.

    A registry with another identity is only replaced with `force`. The registry of before is kept beside SQLite's file;
    of one in PostgreSQL make a backup first.
    """
    if not path.is_file():
        raise SettingsError(f"backup: there is no file {path}; name one that `portfolio-sdpo registry backup` made.")
    url = resolve_url(place)
    if url.get_backend_name() != "sqlite":
        _restore_postgresql(path, place, force)
        return None
    target = Path(str(url.database))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(target) as temporary:
            _copy_sqlite(path, temporary)
            origin = _check_copy(temporary, Path(f"{target}.audit"))
            _renew_generation(temporary)
            kept = _replace_sqlite(temporary, target, origin, force)
            get_witness_path(target).unlink(missing_ok=True)
            return kept
    except (OSError, sqlite3.Error) as error:
        raise RegistryUnavailableError(f"{target} cannot be restored ({_describe(error)}).") from None


def _replace_sqlite(copy: Path, target: Path, origin: str, force: bool) -> Path | None:
    if not target.exists():
        for suffix in ("-wal", "-shm"):  # of the file that is gone; SQLite would apply them to the new one
            Path(f"{target}{suffix}").unlink(missing_ok=True)
        _publish(copy, target)
        return None
    kept = target.with_name(f"{target.name}.before-restore-{utc_now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}")
    known = _read_id(target)
    if known is None:  # damaged, which is a good reason to restore
        for suffix in ("", "-wal", "-shm"):
            if Path(f"{target}{suffix}").exists():
                os.replace(f"{target}{suffix}", f"{kept}{suffix}")
        _publish(copy, target)
        return kept
    if known != origin and not force:
        raise SettingsError(
            f"backup: it is of another registry than {target}; add --force to replace that one all the same."
        )
    _replace_rows(copy, target, kept)
    return kept


def _read_id(place: Path) -> str | None:
    """The id of the registry in a file; None if the file is damaged, an error if it only cannot be read now."""
    try:
        with Registry.open(str(place), create=False) as current:
            return current.look().id
    except RegistryError:
        try:
            with closing(sqlite3.connect(f"{place.absolute().as_uri()}?mode=ro", uri=True, timeout=30.0)) as connection:
                (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            return None
        if found == "ok":
            raise
        return None


def _replace_rows(copy: Path, target: Path, kept: Path) -> None:
    """Keep the state of before, and put the rows of the copy in its place, in one transaction.

    Nothing is written to the registry between the two, and services read the old state until it is committed.
    """
    with closing(sqlite3.connect(target, timeout=30.0, isolation_level=None)) as connection:
        connection.execute("ATTACH DATABASE ? AS copy", (str(copy),))
        connection.execute("BEGIN IMMEDIATE")
        try:
            _copy_sqlite(target, kept)
            find_triggers = "SELECT name, sql FROM {}.sqlite_master WHERE type = 'trigger'"
            triggers = connection.execute(find_triggers.format("copy")).fetchall()
            for name, _ in connection.execute(find_triggers.format("main")).fetchall():  # by which the logs only grow
                connection.execute(f'DROP TRIGGER main."{name}"')
            for table in reversed(TABLES):
                connection.execute(f'DELETE FROM main."{table}"')
            for table in TABLES:
                columns = ", ".join(f'"{row[1]}"' for row in connection.execute(f'PRAGMA main.table_info("{table}")'))
                connection.execute(f'INSERT INTO main."{table}" ({columns}) SELECT {columns} FROM copy."{table}"')
            for _, sql in triggers:
                connection.execute(sql)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _copy_sqlite(source: Path, target: Path) -> None:
    if not source.exists():
        raise NotRegisteredError(f"There is no registry at {source}: correct the place.")
    # In WAL mode SQLite writes beside the file even to read it, which a folder may refuse where nobody else writes.
    still = not os.access(source.parent, os.W_OK) and not Path(f"{source}-wal").exists()
    place = f"{source.absolute().as_uri()}?mode=ro{'&immutable=1' * still}"
    with (
        closing(sqlite3.connect(place, uri=True, timeout=30.0)) as origin,
        closing(sqlite3.connect(target, timeout=30.0)) as copy,
    ):
        origin.backup(copy)  # all pages in one step, so that writers cannot make it start again


def _check_copy(path: Path, archives: Path) -> str:
    """Refuse a copy that is not sound; returns the id of its registry."""
    with Registry.open(str(path), create=False) as copied:
        Path(f"{path}.audit").symlink_to(archives)
        try:
            check = verify_registry(copied)
        finally:
            Path(f"{path}.audit").unlink()
    if not check.sound:
        raise RegistryUnavailableError(f"The copy of the registry is damaged ({check.problem}): use another backup.")
    return check.id


def _leave_wal_mode(path: Path) -> None:
    """One file, which can be read wherever it is put."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")


def _renew_generation(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE identity SET generation = ?", (secrets.token_hex(16),))


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """The name of a file beside another; what is left there at the end is deleted."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield temporary
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{temporary}{suffix}").unlink(missing_ok=True)


def _publish(temporary: Path, path: Path) -> None:
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)


def _dump_postgresql(database: Database, path: Path) -> None:
    tables = [option for table in TABLES for option in ("--table", table)]
    _run(database, ["pg_dump", "--format=custom", "--data-only", *tables, "--file", str(path)])


def _restore_postgresql(path: Path, place: str | None, force: bool) -> None:
    with Registry.open(place) as registry:  # which also makes the tables where there are none
        database = registry.database
        script = path.with_name(f".{path.name}.{secrets.token_hex(8)}.sql")
        try:
            _run(database, ["pg_restore", "--data-only", "--file", str(script), str(path)], connect=False)
            content = script.read_text()
        finally:
            script.unlink(missing_ok=True)
        with database.reading() as connection:
            folder = str(connection.execute(sa.text("SELECT current_schema()")).scalar_one())
            empty = connection.execute(sa.select(sa.func.count()).select_from(schema.models)).scalar_one() == 0
        if not force and not empty and registry.look().id not in content:
            raise SettingsError(
                f"backup: it is of another registry than {registry.place}; add --force to replace that one all the "
                "same."
            )
        names = [f'"{folder}".{table}' for table in TABLES]
        before = [f"ALTER TABLE {name} DISABLE TRIGGER USER;" for name in names]
        before += [f"DELETE FROM {name};" for name in reversed(names)]
        after = [f"UPDATE \"{folder}\".identity SET generation = '{secrets.token_hex(16)}';"]
        after += [f"ALTER TABLE {name} ENABLE TRIGGER USER;" for name in names]
        whole = "\n".join([*before, content, *after])
        _run(database, ["psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--single-transaction"], whole)
    with Registry.open(place, create=False) as restored:
        check = verify_registry(restored)
    if not check.sound:
        raise RegistryUnavailableError(f"The backup was restored and is damaged ({check.problem}): use another.")


def _run(database: Database, command: Sequence[str], script: str | None = None, *, connect: bool = True) -> None:
    """Run one of PostgreSQL's programs; the password goes through the environment, which other users cannot see."""
    program = shutil.which(command[0])
    if program is None:
        raise SettingsError(
            f"registry: {command[0]} is not installed; install PostgreSQL's client programs (postgresql-client)."
        )
    environment, url = dict(os.environ), database.url.set(drivername="postgresql")
    if url.password is not None:
        environment["PGPASSWORD"] = str(url.password)
    target = ["--dbname", url.set(password=None).render_as_string(hide_password=False)] if connect else []
    done = subprocess.run(
        [program, *command[1:], *target], input=script, capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode != 0:
        reason = " ".join(done.stderr.split())[:300].rstrip(".")
        raise RegistryUnavailableError(f"{command[0]} failed ({reason}): nothing was changed.")


def _describe(error: OSError | sqlite3.Error) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())
