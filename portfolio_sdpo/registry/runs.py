"""Runs: what was trained, retrained, tested or tried, when, on which prices, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from portfolio_sdpo.errors import NotRegisteredError
from portfolio_sdpo.registry import schema
from portfolio_sdpo.registry.part import Part, Row
from portfolio_sdpo.registry.values import canonical, new_id, now, optional, parsed, plain, written

RunKind = Literal["train", "retrain", "backtest", "experiment"]
RunStatus = Literal["running", "done", "failed"]


@dataclass(frozen=True)
class Run:
    """One run."""

    id: str
    kind: RunKind
    status: RunStatus
    name: str
    """Its folder, or what it is called."""
    settings: dict[str, Any]
    data_hash: str | None
    seed: int | None
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    """In a word, such as promoted or kept."""
    reason: str | None
    model_id: str | None
    """The model that came of it."""
    metrics: dict[str, Any] | None = None
    """What came of it in figures."""


class Runs(Part):
    """The book of runs."""

    def start_run(
        self,
        kind: RunKind,
        name: str = "",
        *,
        settings: Mapping[str, Any] | None = None,
        data_hash: str | None = None,
        seed: int | None = None,
    ) -> Run:
        """Note that a run begins."""
        row = {
            "id": new_id(),
            "kind": kind,
            "status": "running",
            "name": plain("name", name),
            "settings": canonical(settings or {}, "settings"),
            "data_hash": data_hash,
            "seed": seed,
            "started_at": written(now()),
            "ended_at": None,
            "outcome": None,
            "reason": None,
            "model_id": None,
            "metrics": None,
        }
        with self.database.writing() as connection:
            connection.execute(schema.runs.insert().values(row))
        return self._run(row)

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
        """Note how a running run ended; `data_hash` if it became known on the way."""
        values = {
            "status": status,
            "ended_at": written(now()),
            "outcome": None if outcome is None else plain("outcome", outcome),
            "reason": None if reason is None else plain("reason", reason),
            "model_id": model_id,
            "metrics": optional(metrics, "metrics"),
        }
        if data_hash is not None:
            values["data_hash"] = data_hash
        ours = (schema.runs.c.id == run_id) & (schema.runs.c.status == "running")
        with self.database.writing() as connection:
            if connection.execute(schema.runs.update().where(ours).values(values)).rowcount != 1:
                raise NotRegisteredError(f"There is no running run {run_id!r}: it ended before, or never began.")
        return self.run(run_id)

    def abandon_runs(self, kind: RunKind, reason: str) -> int:
        """Mark runs that still count as running as failed, for whoever knows that none can be; their number."""
        ours = (schema.runs.c.kind == kind) & (schema.runs.c.status == "running")
        values = {"status": "failed", "ended_at": written(now()), "reason": plain("reason", reason)}
        with self.database.writing() as connection:
            return connection.execute(schema.runs.update().where(ours).values(values)).rowcount

    def run(self, run_id: str) -> Run:
        """The run with exactly this id."""
        with self.database.reading() as connection:
            row = connection.execute(schema.runs.select().where(schema.runs.c.id == run_id)).mappings().first()
        if row is None:
            raise NotRegisteredError(f"There is no run {run_id!r}.")
        return self._run(row)

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
        """The newest first, those that fit what is given."""
        wanted = {"kind": kind, "status": status, "outcome": outcome, "data_hash": data_hash, "model_id": model_id}
        query = schema.runs.select().order_by(schema.runs.c.started_at.desc(), schema.runs.c.id.desc()).limit(limit)
        for column, value in wanted.items():
            if value is not None:
                query = query.where(schema.runs.c[column] == value)
        with self.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [self._run(row) for row in rows]

    def _run(self, row: Row) -> Run:
        def build() -> Run:
            values = dict(row) | {column: parsed(row[column]) for column in ("settings", "metrics")}
            for column in ("started_at", "ended_at"):
                values[column] = None if row[column] is None else datetime.fromisoformat(row[column])
            return Run(**values)

        return self._read(f"Run {row['id']}", build)
