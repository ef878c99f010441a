"""How the service is: alive, ready, counted."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request
from starlette.responses import Response

from portfolio_sdpo import __version__

from .metrics import MEDIA_TYPE
from .problems import ProblemError, responses
from .schemas import Health, Ready
from .service import service_of

router = APIRouter(tags=["state"])


@router.get("/health")
async def health() -> Health:
    """The process answers; whether weights can be had is another question."""
    return Health(status="ok", version=__version__)


@router.get("/ready", responses=responses(503))
async def ready(request: Request) -> Ready:
    """Whether weights can be asked for now; if not, why."""
    service = service_of(request)
    service.auditor.check()
    content = service.live.current().content
    model = content.model
    return Ready(status="ready", as_of=content.as_of, model_id=model and model.id, fail_safe=content.fail_safe)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Counters for Prometheus."""
    service = service_of(request)
    age, ready = -1, 1
    try:
        service.auditor.check()
        data = service.live.current().content.data
        age = -1 if data is None else data.age_sessions
    except ProblemError:
        ready = 0
    gauges = {
        "portfolio_sdpo_ready": ("gauge", "Whether weights can be served.", ready),
        "portfolio_sdpo_data_age_sessions": ("gauge", "Sessions since the last price; -1 if unknown.", age),
        "portfolio_sdpo_answers_made_total": ("counter", "How often the answer was made anew.", service.live.changes),
        "portfolio_sdpo_audit_rows_total": ("counter", "Rows of the audit written.", service.auditor.written),
        "portfolio_sdpo_audit_waiting": ("gauge", "Rows of the audit not written yet.", service.auditor.waiting),
        "process_cpu_seconds_total": ("counter", "Seconds of processor time.", time.process_time()),
    }
    return Response(service.metrics.render(gauges), media_type=MEDIA_TYPE)
