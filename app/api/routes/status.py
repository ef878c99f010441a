"""The state of the service: health, readiness and metrics."""

from __future__ import annotations

import logging
import math
import time

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from starlette.responses import Response

from portfolio_sdpo import __version__
from portfolio_sdpo.errors import RegistryError
from portfolio_sdpo.registry import Registry

from ..deps import PublicAccess, ReadAccess, ScopedRoute
from ..errors import ProblemError, document_problems
from ..schemas import Health, Ready
from ..services.metrics import MEDIA_TYPE

RUNS = 20
"""Retrains that are looked through for the last that succeeded."""
_DISTANCE = "The share of the account that champion and model in shadow hold differently."

router = APIRouter(tags=["state"], route_class=ScopedRoute)
log = logging.getLogger("portfolio_sdpo.api")


@router.get("/health")
async def health(_: PublicAccess) -> Health:
    """Whether the process is alive; `/ready` says whether it can serve weights."""
    return Health(status="ok", version=__version__)


@router.get("/ready", responses=document_problems(503))
async def ready(request: Request, services: PublicAccess) -> Ready:
    """Whether weights can be served now; which, or why not, is told to callers with a key."""
    known = request.scope["known"]
    try:
        services.auditor.check()
        content = services.publisher.get_answer().content
    except ProblemError as error:
        if known:
            raise
        detail = "No weights can be served now: callers with an API key are told why."
        raise ProblemError(error.kind, detail, headers=error.headers) from None
    if not known:
        return Ready(status="ready", as_of=None, model_id=None, fail_safe=None)
    model = content.model
    return Ready(status="ready", as_of=content.as_of, model_id=model and model.id, fail_safe=content.fail_safe)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(services: ReadAccess) -> Response:
    """Counters for Prometheus."""
    age, ready, factor, all_cash, distance = -1, 1, math.nan, 0, None
    try:
        services.auditor.check()
        answer = services.publisher.get_answer()
        data = answer.content.data
        age = -1 if data is None else data.age_sessions
        factor = math.nan if answer.content.shield_factor is None else answer.content.shield_factor
        all_cash = int(answer.content.fail_safe is not None)
        distance = services.shadow.measure_distance(answer)
    except ProblemError:
        ready = 0
    retrain = await run_sync(_read_last_retrain, services.registry)
    gauges = {
        "portfolio_sdpo_ready": ("gauge", "Whether weights can be served.", ready),
        "portfolio_sdpo_data_age_sessions": ("gauge", "Sessions since the last price; -1 if unknown.", age),
        "portfolio_sdpo_all_cash": ("gauge", "Whether all cash is served instead of a decision.", all_cash),
        "portfolio_sdpo_shield_factor": ("gauge", "The share of risky weights that the shield lets through.", factor),
        **retrain,
        **({} if distance is None else {"portfolio_sdpo_shadow_distance": ("gauge", _DISTANCE, distance)}),
        "portfolio_sdpo_answers_made_total": (
            "counter",
            "How often the answer was replaced.",
            services.publisher.changes,
        ),
        "portfolio_sdpo_audit_rows_total": ("counter", "Audit rows written.", services.auditor.written),
        "portfolio_sdpo_audit_waiting": ("gauge", "Audit rows not written yet.", services.auditor.waiting),
        "portfolio_sdpo_decisions_total": ("counter", "Decisions on posted prices.", services.queue.computed),
        "portfolio_sdpo_body_bytes": ("gauge", "Bytes of request bodies in memory.", services.bodies.used),
        "process_cpu_seconds_total": ("counter", "Seconds of processor time.", time.process_time()),
    }
    return Response(services.metrics.render(gauges), media_type=MEDIA_TYPE)


def _read_last_retrain(registry: Registry) -> dict[str, tuple[str, str, float]]:
    """How the last retrain ended, and when one last succeeded; nothing where the registry does not tell."""
    try:
        ended = [run for run in registry.runs(kind="retrain", limit=RUNS) if run.ended_at is not None]
    except RegistryError as error:
        log.error("%s", error)
        return {}
    done = [run.ended_at.timestamp() for run in ended if run.status == "done" and run.ended_at is not None]
    failed = bool(ended) and ended[0].status == "failed"
    return {
        "portfolio_sdpo_retrain_failed": ("gauge", "Whether the last retrain failed.", int(failed)),
        "portfolio_sdpo_retrain_timestamp_seconds": (
            "gauge",
            "When a retrain last succeeded, promoted or not; 0 if none has.",
            done[0] if done else 0.0,
        ),
    }
