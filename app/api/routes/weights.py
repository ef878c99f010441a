"""Weights: of the champion on the latest prices, and on prices that the caller sends."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from portfolio_sdpo.serving import Answer, Weights

from ..deps import ReadAccess, ScopedRoute
from ..errors import ProblemError, document_problems
from ..schemas import PricesBody
from ..services.posted_prices import CSV, JSON

router = APIRouter(tags=["weights"], route_class=ScopedRoute)

_HEADERS: dict[str, Any] = {
    "ETag": {"description": "sha256 of the body, in quotes.", "schema": {"type": "string"}},
    "X-Request-ID": {"description": "The id of the request in the audit log.", "schema": {"type": "string"}},
}
_CSV_EXAMPLE = "date,AAPL,MSFT\n2026-11-12,269.1,505.2\n2026-11-13,270.4,507.9\n"


@router.get(
    "/weights",
    response_model=Weights,
    responses={
        200: {"headers": _HEADERS},
        304: {"description": "The answer still is the one in `If-None-Match`."},
        **document_problems(503),
    },
)
async def get_weights(request: Request, services: ReadAccess) -> Response:
    """Today's weights of the champion on the latest prices. Every answer is recorded in the audit log, also a 304."""
    answer = services.publisher.get_answer()
    await services.auditor.record(answer, request.scope["request_id"])
    headers = {"etag": answer.etag, "cache-control": "private, no-cache"}
    known = request.headers.get("if-none-match")
    if known is not None and _matches(known, answer.etag):
        return Response(status_code=304, headers=headers)
    return _respond(answer)


@router.get("/shadow", response_model=Weights, responses=document_problems(404, 503))
async def get_shadow(services: ReadAccess) -> Response:
    """The weights of the challenger in shadow, which are for comparison only.

    Each of its answers was recorded in the audit log when it was made.
    """
    return _respond(services.shadow.get_answer())


@router.post(
    "/weights",
    response_model=Weights,
    responses={200: {"headers": _HEADERS}, **document_problems(409, 413, 415, 422, 503)},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": {"$ref": "#/components/schemas/PricesBody"}},
                CSV: {"schema": {"type": "string"}, "example": _CSV_EXAMPLE},
            },
        }
    },
)
async def post_weights(request: Request, services: ReadAccess) -> Response:
    """The champion's weights on the caller's prices: JSON, or CSV with a header `date,AAPL,...`.

    The prices must not end before the model's last training day; where they end later, the model trains on them first.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (JSON, CSV):
        raise ProblemError("unsupported-media-type", f"Send prices as {JSON} or {CSV}, and name it in Content-Type.")
    services.auditor.check()
    content = await request.body()
    work = partial(services.posted.answer, content, media_type)
    answer = await services.queue.compute(request, request.scope["caller"], work, services.settings.decision_timeout)
    await services.auditor.record(answer, request.scope["request_id"])
    return _respond(answer)


def _respond(answer: Answer) -> Response:
    headers = {"etag": answer.etag, "cache-control": "private, no-cache"}
    return Response(answer.body, 200, headers, JSON)


def _matches(header: str, etag: str) -> bool:
    """As RFC 9110 compares If-None-Match: weakly, any of a list, or *."""
    return any(each.strip().removeprefix("W/") in (etag, "*") for each in header.split(","))


SCHEMAS = (PricesBody,)
"""Only mentioned by name above, so they have to be added to the OpenAPI document."""
