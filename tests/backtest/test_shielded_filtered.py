"""The filtered shield in a simulation: it looks every session and only sells between decisions."""

from functools import partial

import numpy as np
import pytest

from portfolio_sdpo.backtest import CvarLimit, simulate
from portfolio_sdpo.backtest.shielded import FilteredShieldStrategy
from portfolio_sdpo.backtest.simulate import DecisionReplay
from portfolio_sdpo.backtest.strategies import AllCash, EqualWeight
from portfolio_sdpo.errors import BacktestError, SettingsError
from portfolio_sdpo.portfolio.filtered_shield import Caution
from portfolio_sdpo.portfolio.market import Market

TIGHT = CvarLimit(bound=-0.01, horizon=5)
WIDE = CvarLimit(bound=-0.9, horizon=5)


def walk(market, strategy, execution="same-close", **options):
    return simulate(market, strategy, start=market.dates[40], execution=execution, **options)


AtSameClose = partial(FilteredShieldStrategy, execution="same-close")


@pytest.fixture(scope="module")
def market(prices):
    return Market.from_prices(prices(120, gaps=False))


def test_between_decisions_it_only_sells(market):
    shielded = AtSameClose(EqualWeight(every=5), TIGHT)
    track = walk(market, shielded)
    assert shielded.every == 1 and shielded.name == "equal-weight + shield"
    days = shielded.days[: len(track.weights)]
    assert [day["decided"] for day in days] == [number % 5 == 0 for number in range(len(days))]
    for number, day in enumerate(days):
        if not day["decided"]:
            np.testing.assert_allclose(track.weights[number, 1:], day["kappa"] * track.held[number, 1:], atol=1e-15)
    assert any(day["kappa"] < 1.0 for day in days if not day["decided"])
    assert all(day["after"] >= -0.01 for day in days)


def test_with_nothing_to_do_it_trades_nothing(market):
    bare, shielded = (walk(market, each) for each in (EqualWeight(every=5), AtSameClose(EqualWeight(every=5), WIDE)))
    np.testing.assert_allclose(bare.turnover, shielded.turnover, atol=1e-15)
    np.testing.assert_allclose(bare.wealth, shielded.wealth, rtol=1e-12)


def test_it_may_look_only_when_the_strategy_decides(market):
    shielded = AtSameClose(EqualWeight(every=5), TIGHT, every=8)
    assert shielded.every == 5
    track = walk(market, shielded)
    assert all(day["decided"] for day in shielded.days[:-1])
    assert (track.turnover.reshape(-1)[np.arange(len(track.turnover)) % 5 != 0] == 0).all()


def test_looks_and_decisions_keep_their_own_time(market):
    track = walk(market, EqualWeight(every=5))
    shielded = AtSameClose(DecisionReplay(track.name, track.decisions, every=5), TIGHT, every=2)
    track = walk(market, shielded)
    looked = {day["date"]: day["decided"] for day in shielded.days}
    numbers = [number for number, date in enumerate(track.dates[:-1]) if date in looked]
    assert numbers[:8] == [0, 2, 4, 5, 7, 9, 10, 12]
    assert all(looked[track.dates[number]] == (number % 5 == 0) for number in numbers)
    unseen = sorted(set(range(len(track.turnover))) - set(numbers))
    assert np.abs(track.turnover[unseen]).max() < 1e-12


def test_looking_every_session_keeps_the_limit_that_weekly_looks_break(prices):
    """Forty calm sessions, then a crash that takes a fortnight."""
    frame = prices(150, gaps=False)
    fall = np.r_[np.ones(121), np.cumprod(np.tile([0.96, 0.97, 1.01, 0.95, 0.97], 6))[:29]]
    market = Market.from_prices(frame.mul(fall, axis=0))
    limit = CvarLimit(bound=-0.05, horizon=5)
    lost = {
        every: walk(market, AtSameClose(EqualWeight(every=21), limit, every=every, caution=Caution())).wealth
        for every in (1, 21)
    }
    assert lost[1][-1] > lost[21][-1] + 0.05


def test_decisions_made_before_are_shown_to_the_shield(market):
    track = walk(market, EqualWeight(every=5))
    replayed = AtSameClose(DecisionReplay(track.name, track.decisions, every=5), TIGHT)
    again, direct = walk(market, replayed), walk(market, AtSameClose(EqualWeight(every=5), TIGHT))
    np.testing.assert_allclose(again.wealth, direct.wealth)
    assert len(track.wealth) == len(again.wealth)
    # What was decided out of turn, at the last close, is shielded as well.
    decided = {day["date"] for day in replayed.days if day["decided"]}
    assert decided == set(track.decisions)
    with pytest.raises(BacktestError, match="made no decision"):
        simulate(
            market,
            AtSameClose(DecisionReplay(track.name, track.decisions, every=5), TIGHT),
            start=market.dates[41],
            execution="same-close",
        )


def test_the_future_changes_nothing(prices):
    frame = prices(120)
    changed = frame.copy()
    changed.iloc[81:] *= np.linspace(2, 0.2, 39)[:, None]
    rows = []
    for each in (frame, changed):
        market = Market.from_prices(each)
        shielded = AtSameClose(EqualWeight(every=5), TIGHT)
        track = walk(market, shielded)
        rows.append((track.weights[:41], [day for day in shielded.days if day["date"] <= market.dates[80]]))
    np.testing.assert_array_equal(rows[0][0], rows[1][0])
    assert rows[0][1] == rows[1][1] and len(rows[0][1]) == 41


def test_a_second_walk_starts_anew(market):
    shielded = AtSameClose(EqualWeight(every=5), TIGHT)
    np.testing.assert_array_equal(walk(market, shielded).wealth, walk(market, shielded).wealth)


def test_bad_settings_are_refused():
    with pytest.raises(SettingsError, match="every"):
        AtSameClose(AllCash(), TIGHT, every=0)
    with pytest.raises(SettingsError, match="margin"):
        Caution(margin=0.9)
