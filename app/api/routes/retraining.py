"""Retraining on request, and its jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.presets import PRESETS
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import Job, to_record
from portfolio_sdpo.registry.retrain import RetrainSettings

from ..deps import Limit, ReadAccess, ScopedRoute, TrainAccess
from ..errors import document_problems
from ..schemas import Jobs, JobState, RetrainBody

router = APIRouter(tags=["retraining"], route_class=ScopedRoute, responses=document_problems(422, 503))


@router.post("/retrain", status_code=202, responses=document_problems(400, 409, 413))
def start_retrain(services: TrainAccess, response: Response, body: RetrainBody) -> JobState:
    """Retrain in a separate process; needs a key with the scope `train`. Its progress is at `/jobs/{id}`."""
    job = services.retraining.start(_make_settings(body))
    response.headers["Location"] = f"/api/v1/jobs/{job.id}"
    return _describe(job)


@router.get("/jobs")
def list_jobs(services: ReadAccess, limit: Limit = 100) -> Jobs:
    """Jobs, newest first."""
    return Jobs(jobs=[_describe(job) for job in services.registry.jobs(limit=limit)])


@router.get("/jobs/{job_id}", responses=document_problems(404))
def show_job(services: ReadAccess, job_id: Annotated[str, Path(max_length=80)]) -> JobState:
    """Progress and result of a job."""
    return _describe(services.registry.job(job_id))


def _make_settings(body: RetrainBody) -> RetrainSettings:
    """The settings of the retrain; a snapshot has to be one that exists."""
    if body.snapshot is not None and body.snapshot not in Store().list():
        raise SettingsError("snapshot: not found; `portfolio-sdpo data list` lists the snapshots.")
    preset = PRESETS.get(body.preset or "default")
    if preset is None:
        raise SettingsError(f"preset: must be one of {', '.join(PRESETS)}.")
    if body.algo is not None and body.algo not in preset.agents:
        raise SettingsError(f"algo: must be one of {', '.join(preset.agents)}.")
    return RetrainSettings(
        snapshot=body.snapshot, update=body.update, preset=body.preset, algo=body.algo, seed=body.seed
    )


def _describe(job: Job) -> JobState:
    return JobState(**to_record(job))
