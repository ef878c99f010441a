"""Other people's objects as strategies: what they see, what they may answer, and what is refused."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest import make_strategy, simulate
from portfolio_sdpo.backtest.adapters import DecisionAdapter, OptimiserStrategy, as_strategy
from portfolio_sdpo.backtest.entries import Entry
from portfolio_sdpo.backtest.run import BacktestSettings, simulate_strategies
from portfolio_sdpo.backtest.shielded import shield_strategy
from portfolio_sdpo.backtest.strategies import STRATEGIES, EqualWeight, make_benchmark
from portfolio_sdpo.common import plugins
from portfolio_sdpo.errors import SettingsError, WeightsError
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.shield import CvarLimit
from portfolio_sdpo.report.result import BacktestResult


@pytest.fixture(scope="module")
def market(prices):
    return Market.from_prices(prices(60, gaps=False))


class Answer:
    """Gives the same answer at every decision and remembers how much history it saw."""

    def __init__(self, answer):
        self.answer = answer
        self.seen = []

    def decide(self, history, held):
        self.seen.append(len(history))
        return self.answer


class Optimiser:
    """Remembers what it was fitted to; `weights_` favour the stock that moved most."""

    fits: ClassVar[list] = []
    previous_weights = None

    def get_params(self, deep=True):
        return {}

    def fit(self, returns):
        Optimiser.fits.append((returns, self.previous_weights))
        spread = returns.std().to_numpy()
        self.weights_ = spread / spread.sum()
        return self


def test_weights_may_be_an_array_a_mapping_or_a_series(market):
    array = np.array([0.5, 0.5, 0.0, 0.0, 0.0])
    name = market.tickers[0]
    answers = (array, {"CASH": 0.5, name: 0.5}, {name: 0.5}, pd.Series({name: 0.5}))
    tracks = [simulate(market, as_strategy(Answer(answer), "mine"), start=market.dates[50]) for answer in answers]
    for track in tracks:
        np.testing.assert_array_equal(track.wealth, tracks[0].wealth)
    assert tracks[0].name == "mine"


def test_an_object_sees_no_later_session(market):
    inner = Answer({})
    simulate(market, as_strategy(inner, every=3), start=market.dates[50])
    assert inner.seen == [51, 54, 57, 60]


def test_an_unknown_asset_is_named(market):
    with pytest.raises(WeightsError, match="there is no asset NOPE: name CASH or one of the prices' columns"):
        simulate(market, as_strategy(Answer({"NOPE": 1.0})), start=market.dates[50])


def test_an_optimiser_is_fitted_to_trailing_returns_and_stays_as_it_was(market):
    Optimiser.fits.clear()
    mine = Optimiser()
    track = simulate(market, OptimiserStrategy(mine, "mine", lookback=20, every=4), start=market.dates[50])
    assert not hasattr(mine, "weights_") and mine.previous_weights is None
    returns, previous = Optimiser.fits[0]
    assert list(returns.columns) == list(market.tickers) and len(returns) == 20
    np.testing.assert_array_equal(returns.to_numpy(), market.gross_returns[31:51, 1:] - 1.0)
    np.testing.assert_array_equal(previous, np.zeros(4))
    np.testing.assert_allclose(Optimiser.fits[1][1], track.held[4, 1:])


def test_skfolio_is_the_benchmark_of_the_same_name(market):
    from skfolio.optimization import HierarchicalRiskParity

    ours = simulate(market, make_strategy("hrp", lookback=30), start=market.dates[50])
    theirs = simulate(market, OptimiserStrategy(HierarchicalRiskParity(), lookback=30), start=market.dates[50])
    np.testing.assert_allclose(theirs.weights, ours.weights, atol=1e-12)


def test_names_and_what_is_no_strategy():
    assert as_strategy("equal-weight").every == 5
    renamed = as_strategy("equal-weight", "1/N")
    assert isinstance(renamed, DecisionAdapter) and (renamed.name, renamed.every) == ("1/N", 5)
    assert as_strategy(Answer({})).name == "Answer"
    with pytest.raises(SettingsError, match="int is neither the name of a strategy"):
        as_strategy(3)
    with pytest.raises(SettingsError, match="every: must be a number of sessions, at least one"):
        as_strategy("cash", every=0)
    with pytest.raises(SettingsError, match=r"there is no 'equal-wieght' .did you mean 'equal-weight'"):
        as_strategy("equal-wieght")


def test_the_shield_under_another_name_still_looks_at_every_close(market):
    """It would be asked at its decisions alone, and take its account for one that has been all cash."""
    shielded, renamed = (shield_strategy(EqualWeight(every=20), CvarLimit()) for _ in range(2))
    ours = simulate(market, shielded, start=market.dates[30])
    theirs = simulate(market, as_strategy(renamed, "mine"), start=market.dates[30])
    assert theirs.name == "mine" and len(shielded.days) == len(renamed.days) == 30
    assert 0.0 < ours.weights[:, 1:].sum(axis=1).max() < 1.0
    np.testing.assert_array_equal(theirs.weights, ours.weights)


class Momentum:
    """A strategy of another package; it has neither name nor rhythm, and asks for the limit."""

    def __init__(self, limit):
        self.limit = limit

    def decide(self, history, held):
        return {history.tickers[0]: 1.0}


def test_a_strategy_of_another_package_needs_no_line_here(monkeypatch):
    declared = {"momentum": Momentum}
    monkeypatch.setattr(plugins, "load_plugins", lambda group: declared if group == STRATEGIES.group else {})
    monkeypatch.setattr(STRATEGIES, "_items", dict(STRATEGIES._items))
    limit = CvarLimit(bound=-0.1)
    settings = BacktestSettings(strategies=("cash", "momentum"), limit=limit)
    strategy = make_benchmark("momentum", limit)
    assert (strategy.name, strategy.every, strategy.inner.limit) == ("momentum", 1, limit)
    assert settings.strategies == ("cash", "momentum")
    assert "momentum" not in BacktestSettings().strategies  # what is installed does not change the default


def test_a_strategy_is_known_by_the_name_it_is_registered_under(monkeypatch):
    class Monthly(EqualWeight):
        every: int = 21

    monkeypatch.setattr(STRATEGIES, "_items", {**STRATEGIES._items, "monthly": Monthly})
    assert (make_strategy("monthly").name, make_strategy("monthly").every) == ("monthly", 21)


class Fixed:
    """An optimiser with given weights."""

    def __init__(self, weights):
        self.weights = weights

    def get_params(self, deep=True):
        return {"weights": self.weights}

    def fit(self, returns):
        self.weights_ = np.array(self.weights)
        return self


@pytest.mark.parametrize(
    ("weights", "says"),
    [((1.5, -0.5, 0.0, 0.0), "from -0.5 to 1.5 and sum to 1"), ((0.5, 0.5), r"shape \(2,\) for 4 stocks")],
)
def test_an_optimiser_s_weights_are_held_as_they_are_or_refused(market, weights, says):
    with pytest.raises(WeightsError, match=f"fixed on 2019-.*{says}"):
        simulate(market, OptimiserStrategy(Fixed(weights), "fixed", lookback=30), start=market.dates[50])


def test_settings_of_a_renamed_benchmark_are_written_down(market):
    settings = BacktestSettings(strategies=("cash",), start=market.dates[40].astype(object), bootstrap=None)
    record = simulate_strategies(market, [Entry(as_strategy("equal-weight", "1/N"))], settings)
    assert record.config["strategies"] == {"1/N": {"name": "equal-weight", "every": 5}}


def test_a_backtest_in_memory_prints_itself_and_has_frames(market, tmp_path):
    entries = [
        Entry(as_strategy(Answer({market.tickers[0]: 0.5}), "mine"), kind="agent", shield=True),
        Entry(as_strategy("equal-weight", "1/N")),
    ]
    settings = BacktestSettings(strategies=("cash",), start=market.dates[40].astype(object), bootstrap=None, fee_bps=5)
    result = BacktestResult(simulate_strategies(market, entries, settings))
    assert list(result.returns.columns) == ["mine", "mine + shield", "1/N"] == list(result.metrics.index)
    assert len(result.returns) == 19 and not result.returns.isna().any().any()
    np.testing.assert_allclose((1 + result.returns).prod(), result.wealth.iloc[-1])
    np.testing.assert_allclose(result.metrics["final_wealth"], result.wealth.iloc[-1])
    assert list(result.weights["1/N"].columns) == list(market.assets)
    np.testing.assert_allclose(result.weights.T.groupby(level="strategy").sum(), 1.0)
    text = str(result)
    assert "1/N" in text and "mine + shield" in text and "Weights of mine + shield" in text
    assert b"mine + shield" in result.report(tmp_path / "page.html").read_bytes()
    written = result.write(tmp_path / "folder")
    assert written.report_path.exists() and (tmp_path / "folder" / "equity.parquet").exists()
