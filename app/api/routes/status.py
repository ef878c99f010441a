"""The state of the service: health, readiness and metrics."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request
from starlette.responses import Response

from portfolio_sdpo import __version__

from ..deps import PublicAccess, ReadAccess
from ..errors import ProblemError, document_problems
from ..schemas import Health, Ready
from ..services.metrics import MEDIA_TYPE

router = APIRouter(tags=["state"])


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
    age, ready = -1, 1
    try:
        services.auditor.check()
        data = services.publisher.get_answer().content.data
        age = -1 if data is None else data.age_sessions
    except ProblemError:
        ready = 0
    gauges = {
        "portfolio_sdpo_ready": ("gauge", "Whether weights can be served.", ready),
        "portfolio_sdpo_data_age_sessions": ("gauge", "Sessions since the last price; -1 if unknown.", age),
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
