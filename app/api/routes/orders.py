"""Orders: what an account that the caller sends trades so that it holds the champion's weights."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from portfolio_sdpo.serving import Answer, OrderRequest, Orders

from ..deps import ReadAccess, ScopedRoute
from ..errors import ProblemError, document_problems
from ..services.posted_accounts import order_on_body
from ..services.posted_prices import CSV, JSON

router = APIRouter(tags=["orders"], route_class=ScopedRoute)

_HEADERS: dict[str, Any] = {
    "X-Request-ID": {"description": "The id of the request in the audit log.", "schema": {"type": "string"}},
}
_CSV_EXAMPLE = "ticker,from,to,shares,price,money,fee\nAAPL,100.0,80.0,-20.0,270.4,-5408.0,2.7\n"


@router.post(
    "/orders",
    response_model=Orders,
    responses={
        200: {"headers": _HEADERS, "content": {CSV: {"schema": {"type": "string"}, "example": _CSV_EXAMPLE}}},
        **document_problems(413, 415, 422, 503),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": {"$ref": "#/components/schemas/OrderRequest"}}},
        }
    },
)
async def post_orders(request: Request, services: ReadAccess) -> Response:
    """The orders after which the caller's account holds the champion's weights, as JSON or, if accepted, as CSV.

    The champion decides on its latest prices, from what the account holds. The answer is recorded in the audit log.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise ProblemError("unsupported-media-type", f"Send the account as {JSON}, and name it in Content-Type.")
    services.auditor.check()
    content = await request.body()
    work = partial(order_on_body, services.accounts, content, services.settings)
    orders = await services.queue.compute(request, request.scope["caller"], work, services.settings.decision_timeout)
    wanted = _choose(request.headers.get("accept", ""))
    body = orders.to_csv() if wanted == CSV else orders.model_dump_json(by_alias=True)
    answer = Answer.from_body(orders.answer, body.encode())
    await services.auditor.record(answer, request.scope["request_id"])
    return Response(answer.body, 200, {"etag": answer.etag, "cache-control": "private, no-store"}, wanted)


def _choose(accept: str) -> str:
    """CSV where it is named and JSON is not named before it."""
    named = [each.partition(";")[0].strip().lower() for each in accept.split(",")]
    return next((each for each in named if each in (JSON, CSV)), JSON)


SCHEMAS = (OrderRequest,)
"""Only mentioned by name above, so they have to be added to the OpenAPI document."""
