"""The learning strategy, walked through the same accounting as every other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest.agent import Agent, AgentSettings
from portfolio_sdpo.backtest.shield import CvarLimit
from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo.envs.portfolio.market import Market
from portfolio_sdpo.rl.analytic import AnalyticSettings

QUICK = AgentSettings(
    limit=CvarLimit(alpha=0.1, bound=-0.05, horizon=5),
    history=100,
    paths=64,
    first=40,
    further=3,
    learner=AnalyticSettings(hidden=(8, 8), learning_rate=1e-2, smoothing=0.3, anneal=40),
)


def prices(sessions: int = 160, late: int = 0, seed: int = 0) -> pd.DataFrame:
    moves = np.random.default_rng(seed).normal(0.001, 0.01, (sessions, 3))
    frame = pd.DataFrame(
        100 * np.exp(moves.cumsum(0)), index=pd.bdate_range("2018-01-01", periods=sessions), columns=["A", "B", "C"]
    )
    if late:
        frame.iloc[:late, 2] = np.nan
    return frame


def test_the_same_seed_decides_the_same_and_another_one_does_not():
    market = Market.from_prices(prices())
    first, again, other = (
        simulate(market, Agent(QUICK, seed=seed), start=market.dates[120]).weights for seed in (0, 0, 1)
    )
    assert (first == again).all() and (first != other).any()


def test_what_comes_later_changes_no_earlier_decision():
    frame = prices()
    altered = frame.copy()
    altered.iloc[141:] *= 1.3
    tracks = [
        simulate(market, Agent(QUICK), start=market.dates[120])
        for market in (Market.from_prices(frame), Market.from_prices(altered), Market.from_prices(frame.iloc[:151]))
    ]
    for track in tracks[1:]:
        assert (track.weights[:21] == tracks[0].weights[:21]).all()
    assert (tracks[1].weights[30:] != tracks[0].weights[30:]).any()


def test_a_new_listing_waits_until_scenarios_hold_it():
    market = Market.from_prices(prices(late=110))
    track = simulate(market, Agent(QUICK), start=market.dates[120])
    assert (track.weights[:, 3] == 0).all() and track.weights[:, 1:3].sum() > 0


@pytest.mark.parametrize("scenarios", ["window", "bootstrap"])
def test_learns_from_either_kind_of_scenarios_and_keeps_a_trace(scenarios):
    market = Market.from_prices(prices())
    agent = Agent(QUICK.model_copy(update={"scenarios": scenarios}))
    simulate(market, agent, start=market.dates[150])
    assert len(agent.trace) == 40 + 3
    assert {"date", "iteration", "objective", "risk", "bound", "slack", "regime"} == set(agent.trace[0])
    assert agent.trace[0]["bound"] == pytest.approx(np.log(0.95))


def test_a_fee_keeps_it_from_trading():
    market = Market.from_prices(prices())
    free, dear = (
        simulate(market, Agent(QUICK.model_copy(update={"fee": fee})), start=market.dates[120]) for fee in (0.0, 0.05)
    )
    assert dear.turnover.sum() < 0.5 * free.turnover.sum()
