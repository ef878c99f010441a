"""Price paths: replayed windows, the stationary bootstrap, and nothing from after day t."""

import numpy as np
import pandas as pd
import pytest
from arch.bootstrap import StationaryBootstrap
from hypothesis import example, given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import HistoryError, SettingsError
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.return_measures import Volatility
from portfolio_sdpo.portfolio.scenarios import (
    Paths,
    Replay,
    Resample,
    block_length,
    bootstrap_paths,
    scale_to_current_volatility,
    scenarios_of,
    stationary_rows,
    window_paths,
)


def altered(prices, t, seed=1):
    """The same prices up to t, others after it."""
    changed = prices.copy()
    changed.iloc[t + 1 :] = np.random.default_rng(seed).uniform(1, 1000, changed.iloc[t + 1 :].shape)
    return changed


def same(one, other):
    for name in ("gross_returns", "listed", "days"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_a_window_is_the_last_sessions_as_they_were(make_prices):
    prices = make_prices(0)
    prices["S0"] = 100.0 + np.arange(40)
    market = Market.from_prices(prices)
    paths = window_paths(market, t=30, window=15)
    assert (len(paths), paths.length, paths.assets) == (1, 15, 4)
    np.testing.assert_array_equal(paths.days[0], np.arange(15, 31))  # decided at 15 … 29, earned on 16 … 30
    np.testing.assert_array_equal(paths.gross_returns[0], market.gross_returns[15:31])
    np.testing.assert_array_equal(paths.listed[0], market.listed[15:31])
    assert window_paths(market, t=15, window=15).days[0, 0] == 0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(20, 38))
@example(1000, 24)  # arch divides by zero for the block length
def test_paths_know_nothing_after_t(make_prices, seed, t):
    prices = make_prices(seed, stocks=4)
    prices["S0"] = 100 + np.arange(40.0) ** 2  # one stock is always there
    whole, changed, cut = (Market.from_prices(p) for p in (prices, altered(prices, t), prices.iloc[: t + 1]))
    for make in (
        lambda market: window_paths(market, t, 10),
        lambda market: bootstrap_paths(market, t, 10, count=5, block=4, seed=seed),
        lambda market: bootstrap_paths(market, t, 3, count=5, seed=seed, history=15),
    ):
        same(make(whole), make(changed))
        same(make(whole), make(cut))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(20, 39), st.none() | st.integers(10, 60), st.floats(0, 1))
def test_every_row_is_a_true_day_of_all_stocks_that_take_part(make_prices, seed, t, history, coverage):
    prices = make_prices(seed, stocks=5)
    prices["S4"] = 100 + np.arange(40.0)
    market = Market.from_prices(prices)
    paths = bootstrap_paths(market, t, 10, count=20, block=5, seed=seed, history=history, coverage=coverage)
    taking_part = paths.listed[0, 0]
    assert paths.listed.shape == (20, 11, 6) and (paths.listed == taking_part).all()
    assert taking_part[[0, 5]].all() and not (taking_part & ~market.listed[t]).any()
    assert paths.days.min() >= max(1, 0 if history is None else t - history + 1) and paths.days.max() <= t
    np.testing.assert_array_equal(
        paths.gross_returns[..., taking_part], market.gross_returns[paths.days][..., taking_part]
    )  # all assets of a day together
    assert (paths.gross_returns[..., ~taking_part] == 1).all()
    both = market.listed[paths.days] & market.listed[paths.days - 1]
    assert both[..., taking_part].all()


def test_who_takes_part_by_hand(make_prices):
    """40 sessions, t = 39: OLD has 39 gross_returns, HALF 20, YOUNG 12, NEW 5, GONE none."""
    prices = make_prices(0, stocks=5, gaps=False).set_axis(["OLD", "HALF", "YOUNG", "NEW", "GONE"], axis=1)
    for ticker, first in {"HALF": 19, "YOUNG": 27, "NEW": 34}.items():
        prices.iloc[:first, prices.columns.get_loc(ticker)] = np.nan
    prices.iloc[38:, 4] = np.nan
    market = Market.from_prices(prices)

    def taking_part(**options):
        paths = bootstrap_paths(market, 39, 10, count=500, block=3, **options)
        names = {market.assets[i] for i in np.flatnonzero(paths.listed[0, 0])} - {"CASH"}
        return names, paths.days.min(), paths.days.max()

    assert taking_part() == ({"OLD", "HALF"}, 20, 39)
    assert taking_part(coverage=1.0) == ({"OLD"}, 1, 39)
    assert taking_part(coverage=0.0) == ({"OLD", "HALF", "YOUNG"}, 28, 39)  # NEW cannot fill a window
    assert taking_part(history=20) == ({"OLD", "HALF", "YOUNG"}, 28, 39)
    assert taking_part(history=30) == ({"OLD", "HALF"}, 20, 39)


def test_the_same_seed_gives_the_same_paths(make_prices):
    market = Market.from_prices(make_prices(3, gaps=False))
    first = bootstrap_paths(market, 35, 10, count=8, block=4, seed=7)
    same(first, bootstrap_paths(market, 35, 10, count=8, block=4, seed=7))
    assert (first.days != bootstrap_paths(market, 35, 10, count=8, block=4, seed=8).days).any()
    assert len(np.unique(first.days, axis=0)) == 8


@pytest.mark.parametrize("block", [1.0, 2.5, 10.0])
def test_rows_are_those_of_arch(block):
    """The same random numbers give arch's own indices."""
    days, count = 50, 20
    theirs = StationaryBootstrap(block, np.arange(days), seed=np.random.default_rng(3))
    rng = np.random.default_rng(3)
    for (data,), _ in theirs.bootstrap(count):
        starts, uniform = rng.integers(days, size=(1, days)), rng.random((1, days))
        np.testing.assert_array_equal(stationary_rows(starts, uniform, block, days)[0], data)


def test_block_lengths_are_geometric_and_days_uniform():
    rng = np.random.default_rng(0)
    days, block, shape = 200, 8.0, (200, 500)
    rows = stationary_rows(rng.integers(days, size=shape), rng.random(shape), block, days)
    goes_on = (rows[:, 1:] - rows[:, :-1]) % days == 1
    # A new block may happen to start on the next day.
    chance = 1 - 1 / block + 1 / (block * days)
    assert goes_on.mean() == pytest.approx(chance, abs=4 * np.sqrt(chance * (1 - chance) / goes_on.size))
    # Without memory: the chance to go on is the same whatever the age of the block.
    for age in range(1, 6):
        before = np.lib.stride_tricks.sliding_window_view(goes_on, age + 1, axis=1)
        aged = before[..., :-1].all(-1) & ~np.pad(goes_on, ((0, 0), (1, 0)))[:, : before.shape[1]]
        assert before[..., -1][aged].mean() == pytest.approx(chance, abs=4 * np.sqrt(0.11 / aged.sum()))
    counts = np.bincount(rows.ravel(), minlength=days)
    assert counts.min() > 0.7 * counts.mean() and counts.max() < 1.3 * counts.mean()


def test_bootstrapped_growth_has_the_law_of_arch_s(make_prices):
    market = Market.from_prices(make_prices(5, stocks=2, sessions=120, gaps=False))
    ours = np.log(bootstrap_paths(market, 119, 118, count=2000, block=6, seed=0).gross_returns[..., 1]).sum(1)
    logs = np.log(market.gross_returns[1:, 1])
    theirs = StationaryBootstrap(6, logs, seed=np.random.default_rng(1)).apply(np.sum, 2000)[:, 0]
    assert ours.mean() == pytest.approx(theirs.mean(), abs=4 * theirs.std() * np.sqrt(2 / 2000))
    assert ours.std() == pytest.approx(theirs.std(), rel=0.1)


def test_block_length_sees_clustering_and_never_fails():
    rng = np.random.default_rng(0)
    calm_and_storm = np.repeat(rng.choice([0.001, 0.05], 50), 20)[:, None]
    clustered = np.exp(calm_and_storm * rng.standard_normal((1000, 3)))
    shuffled = np.exp(rng.permutation(calm_and_storm) * rng.standard_normal((1000, 3)))
    assert block_length(clustered) > 3 * block_length(shuffled) >= 3
    assert block_length(np.ones((100, 2))) == 1.0
    assert block_length(clustered[:3]) == 1.0


def test_paths_are_chosen_evenly():
    replay = Replay.of_paths(Paths(np.ones((5, 3, 2)), np.ones((5, 3, 2), dtype=bool)))
    rng = np.random.default_rng(0)
    assert np.bincount(replay.choose(rng, 10), minlength=5).tolist() == [2] * 5
    counts = np.bincount(replay.choose(rng, 13), minlength=5)
    assert sorted(counts) == [2, 2, 3, 3, 3]
    assert len(set(replay.choose(rng, 3).tolist())) == 3
    singles = np.bincount([replay.choose(rng, 1)[0] for _ in range(1000)], minlength=5)
    assert singles.min() > 150
    assert (replay.choose(rng, 50)[:5] != np.arange(5)).any()


def test_windows_of_the_market_share_its_memory(make_prices):
    market = Market.from_prices(make_prices(0))
    scenarios = scenarios_of(market, "window", 15, "2018-12-05", "2019-01-11")
    assert np.shares_memory(scenarios.gross_returns, market.gross_returns)
    assert scenarios.paths == market.index_of("2019-01-11") - market.index_of("2018-12-05") - 15 + 1
    assert scenarios_of(market, "window", None).paths == 1


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda m: window_paths(m, 9, 10), HistoryError, "needs 11 closes and there are 10"),
        (lambda m: window_paths(m, 20, 0), SettingsError, "window: an episode needs at least one decision"),
        (lambda m: window_paths(m, 99, 10), HistoryError, "session 99 does not exist"),
        (lambda m: bootstrap_paths(m, 9, 10, 5), HistoryError, "needs as many days of history and there are 9"),
        (lambda m: bootstrap_paths(m, 20, 10, 5, history=5), HistoryError, "shorter than the window"),
        (lambda m: bootstrap_paths(m, 20, 10, 0), SettingsError, "count"),
        (lambda m: bootstrap_paths(m, 20, 10, 5, block=0.5), SettingsError, "block: a mean length must be at least 1"),
        (lambda m: bootstrap_paths(m, 20, 10, 5, coverage=2), SettingsError, "coverage"),
        (lambda m: scenarios_of(m, "window", 40), HistoryError, "needs 41 sessions and there are 40"),
        (lambda m: scenarios_of(m, "windows", 10), SettingsError, "must be 'window' or 'bootstrap'"),
        (lambda m: scenarios_of(m, "bootstrap", None), SettingsError, "window: bootstrapped episodes need a length"),
        (lambda m: scenarios_of(m, "window", 5, "2019-01-20", "2019-01-02"), SettingsError, "after end"),
        (lambda m: scenarios_of(m, "window", None, "2019-01-02", "2019-01-02"), HistoryError, "needs 2 sessions"),
    ],
)
def test_what_cannot_be_replayed(make_prices, call, error, says):
    with pytest.raises(error, match=says):
        call(Market.from_prices(make_prices(0, gaps=False)))


def test_markets_without_a_listed_stock(make_prices):
    prices = make_prices(0, gaps=False)
    prices.iloc[20:] = np.nan
    market = Market.from_prices(prices)
    for call in (window_paths, lambda *known: bootstrap_paths(*known, count=3, block=2)):
        with pytest.raises(HistoryError, match="no stock is listed on"):
            call(market, 30, 15)
    with pytest.raises(HistoryError, match="no stock is listed from"):
        scenarios_of(market, "window", 5, market.dates[25])
    back = prices.copy()
    back.iloc[35:] = 1.0
    with pytest.raises(HistoryError, match="has been so for 15 sessions"):
        bootstrap_paths(Market.from_prices(back), 39, 15, count=3, coverage=0)


@pytest.mark.parametrize(
    "gross_returns, listed, says",
    [
        (np.ones((2, 3)), np.ones((2, 3)), "must be"),
        (np.ones((1, 1, 3)), np.ones((1, 1, 3)), "at least one"),
        (np.full((1, 2, 2), np.nan), np.ones((1, 2, 2)), "finite"),
        (np.full((1, 2, 2), -1.0), np.ones((1, 2, 2)), "not negative"),
        (np.ones((1, 2, 2)), np.zeros((1, 2, 2)), "cash is always listed"),
        (np.full((1, 2, 2), 2.0), np.array([[[1, 1], [1, 0]]]), "has the gross return 1"),
    ],
)
def test_paths_that_make_no_sense(gross_returns, listed, says):
    with pytest.raises(SettingsError, match=says):
        Paths(gross_returns, listed.astype(bool))


def stormy(sessions=300, storm=40, seed=0):
    """Three stocks, calm and then four times as wild."""
    rng = np.random.default_rng(seed)
    moves = (
        rng.normal([0.001, 0.0, -0.0005], 0.005, (sessions, 3))
        * np.where(np.arange(sessions) < 300 - storm, 1, 4)[:, None]
    )
    return pd.DataFrame(100 * np.exp(moves.cumsum(axis=0)), pd.bdate_range("2019-01-02", periods=sessions), list("ABC"))


def test_filtered_days_are_scale_to_current_volatility():
    market = Market.from_prices(stormy())
    plain, filtered = (Resample.of(market, 299, 15, 1.0, filtered=how) for how in (None, Volatility()))
    calm = slice(0, 250)
    was, now = (np.log(source.gross_returns[calm, 1:]).std(axis=0) for source in (plain, filtered))
    assert (now > 2.5 * was).all() and (now < 6 * was).all()
    for source in (plain, filtered):  # storms change how far prices move, not where to
        np.testing.assert_allclose(
            np.log(source.gross_returns).mean(axis=0), np.log(plain.gross_returns).mean(axis=0), atol=1e-15
        )
    assert (filtered.gross_returns[:, 0] == plain.gross_returns[:, 0]).all()  # cash is certain
    assert np.corrcoef(np.log(filtered.gross_returns[calm, 1:3]).T)[0, 1] == pytest.approx(
        np.corrcoef(np.log(plain.gross_returns[calm, 1:3]).T)[0, 1], abs=0.1
    )


def test_filtered_paths_know_nothing_after_t(make_prices):
    prices = make_prices(3, stocks=4)
    prices["S0"] = 100 + np.arange(40.0) ** 2 * np.cos(np.arange(40.0)) ** 2
    prices["NEW"] = prices["S0"].where(np.arange(40) > 25)
    make = [Market.from_prices(p) for p in (prices, altered(prices, 30), prices.iloc[:31])]
    whole, changed, cut = (bootstrap_paths(m, 30, 5, count=8, block=2, seed=1, filtered=Volatility()) for m in make)
    same(whole, changed)
    same(whole, cut)
    outside = ~whole.listed[0, 0]
    assert outside.any() and (whole.gross_returns[..., outside] == 1).all()


def test_where_volatility_is_steady_filtering_changes_little():
    rng = np.random.default_rng(5)
    gross_returns = np.exp(rng.normal(0.0, 0.01, (3000, 1)) + rng.normal(0, 0.01, (3000, 4)))
    filtered = scale_to_current_volatility(gross_returns, Volatility(decay=0.998))
    assert np.log(filtered).std() == pytest.approx(np.log(gross_returns).std(), rel=0.1)
    np.testing.assert_allclose(scale_to_current_volatility(np.full((9, 2), 1.01), Volatility()), 1.01)


@pytest.mark.parametrize("filtered", [None, Volatility()])
def test_mean_growth_is_pulled_towards_the_average(filtered):
    market = Market.from_prices(stormy(), cash_rate=0.02)
    raw, half, whole = (Resample.of(market, 299, 15, 1.0, filtered=filtered, shrink=s) for s in (0.0, 0.5, 1.0))
    means = [np.log(source.gross_returns[:, 1:]).mean(axis=0) for source in (raw, half, whole)]
    np.testing.assert_allclose(means[2], means[0].mean())
    np.testing.assert_allclose(means[1], (means[0] + means[2]) / 2)
    for source in (half, whole):
        np.testing.assert_allclose(
            np.diff(np.log(source.gross_returns), axis=0), np.diff(np.log(raw.gross_returns), axis=0), atol=1e-12
        )
        assert (source.gross_returns[:, 0] == raw.gross_returns[:, 0]).all()
    with pytest.raises(SettingsError, match="shrink"):
        Resample.of(market, 299, 15, 1.0, shrink=1.5)
