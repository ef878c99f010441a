"""Runs: every training, retrain, backtest and experiment, with its prices and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from portfolio_sdpo.errors import NotRegisteredError
from portfolio_sdpo.registry import schema
from portfolio_sdpo.registry.records import (
    Repository,
    Row,
    check_text,
    format_moment,
    from_json,
    make_id,
    to_canonical_json,
    to_optional_json,
    utc_now,
)

RunKind = Literal["train", "retrain", "backtest", "experiment"]
RunStatus = Literal["running", "done", "failed"]


@dataclass(frozen=True)
class Run:
    """One run."""

    id: str
    kind: RunKind
    status: RunStatus
    name: str
    """Its folder or its title."""
    settings: dict[str, Any]
    data_hash: str | None
    seed: int | None
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    """One word, such as promoted or kept."""
    reason: str | None
    model_id: str | None
    """The resulting model."""
    metrics: dict[str, Any] | None = None
    """The resulting figures."""


class Runs(Repository):
    """The table of runs."""

    def start_run(
        self,
        kind: RunKind,
        name: str = "",
        *,
        settings: Mapping[str, Any] | None = None,
        data_hash: str | None = None,
        seed: int | None = None,
    ) -> Run:
        """Record the start of a run."""
        row = {
            "id": make_id(),
            "kind": kind,
            "status": "running",
            "name": check_text("name", name),
            "settings": to_canonical_json(settings or {}, "settings"),
            "data_hash": data_hash,
            "seed": seed,
            "started_at": format_moment(utc_now()),
            "ended_at": None,
            "outcome": None,
            "reason": None,
            "model_id": None,
            "metrics": None,
        }
        with self.database.writing() as connection:
            connection.execute(schema.runs.insert().values(row))
        return self._build_run(row)

    def end_run(
        self,
        run_id: str,
        status: Literal["done", "failed"] = "done",
        *,
        outcome: str | None = None,
        reason: str | None = None,
        model_id: str | None = None,
        data_hash: str | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> Run:
        """Record the end of a running run; `data_hash` if it was not known at the start."""
        values = {
            "status": status,
            "ended_at": format_moment(utc_now()),
            "outcome": None if outcome is None else check_text("outcome", outcome),
            "reason": None if reason is None else check_text("reason", reason),
            "model_id": model_id,
            "metrics": to_optional_json(metrics, "metrics"),
        }
        if data_hash is not None:
            values["data_hash"] = data_hash
        ours = (schema.runs.c.id == run_id) & (schema.runs.c.status == "running")
        with self.database.writing() as connection:
            if connection.execute(schema.runs.update().where(ours).values(values)).rowcount != 1:
                raise NotRegisteredError(f"There is no running run {run_id!r}: it has ended, or it never started.")
        return self.run(run_id)

    def abandon_runs(self, kind: RunKind, reason: str) -> int:
        """Mark runs as failed whose process is known to have ended; returns their number."""
        ours = (schema.runs.c.kind == kind) & (schema.runs.c.status == "running")
        values = {"status": "failed", "ended_at": format_moment(utc_now()), "reason": check_text("reason", reason)}
        with self.database.writing() as connection:
            return connection.execute(schema.runs.update().where(ours).values(values)).rowcount

    def run(self, run_id: str) -> Run:
        """The run with exactly this id."""
        with self.database.reading() as connection:
            row = connection.execute(schema.runs.select().where(schema.runs.c.id == run_id)).mappings().first()
        if row is None:
            raise NotRegisteredError(f"There is no run {run_id!r}.")
        return self._build_run(row)

    def runs(
        self,
        *,
        kind: RunKind | None = None,
        status: RunStatus | None = None,
        outcome: str | None = None,
        data_hash: str | None = None,
        model_id: str | None = None,
        limit: int | None = None,
    ) -> list[Run]:
        """Runs that match all given values, newest first."""
        wanted = {"kind": kind, "status": status, "outcome": outcome, "data_hash": data_hash, "model_id": model_id}
        query = schema.runs.select().order_by(schema.runs.c.started_at.desc(), schema.runs.c.id.desc()).limit(limit)
        for column, value in wanted.items():
            if value is not None:
                query = query.where(schema.runs.c[column] == value)
        with self.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [self._build_run(row) for row in rows]

    def _build_run(self, row: Row) -> Run:
        def build() -> Run:
            values = dict(row) | {column: from_json(row[column]) for column in ("settings", "metrics")}
            for column in ("started_at", "ended_at"):
                values[column] = None if row[column] is None else datetime.fromisoformat(row[column])
            return Run(**values)

        return self._read(f"Run {row['id']}", build)
