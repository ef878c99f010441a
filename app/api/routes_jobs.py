"""Retraining on request, and the jobs that it makes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.presets import PRESETS
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import Job, to_record
from portfolio_sdpo.registry.retrain import RetrainSettings

from .problems import responses
from .schemas import Jobs, JobState, RetrainBody
from .service import service_of

router = APIRouter(tags=["retraining"], responses=responses(422, 503))


@router.post("/retrain", status_code=202, responses=responses(400, 409, 413))
def start_retrain(request: Request, response: Response, body: RetrainBody) -> JobState:
    """Retrain in a process of its own; needs a key with the scope `train`. How far it is: `/jobs/{id}`."""
    service = service_of(request)
    job = service.retraining.start(_settings(body))
    response.headers["Location"] = f"/api/v1/jobs/{job.id}"
    return _state(job)


@router.get("/jobs")
def list_jobs(request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Jobs:
    """Jobs, the newest first."""
    return Jobs(jobs=[_state(job) for job in service_of(request).registry.jobs(limit=limit)])


@router.get("/jobs/{job_id}", responses=responses(404))
def show_job(request: Request, job_id: Annotated[str, Path(max_length=80)]) -> JobState:
    """How far a job is, and what came of it."""
    return _state(service_of(request).registry.job(job_id))


def _settings(body: RetrainBody) -> RetrainSettings:
    """What to retrain on; a snapshot is only taken from those that there are."""
    if body.snapshot is not None and body.snapshot not in Store().list():
        raise SettingsError("snapshot: there is none of that name; `portfolio-sdpo data list` names them.")
    preset = PRESETS.get(body.preset or "default")
    if preset is None:
        raise SettingsError(f"preset: there are {', '.join(PRESETS)}.")
    if body.algo is not None and body.algo not in preset.agents:
        raise SettingsError(f"algo: there are {', '.join(preset.agents)}.")
    return RetrainSettings(
        snapshot=body.snapshot, update=body.update, preset=body.preset, algo=body.algo, seed=body.seed
    )


def _state(job: Job) -> JobState:
    return JobState(**to_record(job))
