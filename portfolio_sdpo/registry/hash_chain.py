"""Append-only logs: the hash of a row covers its content and the hash of the row before it.

A row that is changed, removed or inserted breaks the chain there. The head, which is the number and hash of the last
row, also shows when rows were cut off at the end; writers lock it, so that rows have one order. The owner of the
database can forge a whole new chain: against that, store the head elsewhere from time to time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from portfolio_sdpo.errors import RegistryUnavailableError
from portfolio_sdpo.registry.records import Row, hash_values
from portfolio_sdpo.registry.schema import heads

BATCH = 1000
"""Rows in memory at a time."""


@dataclass(frozen=True)
class LogCheck:
    """The result of checking a log."""

    log: str
    rows: int
    """Rows that are intact, counted from the first."""
    head: str
    """Hash of the last row, as stored in the head."""
    broken: int | None = None
    """Number of the first row that was altered."""
    problem: str | None = None

    @property
    def sound(self) -> bool:
        """Whether every row is as it was written."""
        return self.problem is None


@dataclass(frozen=True)
class Head:
    """Number and hash of the last row."""

    seq: int
    hash: str


START = Head(0, "0" * 64)
"""Before the first row."""


class HashChain:
    """One append-only log in one table."""

    def __init__(self, table: sa.Table) -> None:
        self.table = table
        self.name = table.name
        self.fields = [column.name for column in table.columns if column.name not in ("previous_hash", "hash")]

    def lock(self, connection: sa.Connection) -> Head:
        """The head, which no other writer can change until this transaction ends."""
        # SQLite has no row locks and needs none: its writers have the whole file from the start.
        return self.head(connection, lock=True)

    def head(self, connection: sa.Connection, *, lock: bool = False) -> Head:
        """Number and hash of the last row; number 0 when there is none."""
        query = sa.select(heads.c.seq, heads.c.hash).where(heads.c.name == self.name)
        row = connection.execute(query.with_for_update() if lock else query).one_or_none()
        if row is None or not isinstance(row.seq, int):
            raise self.make_damage_error("its head is missing")
        return Head(row.seq, row.hash)

    def append(self, connection: sa.Connection, head: Head, records: Sequence[Mapping[str, Any]]) -> list[int]:
        """Write rows behind the locked head; returns their numbers."""
        rows = []
        seq, last = head.seq, head.hash
        for record in records:
            seq += 1
            row = {**record, "seq": seq, "previous_hash": last}
            last = row["hash"] = self.hash(row)
            rows.append(row)
        if rows:
            connection.execute(self.table.insert(), rows)
            connection.execute(heads.update().where(heads.c.name == self.name).values(seq=seq, hash=last))
        return [row["seq"] for row in rows]

    def last(self, connection: sa.Connection) -> Row | None:
        """The last row, checked against its own hash and the head."""
        head = self.head(connection)
        row = connection.execute(self.table.select().order_by(self.table.c.seq.desc()).limit(1)).mappings().first()
        found = START if row is None else Head(row["seq"], row["hash"])
        if found != head:
            raise self.make_damage_error(f"row {head.seq} is not its last")
        if row is not None and self.hash(row) != row["hash"]:
            raise self.make_damage_error(f"row {row['seq']} was changed")
        return row

    def hash(self, row: Row) -> str:
        """The hash that the row must have."""
        return hash_values(row["previous_hash"], *(row[field] for field in self.fields))

    def verify(self, connection: sa.Connection, start: Head = START) -> LogCheck:
        """Check all rows, which have to follow `start`; the transaction must see one moment of the database."""
        head = self.head(connection)
        query = self.table.select().order_by(self.table.c.seq)
        # Closed also when a broken row ends it early, or PostgreSQL's cursor would stay open.
        with connection.execution_options(yield_per=BATCH).execute(query) as rows:
            return self.follow(head, rows.mappings(), start)

    def follow(self, head: Head, rows: Iterable[Row], start: Head = START) -> LogCheck:
        """Check rows that have to lead from `start` to the head."""
        seq, last = start.seq, start.hash
        for row in rows:
            problem = None
            if row["seq"] != seq + 1:
                problem = f"row {seq + 1} is missing"
            elif row["previous_hash"] != last:
                problem = f"row {seq + 1} does not follow the row before it"
            elif self.hash(row) != row["hash"]:
                problem = f"row {seq + 1} was changed"
            elif seq >= head.seq:
                problem = f"row {seq + 1} was added from outside"
            if problem:
                return LogCheck(self.name, seq, head.hash, seq + 1, problem)
            seq, last = row["seq"], row["hash"]
        if seq < head.seq:
            return LogCheck(self.name, seq, head.hash, seq + 1, f"row {seq + 1} is missing")
        if last != head.hash:
            return LogCheck(self.name, max(seq - 1, 0), head.hash, seq, f"row {seq} is not the one that was written")
        return LogCheck(self.name, seq, head.hash)

    def make_damage_error(self, reason: str) -> RegistryUnavailableError:
        """The error to raise when the log cannot be trusted."""
        return RegistryUnavailableError(
            f"The log of {self.name} in the registry is damaged ({reason}): restore a backup of the database."
        )
