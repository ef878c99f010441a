"""What the served orders say about the prices that they are counted at."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from portfolio_sdpo.portfolio.account import Holding
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.serving.answer import AnswerSettings
from portfolio_sdpo.serving.champion import ChampionDecisions
from portfolio_sdpo.serving.orders import OrderRequest, Orders, order_champion


@pytest.mark.parametrize(("day", "old"), [(15, False), (20, True)])
def test_all_cash_at_old_closes_says_so(registry: Registry, promote: Callable[[str], str], day: int, old: bool):
    """The last close is that of 14 October; a service that fails to cash sells at it on the 20th, too."""
    promote("sample")
    decisions = ChampionDecisions(registry, lambda: datetime(2021, 10, day, 8, tzinfo=UTC))
    request = OrderRequest(account=10_000, holdings=[Holding(ticker="AAPL", shares=10)])
    found = order_champion(decisions, decisions.read_state(), AnswerSettings(fail_to_cash=True), request)
    assert isinstance(found, Orders)
    sentence = "These orders are counted at the closes of 2021-10-14, which are not today's: update the prices."
    assert (sentence in found.remarks) == old
    if old:
        assert [(each.ticker, each.after) for each in found.orders] == [("AAPL", 0.0)]
