"""Jobs: work that the service does in the background, with its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from portfolio_sdpo.errors import NotRegisteredError, SettingsError
from portfolio_sdpo.registry import schema
from portfolio_sdpo.registry.records import (
    Repository,
    Row,
    check_text,
    format_moment,
    from_json,
    make_id,
    to_canonical_json,
    utc_now,
)

JobStatus = Literal["queued", "running", "done", "failed"]
OPEN = ("queued", "running")


@dataclass(frozen=True)
class Job:
    """One piece of work."""

    id: str
    kind: str
    status: JobStatus
    progress: str
    """The current step, in words."""
    fraction: float
    """The share that is done, from 0 to 1."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    result: dict[str, Any] | None
    error: str | None


class Jobs(Repository):
    """The table of jobs: queued, running, then done or failed, and never back."""

    def create_job(self, kind: str) -> Job:
        """Create a queued job."""
        row = {
            "id": make_id(),
            "kind": check_text("kind", kind),
            "status": "queued",
            "progress": "",
            "fraction": 0.0,
            "created_at": format_moment(utc_now()),
            "started_at": None,
            "ended_at": None,
            "result": None,
            "error": None,
        }
        with self.database.writing() as connection:
            connection.execute(schema.jobs.insert().values(row))
        return self._build_job(row)

    def start_job(self, job_id: str) -> Job:
        """Start a queued job; only one process can."""
        return self._move(job_id, ("queued",), {"status": "running", "started_at": format_moment(utc_now())})

    def advance_job(self, job_id: str, progress: str, fraction: float) -> Job:
        """Store the progress of a running job."""
        if not 0.0 <= fraction <= 1.0:
            raise SettingsError(f"fraction: must lie between 0 and 1 (got {fraction}).")
        return self._move(
            job_id, ("running",), {"progress": check_text("progress", progress), "fraction": float(fraction)}
        )

    def finish_job(self, job_id: str, result: Mapping[str, Any]) -> Job:
        """End a running job with its result."""
        values = {
            "status": "done",
            "fraction": 1.0,
            "ended_at": format_moment(utc_now()),
            "result": to_canonical_json(result, "result"),
        }
        return self._move(job_id, ("running",), values)

    def fail_job(self, job_id: str, error: str) -> Job:
        """End a job with an error."""
        values = {"status": "failed", "ended_at": format_moment(utc_now()), "error": check_text("error", error)}
        return self._move(job_id, OPEN, values)

    def abandon_jobs(self, error: str) -> int:
        """Mark all queued and running jobs as failed, when a service starts; returns their number."""
        values = {"status": "failed", "ended_at": format_moment(utc_now()), "error": check_text("error", error)}
        with self.database.writing() as connection:
            query = schema.jobs.update().where(schema.jobs.c.status.in_(OPEN)).values(values)
            return connection.execute(query).rowcount

    def job(self, job_id: str) -> Job:
        """The job with exactly this id."""
        if "\0" in job_id:  # which PostgreSQL does not accept
            raise NotRegisteredError(f"There is no job {job_id!r}.")
        with self.database.reading() as connection:
            row = connection.execute(schema.jobs.select().where(schema.jobs.c.id == job_id)).mappings().first()
        if row is None:
            raise NotRegisteredError(f"There is no job {job_id!r}.")
        return self._build_job(row)

    def jobs(self, *, kind: str | None = None, status: JobStatus | None = None, limit: int | None = None) -> list[Job]:
        """Jobs of this kind and status, newest first."""
        query = schema.jobs.select().order_by(schema.jobs.c.created_at.desc(), schema.jobs.c.id.desc()).limit(limit)
        if kind is not None:
            query = query.where(schema.jobs.c.kind == kind)
        if status is not None:
            query = query.where(schema.jobs.c.status == status)
        with self.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [self._build_job(row) for row in rows]

    def _move(self, job_id: str, origin: tuple[str, ...], values: Mapping[str, Any]) -> Job:
        table = schema.jobs
        ours = (table.c.id == job_id) & table.c.status.in_(origin)
        with self.database.writing() as connection:
            row = connection.execute(table.update().where(ours).values(values).returning(table)).mappings().first()
        if row is None:
            raise NotRegisteredError(f"There is no job {job_id!r} that is {' or '.join(origin)}.")
        return self._build_job(row)

    def _build_job(self, row: Row) -> Job:
        def build() -> Job:
            values = dict(row) | {"result": from_json(row["result"])}
            for column in ("created_at", "started_at", "ended_at"):
                values[column] = None if row[column] is None else datetime.fromisoformat(row[column])
            return Job(**values)

        return self._read(f"Job {row['id']}", build)
