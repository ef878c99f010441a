"""Last prices that cannot be trusted yet, with known answers."""

import re
from datetime import date

import pandas as pd
import pytest

from portfolio_sdpo.portfolio.last_prices import find_suspicion
from portfolio_sdpo.portfolio.market import Market

DAYS = pd.bdate_range("2026-11-02", periods=10)  # up to Friday, the 13th
STEADY = [100.0 + day for day in range(10)]


def market(last=(), days=DAYS):
    values = [*STEADY[: len(days) - len(last)], *last]
    return Market.from_prices(pd.DataFrame({"A": values, "B": STEADY[: len(days)]}, index=days))


@pytest.mark.parametrize("today", [date(2026, 11, 12), date(2026, 11, 13), date(2030, 1, 1)])
def test_ordinary_prices_up_to_tomorrow_are_trusted(today):
    assert find_suspicion(market(), today) is None


def test_a_date_after_tomorrow():
    found = find_suspicion(market(), date(2026, 11, 10))
    assert found.future and found.trusted == 8  # up to the 11th, which may have begun elsewhere
    assert "after tomorrow by the clock of this machine (2026-11-10 UTC)" in found.sentence
    assert find_suspicion(market(), date(2020, 1, 1)).trusted == 0


@pytest.mark.parametrize(
    ("last", "trusted", "moved"),
    [
        ([10800.0], 9, r"A moved by \+9,900.0\xa0%"),
        ([50.0], 9, r"A moved by −53.7\xa0%"),
        ([10800.0, 10801.0], None, None),  # no longer the last move
        ([10800.0, 109.0], 8, r"A moved by −99.0\xa0%"),  # neither the move nor its reversal
    ],
)
def test_a_last_move_that_looks_like_an_error(last, trusted, moved):
    found = find_suspicion(market(last), date(2026, 11, 14))
    if trusted is None:
        assert found is None
        return
    assert found.trusted == trusted and not found.future
    assert re.match(moved, found.sentence)


def test_a_future_row_hides_no_move_before_it():
    days = [*DAYS[:-1], pd.Timestamp("2031-01-02")]
    found = find_suspicion(market([10900.0, 109.0], pd.DatetimeIndex(days)), date(2026, 11, 13))
    assert found.future and found.trusted == 8
