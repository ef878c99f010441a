"""Weights: the champion's on the latest prices, and on the caller's."""

from __future__ import annotations

from functools import partial
from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from starlette.responses import Response

from .deciding import Answer
from .prices import CSV, JSON, decide_on, parse
from .problems import ProblemError, responses
from .schemas import PricesBody, Weights
from .service import service_of

router = APIRouter(tags=["weights"])

_ETAG: dict[str, Any] = {
    "ETag": {"description": "sha256 of the body, in quotes.", "schema": {"type": "string"}},
    "X-Request-ID": {"description": "Under which the audit has it.", "schema": {"type": "string"}},
}
_CSV_EXAMPLE = "date,AAPL,MSFT\n2026-11-12,269.1,505.2\n2026-11-13,270.4,507.9\n"


@router.get(
    "/weights",
    response_model=Weights,
    responses={200: {"headers": _ETAG}, 304: {"description": "As `If-None-Match` has it."}, **responses(503)},
)
async def get_weights(request: Request) -> Response:
    """Today's weights of the champion on the latest prices. Every answer is in the audit, also a 304."""
    service = service_of(request)
    answer = service.live.current()
    await service.auditor.note(answer, request.scope["request_id"])
    headers = {"etag": answer.etag, "cache-control": "private, no-cache"}
    known = request.headers.get("if-none-match")
    if known is not None and _matches(known, answer.etag):
        return Response(status_code=304, headers=headers)
    return _respond(answer)


@router.post(
    "/weights",
    response_model=Weights,
    responses={200: {"headers": _ETAG}, **responses(409, 413, 415, 422, 503)},
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
async def post_weights(request: Request) -> Response:
    """The champion's weights on the caller's prices: JSON, or CSV with a header `date,AAPL,...`.

    The prices must not end before the model was trained; where they end later, it trains on first.
    """
    service = service_of(request)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (JSON, CSV):
        raise ProblemError("unsupported-media-type", f"Prices come as {JSON} or {CSV}: say which in Content-Type.")
    service.auditor.check()
    content = await request.body()
    async with service.work:
        answer = await run_sync(partial(_decide, service.registry, content, media_type, service.settings))
    await service.auditor.note(answer, request.scope["request_id"])
    return _respond(answer)


def _decide(registry: Any, content: bytes, media_type: str, settings: Any) -> Answer:
    return decide_on(registry, parse(content, media_type), settings)


def _respond(answer: Answer) -> Response:
    headers = {"etag": answer.etag, "cache-control": "private, no-cache"}
    return Response(answer.body, 200, headers, JSON)


def _matches(header: str, etag: str) -> bool:
    """As RFC 9110 compares If-None-Match: weakly, any of a list, or *."""
    return any(each.strip().removeprefix("W/") in (etag, "*") for each in header.split(","))


SCHEMAS = (PricesBody,)
"""Used by hand above, so that OpenAPI has to be told of them."""
