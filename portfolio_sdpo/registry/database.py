"""The database of the registry: where it is, transactions on it, and its errors as one sentence.

SQLite by default: one file in the user's data directory, in WAL mode so that readers never wait, synced at every
commit. PostgreSQL by URL, for several machines.

A process that keeps a registry open notices when it is replaced: every transaction on SQLite checks that the file is
still the one that was opened, and `look` reads the identity that the tables hold.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from portfolio_sdpo.common.files import data_directory
from portfolio_sdpo.common.plugins import missing_extra
from portfolio_sdpo.errors import (
    NotRegisteredError,
    RegistryError,
    RegistryReplacedError,
    RegistryUnavailableError,
    SettingsError,
)
from portfolio_sdpo.registry.migrate import migrate, read_revision
from portfolio_sdpo.registry.schema import HEAD, identity

VARIABLE = "PORTFOLIO_SDPO_REGISTRY"
TIMEOUT = 10.0
"""Seconds to wait for a lock or a connection."""
LOCK = 0x5D90_0001
"""PostgreSQL's advisory lock for migrations; any number that nothing else uses."""


def resolve_url(url: str | None) -> sa.URL:
    """The database to use: the argument, the environment variable, or the default file."""
    text = url or os.environ.get(VARIABLE) or str(data_directory() / "registry.db")
    if "://" not in text:
        return sa.URL.create("sqlite", database=str(Path(text).expanduser().absolute()))
    try:
        parsed = sa.make_url(text)
    except (SQLAlchemyError, ValueError):
        raise SettingsError(
            "registry: the URL is not valid; it should look like postgresql://user@host/name or sqlite:///path."
        ) from None
    backend = parsed.drivername.partition("+")[0]
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise SettingsError(f"registry: {backend} is not supported; give a URL of SQLite or PostgreSQL.")
    if parsed.database in (None, "", ":memory:"):
        raise SettingsError(
            "registry: a database in memory would forget its champion; name a file, as in sqlite:///path."
        )
    return parsed.set(drivername="sqlite", database=str(Path(str(parsed.database)).expanduser().absolute()))


@dataclass(frozen=True)
class Identity:
    """Which registry this is, and which state of it."""

    id: str
    """The same for a registry and all its copies."""
    generation: str
    """Changes whenever a backup is restored."""
    replacements: int = 0
    """How often the file was replaced while this process had it open."""


Comparison = Callable[[sa.Connection, Identity, "Database"], str | None]
"""How the tables of a registry contradict what was known of them, without a full stop; None: not at all."""


class Database:
    """An SQLAlchemy engine whose transactions raise only errors of this package."""

    def __init__(self, url: sa.URL, timeout: float, compare: Comparison | None = None) -> None:
        self.url = url
        self.timeout = timeout
        self._compare = compare
        """Asked before anything is read from a file that took the place of the one that was opened."""
        self.embedded = url.get_backend_name() == "sqlite"
        self.engine = self._sqlite() if self.embedded else self._postgresql()
        self._may_create = False
        self._opened: Identity | None = None
        self._file: tuple[int, int] | None = None
        self._replacements = 0
        self._foreign: RegistryReplacedError | None = None
        """Raised by every transaction while the tables are those of another registry."""
        self._distrusted: RegistryReplacedError | None = None
        """Raised by every transaction while the tables are an older copy; see `witness`."""
        self.noted: dict[str, Any] = {}
        """How far the logs had come at the last look, where that is not noted in a file; see `witness`."""
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """The file or URL for messages, without the password."""
        return str(self.url.database) if self.embedded else self.url.render_as_string(hide_password=True)

    def open(self, *, create: bool = True) -> None:
        """Bring the tables of an older version up to date; without tables, create them or say that there are none."""
        self._may_create = create
        if self.embedded:
            self._prepare_folder(create)
        with self.reading() as connection:
            found = read_revision(connection)
        if found is None and not create:
            raise self._missing()
        if found != HEAD:
            with self.writing() as connection:
                if not self.embedded:
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
                migrate(connection)
        self._may_create = False
        with self.reading() as connection:
            self._opened = self._read_identity(connection)
        self._file = self._identify_file()

    def look(self) -> Identity:
        """The identity as it is now; raises a `RegistryReplacedError` where it is another registry than was opened."""
        with self._translate_errors(), self._lock:
            self._check_file()
            with self.engine.connect() as connection:
                found = self._read_identity(connection)
                foreign = self._opened is not None and found.id != self._opened.id
                if self._foreign is not None and not foreign:  # before anything is read from tables that have returned
                    self.distrust(self._find_contradiction(connection, found))
            self._foreign = self._is_foreign() if foreign else None
            if self._foreign is not None:
                raise self._foreign
        return Identity(found.id, found.generation, self._replacements)

    def distrust(self, problem: str | None) -> None:
        """Refuse transactions from now on because of what contradicts the registry; None: no longer."""
        self._distrusted = None
        if problem is not None:
            otherwise = f"delete {self.place}.witness" if self.embedded else "restart the service"
            self._distrusted = RegistryReplacedError(
                f"The registry at {self.place} was replaced: {problem}. Restore a backup with `portfolio-sdpo registry "
                f"restore FILE`, or {otherwise} if this one is right."
            )

    @contextmanager
    def reading(self, *, still: bool = False, trusted: bool = True) -> Iterator[sa.Connection]:
        """A transaction that only reads.

        still: all its queries see the same moment. trusted: only where nothing contradicts what the tables hold.
        """
        with self._translate_errors():
            self._check(trusted=trusted)
            with self.engine.connect() as connection:
                if still and not self.embedded:  # in SQLite every transaction does
                    connection.execution_options(isolation_level="REPEATABLE READ")
                yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that is committed after the block, or rolled back after an error."""
        with self._translate_errors():
            self._check()
            with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
                if self._opened is not None and not self.embedded:  # which has no file to check
                    self._check_tables(connection, self._opened)
                yield connection
            self._check()  # what was committed to a file that is gone was not written

    def _check(self, *, trusted: bool = True) -> None:
        """Raise a `RegistryReplacedError` where a transaction would not reach the registry that was opened."""
        if trusted and self._distrusted is not None:
            raise self._distrusted
        if self._foreign is not None:
            raise self._foreign
        if self._file is not None and self._identify_file() != self._file:
            with self._lock:
                self._check_file()

    def _check_tables(self, connection: sa.Connection, opened: Identity) -> None:
        """Raise a `RegistryReplacedError` where the tables are not those that were opened, or older ones."""
        found = connection.execute(sa.select(identity.c.id, identity.c.generation)).one()
        if found.id != opened.id:
            raise self._is_foreign()
        self.distrust(self._find_contradiction(connection, Identity(found.id, found.generation)))
        if self._distrusted is not None:
            raise self._distrusted

    def _find_contradiction(self, connection: sa.Connection, found: Identity) -> str | None:
        return None if self._compare is None else self._compare(connection, found, self)

    def _check_file(self) -> None:
        """As `_check` for the file alone; a copy of the same registry is used after the error was raised once."""
        if self._file is None:
            return
        found = self._identify_file()
        if found == self._file:
            return
        self.engine.dispose()  # nothing more is written to a file that nobody can find
        if found is None:
            raise RegistryReplacedError(
                f"The registry at {self.place} has vanished: restore it with `portfolio-sdpo registry restore FILE`."
            )
        self._file = found
        self._replacements += 1
        with self.engine.connect() as connection:
            current = self._read_identity(connection)
            if self._opened is not None and current.id != self._opened.id:
                self._foreign = self._is_foreign()
                raise self._foreign
            self.distrust(self._find_contradiction(connection, current))
        if self._distrusted is not None:
            raise self._distrusted
        raise RegistryReplacedError(
            f"The registry at {self.place} was replaced by a copy of itself: its promotions, keys and logs are read "
            "again from now on."
        )

    def _is_foreign(self) -> RegistryReplacedError:
        return RegistryReplacedError(
            f"The registry at {self.place} was replaced by another registry: put the right one back, or restart if "
            "this is intended."
        )

    def _identify_file(self) -> tuple[int, int] | None:
        """Device and number of the file; None where there is none, or no file at all."""
        if not self.embedded:
            return None
        try:
            found = os.stat(str(self.url.database))
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _read_identity(self, connection: sa.Connection) -> Identity:
        found = None
        if sa.inspect(connection).has_table(identity.name):
            found = connection.execute(sa.select(identity.c.id, identity.c.generation)).one_or_none()
        if found is None:
            return Identity("", "")
        return Identity(found.id, found.generation)

    def _prepare_folder(self, create: bool) -> None:
        path = Path(str(self.url.database))
        if not create:
            if not path.exists():
                raise self._missing()
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RegistryUnavailableError(
                f"The registry cannot be created in {path.parent} ({error.strerror}): correct its permissions or name "
                f"another place with {VARIABLE}."
            ) from None

    def _missing(self) -> NotRegisteredError:
        return NotRegisteredError(
            f"There is no registry at {self.place}: correct the place, or create a registry with a first champion with "
            "`portfolio-sdpo retrain`."
        )

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _sqlite(self) -> sa.Engine:
        import sqlite3

        def connect() -> sqlite3.Connection:
            # Only `open` may create a file: a transaction later would hide that the registry has vanished.
            place = f"{Path(str(self.url.database)).as_uri()}?mode={'rwc' if self._may_create else 'rw'}"
            return sqlite3.connect(place, uri=True, timeout=self.timeout, check_same_thread=False)

        engine = sa.create_engine(self.url, creator=connect)

        @sa.event.listens_for(engine, "connect")
        def prepare(connection: Any, _: Any) -> None:
            # SQLAlchemy begins transactions, not the driver.
            connection.isolation_level = None
            # A flipped byte can make text invalid as UTF-8; the hash shall report it, not an exception of the driver.
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            self._wal(connection)
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            # A transaction that reads first and writes later can fail half-way; one that locks from the start cannot.
            writes = connection.get_execution_options().get("writes", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _wal(self, connection: Any) -> None:
        """Switch to WAL mode; two processes that open a new file at once may refuse each other, so try again."""
        import sqlite3

        deadline = time.monotonic() + self.timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _postgresql(self) -> sa.Engine:
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise missing_extra("A registry in PostgreSQL", "psycopg", "postgres") from None
        milliseconds = int(self.timeout * 1000)
        options = f"{self.url.query.get('options', '')} -c lock_timeout={milliseconds}".strip()
        # After a restart of the server only a new connection is needed.
        return sa.create_engine(
            self.url.difference_update_query(["options"]),
            pool_pre_ping=True,
            connect_args={"connect_timeout": max(1, round(self.timeout)), "options": options},
        )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise self._describe(error) from error

    def _describe(self, error: SQLAlchemyError) -> RegistryError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
        for beginnings, what in _REASONS:
            if code.startswith(beginnings):
                return RegistryUnavailableError(f"The registry at {self.place} {what}")
        reason = " ".join(str(cause).split()).rstrip(".")
        if isinstance(error, DBAPIError) and not self.embedded and not code:
            return RegistryUnavailableError(
                f"The registry at {self.place} cannot be reached ({reason}): start the database or correct the URL."
            )
        return RegistryError(
            f"The registry at {self.place} reported an error ({reason}): check the request and the database."
        )


_REASONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("SQLITE_BUSY", "SQLITE_LOCKED", "55P03", "57014"),
        "is locked by another process: wait for it to end and try again.",
    ),
    (("SQLITE_FULL", "SQLITE_IOERR_WRITE", "53100"), "has no space left on its disk: free some space and try again."),
    (("SQLITE_NOTADB",), "is not a database of portfolio_sdpo: name another file."),
    (("SQLITE_CORRUPT",), "is damaged: restore a backup."),
    (("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"), "cannot be opened: correct its path or its permissions."),
    (("SQLITE_READONLY", "25006"), "is read-only: correct its permissions."),
    (("SQLITE_IOERR",), "cannot be read or written on its disk: check the disk and try again."),
    (("28",), "refused the user or the password: correct the URL."),
    (("3D000",), "does not exist: create the database or correct the URL."),
    (("53300", "57P", "08"), "does not accept connections: try again later."),
)
"""The beginnings of error codes, SQLite's names or PostgreSQL's numbers, and the message for them."""
