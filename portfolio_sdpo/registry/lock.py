"""One retrain at a time per registry, by a lock that dies with its process: nobody has to clean up after a crash.

Beside an embedded registry it is a file that is locked, in PostgreSQL an advisory lock of a connection. Should the
database end that connection, two could run: promotion compares the champion, so that they cannot harm each other.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from portfolio_sdpo.common.locks import try_lock
from portfolio_sdpo.errors import RegistryUnavailableError, RetrainBusyError
from portfolio_sdpo.registry.database import Database
from portfolio_sdpo.registry.values import now

LOCK = 0x5D9
"""The first half of PostgreSQL's advisory lock; the second is made from the schema, of which a database may have
several."""


@contextmanager
def only_one(database: Database) -> Iterator[None]:
    """Hold the lock, or raise a `RetrainBusyError` that says who does."""
    with _of_file(database) if database.embedded else _of_connection(database):
        yield


@contextmanager
def _of_file(database: Database) -> Iterator[None]:
    path = Path(f"{database.url.database}.retrain.lock")
    try:
        file = path.open("a+", encoding="utf-8", errors="replace")
    except OSError as error:
        raise RegistryUnavailableError(
            f"{path} cannot be opened ({error.strerror}): correct the permissions of its folder."
        ) from None
    with file:
        if not try_lock(file):
            file.seek(0)
            raise _busy(file.read())
        file.truncate(0)
        file.write(_me())
        file.flush()
        yield


@contextmanager
def _of_connection(database: Database) -> Iterator[None]:
    key = sa.text(f"SELECT pg_try_advisory_lock({LOCK}, hashtext(current_schema()))")
    holder = sa.text(
        "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND "
        f"granted AND classid = {LOCK} AND objid = hashtext(current_schema())::bigint & 4294967295 AND "
        "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with database.reading() as connection:
        # No transaction stays open for hours, and at the end the connection goes for good, with the lock.
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()
        connection.execute(sa.text("SELECT set_config('application_name', :name, false)"), {"name": _me()[:63]})
        if not connection.execute(key).scalar_one():
            raise _busy(str(connection.execute(holder).scalar() or ""))
        yield


def _me() -> str:
    return f"process {os.getpid()} on {socket.gethostname()} since {now():%Y-%m-%d %H:%M:%S} UTC"


def _busy(holder: str) -> RetrainBusyError:
    return RetrainBusyError(
        f"Another retrain of this registry is running ({holder.strip() or 'it has just begun'}): wait until it ends."
    )
