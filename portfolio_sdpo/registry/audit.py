"""The audit log of served weights: what was sent, when, by which model and on which prices. See `hash_chain`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.registry import schema
from portfolio_sdpo.registry.archive import get_archive_folder, verify_archives
from portfolio_sdpo.registry.hash_chain import HashChain, LogCheck
from portfolio_sdpo.registry.records import (
    Repository,
    Row,
    check_text,
    format_moment,
    from_json,
    to_canonical_json,
    utc_now,
)

CHAIN = HashChain(schema.audit)


@dataclass(frozen=True)
class AuditEntry:
    """One answer with weights."""

    request_id: str
    weights: Mapping[str, float]
    response_hash: str
    """sha256 of the response body."""
    model_id: str | None = None
    data_hash: str | None = None
    as_of: date | None = None
    shield_factor: float | None = None
    """The share of the policy's risky weights that the shield let through."""
    promised_cvar: float | None = None
    limit: float | None = None
    """The CVaR limit."""
    warnings: Sequence[str] = ()
    at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True)
class AuditRow:
    """An entry in its place in the log."""

    seq: int
    entry: AuditEntry
    previous_hash: str
    hash: str


class Audit(Repository):
    """Writes, reads and verifies the audit log."""

    def append_audit(self, entries: Sequence[AuditEntry]) -> list[int]:
        """Write all entries in one transaction, or none; returns their numbers."""
        if not entries:
            return []
        rows = [_row(entry) for entry in entries]  # before the lock, which others wait for
        with self.database.writing() as connection:
            return CHAIN.append(connection, CHAIN.lock(connection), rows)

    def audit(
        self,
        *,
        limit: int = 100,
        before: int | None = None,
        model_id: str | None = None,
        request_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[AuditRow]:
        """The newest rows first, at most `limit`; `before`: only those with a smaller number, for the next page."""
        table = schema.audit
        query = table.select().order_by(table.c.seq.desc()).limit(limit)
        if before is not None:
            query = query.where(table.c.seq < before)
        if model_id is not None:
            query = query.where(table.c.model_id == check_text("model_id", model_id))
        if request_id is not None:
            query = query.where(table.c.request_id == check_text("request_id", request_id))
        if since is not None:
            query = query.where(table.c.at >= format_moment(since))
        if until is not None:
            query = query.where(table.c.at < format_moment(until))
        with self.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [self._entry(row) for row in rows]

    def verify_audit(self) -> LogCheck:
        """Check that the log is as it was written, in its archives as well; the result names the first altered row."""
        with self.database.reading(still=True) as connection:
            start, problem = verify_archives(connection, get_archive_folder(self.database))
            return problem or CHAIN.verify(connection, start)

    def _entry(self, row: Row) -> AuditRow:
        return self._read(
            f"Row {row['seq']} of the audit",
            lambda: AuditRow(
                seq=row["seq"],
                entry=AuditEntry(
                    request_id=row["request_id"],
                    weights=from_json(row["weights"]),
                    response_hash=row["response_hash"],
                    model_id=row["model_id"],
                    data_hash=row["data_hash"],
                    as_of=None if row["as_of"] is None else date.fromisoformat(row["as_of"]),
                    shield_factor=row["shield_factor"],
                    promised_cvar=row["promised_cvar"],
                    limit=row["cvar_limit"],
                    warnings=tuple(from_json(row["warnings"])),
                    at=datetime.fromisoformat(row["at"]),
                ),
                previous_hash=row["previous_hash"],
                hash=row["hash"],
            ),
        )


def _row(entry: AuditEntry) -> dict[str, Any]:
    weights = {asset: float(weight) for asset, weight in entry.weights.items()}
    return {
        "at": format_moment(entry.at),
        "request_id": check_text("request_id", entry.request_id),
        "model_id": entry.model_id,
        "data_hash": entry.data_hash,
        "as_of": None if entry.as_of is None else entry.as_of.isoformat(),
        "weights": to_canonical_json(weights, "weights"),
        "shield_factor": _number("shield_factor", entry.shield_factor),
        "promised_cvar": _number("promised_cvar", entry.promised_cvar),
        "cvar_limit": _number("limit", entry.limit),
        "warnings": to_canonical_json(list(entry.warnings), "warnings"),
        "response_hash": entry.response_hash,
    }


def _number(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if not math.isfinite(value):
        raise SettingsError(f"{name}: must be a finite number (got {value}).")
    # SQLite does not store the sign of zero, and the hash is over what is read back.
    return float(value) + 0.0
