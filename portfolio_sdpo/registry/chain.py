"""Logs that only grow: the hash of a row covers its content and the hash of the row before it.

Whoever changes, removes or slips in a row breaks the chain there. The head, the number and hash of the last row, also
tells when rows were cut off at the end; writers lock it, so that rows have one order. Somebody who owns the database
can forge a whole new chain: against that, note the head elsewhere now and then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from portfolio_sdpo.errors import RegistryUnavailableError
from portfolio_sdpo.registry.part import Row
from portfolio_sdpo.registry.schema import heads
from portfolio_sdpo.registry.values import sealed

BATCH = 1000
"""Rows in memory at a time."""


@dataclass(frozen=True)
class Check:
    """What became of looking through a log."""

    log: str
    rows: int
    """That are sound, from the first on."""
    head: str
    """Hash of the last row as it was noted."""
    broken: int | None = None
    """The number of the first row that is not what it was."""
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


class Chain:
    """One log in one table."""

    def __init__(self, table: sa.Table) -> None:
        self.table = table
        self.name = table.name
        self.fields = [column.name for column in table.columns if column.name not in ("previous_hash", "hash")]

    def lock(self, connection: sa.Connection) -> Head:
        """The head, which no other writer can move until this transaction ends."""
        # SQLite has no row locks and needs none: its writers have the whole file from the start.
        return self.head(connection, lock=True)

    def head(self, connection: sa.Connection, *, lock: bool = False) -> Head:
        """Number and hash of the last row; number 0 when there is none."""
        query = sa.select(heads.c.seq, heads.c.hash).where(heads.c.name == self.name)
        row = connection.execute(query.with_for_update() if lock else query).one_or_none()
        if row is None or not isinstance(row.seq, int):
            raise self.damaged("its head is missing")
        return Head(row.seq, row.hash)

    def append(self, connection: sa.Connection, head: Head, records: Sequence[Mapping[str, Any]]) -> list[int]:
        """Write rows behind the locked head; their numbers."""
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
        found = Head(0, "0" * 64) if row is None else Head(row["seq"], row["hash"])
        if found != head:
            raise self.damaged(f"row {head.seq} is not its last")
        if row is not None and self.hash(row) != row["hash"]:
            raise self.damaged(f"row {row['seq']} was changed")
        return row

    def hash(self, row: Row) -> str:
        """What the row's hash has to be."""
        return sealed(row["previous_hash"], *(row[field] for field in self.fields))

    def verify(self, connection: sa.Connection) -> Check:
        """Go through all rows; the transaction must see one moment."""
        head = self.head(connection)
        query = self.table.select().order_by(self.table.c.seq)
        # Closed also when a broken row ends it early, or PostgreSQL's cursor would stay open.
        with connection.execution_options(yield_per=BATCH).execute(query) as rows:
            return self._follow(head, rows.mappings())

    def _follow(self, head: Head, rows: Iterable[Row]) -> Check:
        seq, last = 0, "0" * 64
        for row in rows:
            problem = None
            if row["seq"] != seq + 1:
                problem = f"row {seq + 1} is missing"
            elif row["previous_hash"] != last:
                problem = f"row {seq + 1} does not follow the row before it"
            elif self.hash(row) != row["hash"]:
                problem = f"row {seq + 1} was changed"
            elif seq >= head.seq:
                problem = f"row {seq + 1} was added by somebody else"
            if problem:
                return Check(self.name, seq, head.hash, seq + 1, problem)
            seq, last = row["seq"], row["hash"]
        if seq < head.seq:
            return Check(self.name, seq, head.hash, seq + 1, f"row {seq + 1} is missing")
        if last != head.hash:
            return Check(self.name, max(seq - 1, 0), head.hash, seq, f"row {seq} is not the one that was written")
        return Check(self.name, seq, head.hash)

    def damaged(self, reason: str) -> RegistryUnavailableError:
        """What is said when the log cannot be trusted."""
        return RegistryUnavailableError(
            f"The log of {self.name} in the registry is damaged ({reason}): restore a copy of the database."
        )
