"""The calibrated shield in a simulation: it knows the account, and trades both ways beyond a band."""

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest.shielded import FilteredShieldStrategy, ShieldedStrategy, shield_strategy, shield_track
from portfolio_sdpo.backtest.simulate import AccountHistory, DecisionReplay, simulate
from portfolio_sdpo.backtest.strategies import AllCash, BuyAndHold, EqualWeight
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.calibrated_shield import BAND, forecast_volatility, largest_exposure
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.shield import shield

LIMIT = CvarLimit(bound=-0.03)


class Half:
    """Half in the first two stocks, decided once."""

    name, every = "half", 10_000

    def decide(self, history, held):
        return np.array([0.5, 0.3, 0.2] + [0.0] * (len(held) - 3))


def stormy(sessions=700, stocks=3, seed=0):
    """Calm, then a storm of 40 sessions, then calm again."""
    rng = np.random.default_rng(seed)
    size = np.where((np.arange(sessions) >= 450) & (np.arange(sessions) < 490), 0.05, 0.006)
    moves = size[:, None] * rng.normal(0, 1, (sessions, stocks)) + 0.0002
    days = pd.bdate_range("2015-01-02", periods=sessions)
    return pd.DataFrame(100 * np.exp(np.cumsum(moves, axis=0)), index=days, columns=list("ABC")[:stocks])


def naive_track(frame, first, every, fee, limit):
    """1/N behind the shield at next-close execution: invested shares and wealth, with loops and no product code but the
    rule itself."""
    moves, count = frame.pct_change().to_numpy(), frame.shape[1]
    held, kept, pending, record, wealth, invested = np.zeros(count), 1.0, None, [], [1.0], []

    def allow(mix, now, known):
        returns = moves[1 : now + 1] @ mix
        return float(largest_exposure(np.array(forecast_volatility(returns)), np.array(0.0), limit, np.array(known)))

    for now in range(first, len(frame)):
        if now > first:
            growth = 1.0 + held @ moves[now]
            held = held * (1.0 + moves[now]) / growth
            record.append(kept * growth - 1.0)
            wealth.append(wealth[-1] * kept * growth)
        kept = 1.0
        if pending is not None:
            for _ in range(50):  # what is left pays the fee on what it buys and sells
                kept = 1.0 - fee * np.abs(kept * pending - held).sum()
            held, pending = pending, None
        invested.append(held.sum())
        due = (now - first) % every == 0
        mix = np.full(count, 1 / count) if due or not held.any() else held / held.sum()
        allowed = min(allow(mix, now, record), allow(mix, now - 1, record[:-1]))
        if due or abs(allowed - held.sum()) > 0.1 * held.sum():
            pending = allowed * mix
    return np.array(wealth), np.array(invested[:-1])


@pytest.mark.parametrize("every", [5, 21])
def test_it_is_what_a_loop_over_the_rule_does(every):
    frame = stormy()
    market = Market.from_prices(frame)
    shielded = ShieldedStrategy(EqualWeight(every=every), LIMIT)
    track = simulate(market, shielded, start=market.dates[300], fee=0.0005)
    wealth, invested = naive_track(frame, 300, every, 0.0005, LIMIT)
    np.testing.assert_allclose(track.wealth, wealth, rtol=1e-9)
    np.testing.assert_allclose(track.weights[:, 1:].sum(axis=1), invested, atol=1e-9)
    assert invested[1:].min() < 0.4 * invested.max()
    assert [day["decided"] for day in shielded.days[:-1]] == [day % every == 0 for day in range(399)]


def test_between_decisions_it_sells_and_buys_back_up_to_what_was_asked_for():
    market = Market.from_prices(stormy())
    track = simulate(market, ShieldedStrategy(Half(), LIMIT), start=market.dates[300])
    invested = track.weights[1:, 1:].sum(axis=1)
    storm, after = invested[155:185].min(), invested[-30:].max()
    assert storm < 0.15 < 0.3 < after
    assert invested.max() < 0.5 * (1 + BAND)
    assert (track.weights[:, 3] == 0).all()


def test_a_strategy_that_changes_nothing_gets_back_what_was_sold():
    """`held` returned is no wish for as little as the shield has left of it."""

    class Hold(Half):
        every = 5

        def decide(self, history, held):
            return held if held[1:].any() else super().decide(history, held)

    market = Market.from_prices(stormy())
    one, two = (simulate(market, ShieldedStrategy(each, LIMIT), start=market.dates[300]) for each in (Half(), Hold()))
    np.testing.assert_array_equal(one.weights, two.weights)


def test_within_the_band_nothing_is_traded():
    market = Market.from_prices(stormy())
    traded = {
        band: (simulate(market, ShieldedStrategy(Half(), LIMIT, band=band), start=market.dates[300]).turnover > 0).sum()
        for band in (0.0, 0.1, 0.5)
    }
    assert traded[0.0] > 2 * traded[0.1] and traded[0.1] > traded[0.5] > 0


def test_the_record_of_the_account_counts():
    """Of two accounts with the same weights, the one that has lost may invest less."""
    market = Market.from_prices(stormy(200))
    weights = np.tile([0.4, 0.2, 0.2, 0.2], (10, 1))
    held = np.array([0.4, 0.2, 0.2, 0.2])
    invested = []
    for loss in (0.0, -0.012, -0.03):
        returns = np.r_[np.zeros(9), loss]
        target = ShieldedStrategy(EqualWeight(), LIMIT).review(market, AccountHistory(held, weights, returns))
        invested.append(target[1:].sum())
    assert invested[0] > invested[1] > invested[2] == 0.0


def test_what_is_paid_out_stays_in_cash_until_the_next_decision():
    frame = stormy(400)
    frame.iloc[350:, 0] = np.nan
    market = Market.from_prices(frame)
    track = simulate(market, ShieldedStrategy(Half(), CvarLimit(bound=-0.5)), start=market.dates[300])
    assert track.weights[49, 1] > 0.25 and (track.weights[51:, 1] == 0).all()
    np.testing.assert_allclose(track.weights[51:, 2].mean(), 0.2, atol=0.03)


def test_what_was_removed_is_not_made_up_for_by_the_others():
    frame = stormy(400)
    frame.iloc[:290, 0] = np.nan
    market = Market.from_prices(frame)
    track = simulate(market, ShieldedStrategy(Half(), CvarLimit(bound=-0.5)), start=market.dates[300])
    assert (track.weights[:, 1] == 0).all() and track.weights[2:, 2].max() < 0.2 * (1 + BAND)


def test_a_replay_without_rhythm_is_due_where_it_has_decisions():
    market = Market.from_prices(stormy())
    dates = market.dates[[300, 330, 520]]
    decisions = {date: np.array([0.0, 0.4, 0.3, 0.3]) for date in dates}
    shielded = ShieldedStrategy(DecisionReplay("lineage", decisions), LIMIT)
    track = simulate(market, shielded, start=market.dates[300])
    assert [day["date"] for day in shielded.days if day["decided"]] == list(dates)
    invested = track.weights[:, 1:].sum(axis=1)
    assert invested[155:185].min() < 0.6 * invested[219]  # bought back before the third


def test_a_replay_gives_the_same_track():
    market = Market.from_prices(stormy())
    bare = simulate(market, EqualWeight(every=5), start=market.dates[300])
    replay = DecisionReplay(bare.name, bare.decisions, 5)
    one, two = (
        simulate(market, ShieldedStrategy(each, LIMIT), start=market.dates[300])
        for each in (replay, EqualWeight(every=5))
    )
    np.testing.assert_array_equal(one.wealth, two.wealth)


@pytest.mark.parametrize("execution", ["next-close", "same-close"])
def test_a_replay_of_decisions_that_change_nothing_trades_no_more(execution):
    """Buy and hold behind the shield: what its replay holds is what it holds itself."""
    market = Market.from_prices(stormy())
    common = {"start": market.dates[300], "execution": execution}
    bare = simulate(market, BuyAndHold(), **common)
    assert len(bare.unchanged) == len(bare.decisions) - 1
    replayed = shield_track(bare, 1, LIMIT)
    one, two = (simulate(market, each, **common) for each in (replayed, ShieldedStrategy(BuyAndHold(), LIMIT)))
    np.testing.assert_array_equal(one.weights, two.weights)
    assert [day["decided"] for day in replayed.days[:3]] == [True, False, False]


def test_a_replay_behind_the_filtered_form_asks_for_what_was_held():
    market = Market.from_prices(stormy())
    bare = simulate(market, BuyAndHold(), start=market.dates[300])
    track = simulate(market, shield_track(bare, 1, LIMIT, form="filtered"), start=market.dates[300])
    assert track.weights[155:185, 1:].sum(axis=1).min() < 0.5 < track.weights[-1, 1:].sum()


def test_the_future_changes_nothing():
    frame, rows = stormy(500), []
    other = frame.copy()
    other.iloc[431:] *= np.linspace(2, 0.2, 69)[:, None]
    for each in (frame, other):
        market = Market.from_prices(each)
        shielded = ShieldedStrategy(EqualWeight(every=5), LIMIT)
        track = simulate(market, shielded, start=market.dates[400])
        rows.append((track.weights[:31], [day for day in shielded.days if day["date"] <= market.dates[430]]))
    np.testing.assert_array_equal(rows[0][0], rows[1][0])
    assert rows[0][1] == rows[1][1] and len(rows[0][1]) == 31


def test_all_cash_and_a_first_decision():
    market = Market.from_prices(stormy(100))
    assert simulate(market, ShieldedStrategy(AllCash(), LIMIT)).wealth[-1] == 1.0
    first = ShieldedStrategy(EqualWeight(), LIMIT).decide(market, np.array([1.0, 0, 0, 0]))
    # An account that was all cash has lost nothing; without a record the weights count as held all along.
    assert first[1:].sum() >= shield(np.array([0.0, 1 / 3, 1 / 3, 1 / 3]), market, LIMIT).weights[1:].sum()


def test_days_tell_what_was_found():
    frame = stormy(330)
    frame.iloc[-2:, 0] *= 10
    market = Market.from_prices(frame)
    shielded = ShieldedStrategy(EqualWeight(every=5), LIMIT)
    simulate(market, shielded, start=market.dates[320])
    assert "A moved by" in shielded.days[-2]["findings"] and "A moved by" not in shielded.days[-3]["findings"]
    assert "of 1,260 sessions of history" in shielded.days[0]["findings"]


def test_forms_by_name():
    assert isinstance(shield_strategy(AllCash(), LIMIT), ShieldedStrategy)
    old = shield_strategy(AllCash(), LIMIT, form="filtered", lookback=77, execution="same-close")
    assert isinstance(old, FilteredShieldStrategy) and (old.lookback, old.execution) == (77, "same-close")
    with pytest.raises(SettingsError, match="band"):
        ShieldedStrategy(AllCash(), LIMIT, band=1.0)


class Switch:
    """From mostly the first stock to the second, decided every 20 sessions."""

    name, every = "switch", 20

    def __init__(self):
        self.decisions = 0

    def decide(self, history, held):
        self.decisions += 1
        return np.array([0.7, 0.3, 0.0, 0.0] if self.decisions <= 3 else [0.1, 0.0, 0.9, 0.0])


def test_between_decisions_a_limit_on_turnover_buys_nothing_that_is_to_be_sold():
    """The rest of a change is left to later decisions: meanwhile the stock that is to go never grows."""
    market = Market.from_prices(stormy(440))
    limits = Limits(max_turnover=0.1)
    strategy = ShieldedStrategy(Switch(), CvarLimit(bound=-0.95), limits=limits)
    track = simulate(market, strategy, limits=limits.caps)
    first = track.weights[:, 1]
    begin = int(np.argmax(track.weights[:, 2] > 0.01))
    assert begin > 0 and first[-1] < 0.02 and track.weights[-1, 2] > 0.5
    assert np.diff(first[begin:]).max() < 0.01
