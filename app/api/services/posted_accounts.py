"""Orders for accounts that are sent with a request."""

from __future__ import annotations

import threading

from pydantic import ValidationError

from portfolio_sdpo.errors import OrderError
from portfolio_sdpo.serving import AnswerSettings, ChampionDecisions, OrderRequest, Orders, Refusal, order_champion

from ..errors import ProblemError, to_validation_problem
from .posted_prices import make_check


def order_on_body(
    decisions: ChampionDecisions, content: bytes, settings: AnswerSettings, stop: threading.Event
) -> Orders:
    """The orders of the account in a JSON body; ends with an `Abandonment` soon after `stop` is set."""
    check = make_check(stop)
    check()
    try:
        body = OrderRequest.model_validate_json(content)
    except ValidationError as error:
        raise to_validation_problem(
            [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False, include_input=False)]
        ) from None
    try:
        found = order_champion(decisions, decisions.read_state(), settings, body, check)
    except OrderError as error:
        raise ProblemError("bad-account", str(error)) from None
    if isinstance(found, Refusal):
        raise ProblemError(found.kind, found.detail, headers={"Retry-After": "5"})
    return found
