"""One retrain at a time for each registry, by a lock that ends with its process: a crash leaves nothing to clean up.

Beside an SQLite registry it is a locked file, in PostgreSQL an advisory lock of a connection. If the database closes
that connection, two retrains could run; promotion compares the champion, so that they cannot harm each other.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa

from portfolio_sdpo.common.files import LockHeldError, claim_lock
from portfolio_sdpo.errors import RegistryUnavailableError, RetrainBusyError
from portfolio_sdpo.registry.database import Database
from portfolio_sdpo.registry.records import utc_now

LOCK = 0x5D9
"""First half of PostgreSQL's advisory lock; the second is made from the schema, since a database may have several."""


@contextmanager
def hold_retrain_lock(database: Database) -> Iterator[None]:
    """Hold the lock, or raise a `RetrainBusyError` that names the process which holds it."""
    with _lock_file(database) if database.embedded else _lock_connection(database):
        yield


@contextmanager
def _lock_file(database: Database) -> Iterator[None]:
    path = Path(f"{database.url.database}.retrain.lock")
    with ExitStack() as stack:
        try:
            stack.enter_context(claim_lock(path, _describe_process()))
        except LockHeldError as held:
            raise _busy(str(held)) from None
        except OSError as error:
            raise RegistryUnavailableError(
                f"{path} cannot be opened ({error.strerror}): correct the permissions of its folder."
            ) from None
        yield


@contextmanager
def _lock_connection(database: Database) -> Iterator[None]:
    key = sa.text(f"SELECT pg_try_advisory_lock({LOCK}, hashtext(current_schema()))")
    holder = sa.text(
        "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND "
        f"granted AND classid = {LOCK} AND objid = hashtext(current_schema())::bigint & 4294967295 AND "
        "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with database.reading() as connection:
        # No transaction stays open for hours, and at the end the connection is closed for good, with its lock.
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()
        name = {"name": _describe_process()[:63]}
        connection.execute(sa.text("SELECT set_config('application_name', :name, false)"), name)
        if not connection.execute(key).scalar_one():
            raise _busy(str(connection.execute(holder).scalar() or ""))
        yield


def _describe_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()} since {utc_now():%Y-%m-%d %H:%M:%S} UTC"


def _busy(holder: str) -> RetrainBusyError:
    return RetrainBusyError(
        f"Another retrain of this registry is running ({holder.strip() or 'it has just started'}): wait until it ends."
    )
