"""The learning strategy, walked through the same accounting as every other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo.errors import HistoryError, SettingsError
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.analytic import AnalyticSettings
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.path_policy import draw_start, grow_as_deployed
from portfolio_sdpo.portfolio.return_measures import Volatility
from portfolio_sdpo.portfolio.shield import CvarLimit
from portfolio_sdpo.risk import CVaR
from portfolio_sdpo.rl.checkpoint import save_checkpoint

QUICK = AgentSettings(
    limit=CvarLimit(alpha=0.1, bound=-0.05, horizon=5),
    history=100,
    paths=64,
    first=40,
    further=3,
    learner=AnalyticSettings(hidden=(8, 8), learning_rate=1e-2, smoothing=0.3, anneal=40),
)


SMALL = {"actor": {"hidden": (8, 8)}, "critic": {"hidden": (8, 8), "dimension": 8, "atoms": 8, "warm_up": 1}}
LEARNERS = {
    "analytic": QUICK.learner.model_dump(),
    "ppo": {"kind": "ppo", "actor": SMALL["actor"], "critic": SMALL["critic"] | {"kind": "mean"}},
    "sdpo, score": {"kind": "sdpo", "actor": SMALL["actor"], "critic": SMALL["critic"] | {"kind": "quantile"}},
    "sdpo, counterfactual": {"kind": "sdpo", "estimator": "counterfactual", "actor": SMALL["actor"]},
}
EACH = pytest.mark.parametrize("learner", LEARNERS)


def with_learner(name: str) -> AgentSettings:
    return AgentSettings(**(dict(QUICK) | {"learner": LEARNERS[name], "paths": 10, "episodes": 20, "first": 4}))


FROM_CASH = {"training": "from-cash", "execution": "same-close"}


def cash(market: Market):
    return np.eye(len(market.assets))[0]


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
    assert len(agent.trace) == 40 + 3 + 3 == agent.updates_for(3)  # the last close is decided on as well
    assert {"date", "iteration", "objective", "risk", "bound", "slack", "regime"} == set(agent.trace[0])
    assert agent.trace[0]["bound"] == pytest.approx(np.log(0.95))


def test_a_fee_keeps_it_from_leaving_cash():
    """Where training starts in cash: who is invested already has paid."""
    market = Market.from_prices(prices())
    free, dear = (
        simulate(market, Agent(QUICK.model_copy(update={"fee": fee, **FROM_CASH})), start=market.dates[120])
        for fee in (0.0, 0.05)
    )
    assert dear.turnover.sum() < 0.5 * free.turnover.sum()


@EACH
def test_every_learner_decides_promises_and_goes_on_from_a_checkpoint(tmp_path, learner):
    """The restored agent decides the same at the same close, and after training on at a later one."""
    market = Market.from_prices(prices())
    settings = with_learner(learner)
    assert AgentSettings.model_validate_json(settings.model_dump_json()) == settings
    agent = Agent(settings, seed=3)
    first = agent.decide(market.until(140), cash(market))
    assert (first >= 0).all() and first.sum() == pytest.approx(1)
    path = save_checkpoint(tmp_path, agent.learner, 1, "run")
    again = Agent(settings, seed=3)
    again.restore(path, "run", agent.assets, agent.as_of, agent.trace)
    assert (again.decide(market.until(140), cash(market)) == first).all()
    later = [each.decide(market.until(145), cash(market)) for each in (agent, again)]
    assert (later[0] == later[1]).all() and agent.trace == again.trace
    row = agent.trace[-1]
    assert row["iteration"] == len(agent.trace) == 4 + 3
    assert np.isfinite([row["objective"], row["risk"], row["slack"]]).all()
    assert (row["regime"] == "none") == (learner == "ppo")


def test_asked_again_at_the_same_close_it_does_not_train_again():
    market = Market.from_prices(prices())
    agent = Agent(QUICK)
    one, two = (agent.decide(market, cash(market)) for _ in range(2))
    assert (one == two).all() and len(agent.trace) == 40


def test_what_it_knows_it_cannot_forget():
    market = Market.from_prices(prices())
    agent = Agent(QUICK)
    agent.decide(market, cash(market))
    with pytest.raises(HistoryError, match=r"knows prices up to 2018-08-10 and cannot decide on 2018-08-09"):
        agent.decide(market.until(len(market) - 2), cash(market))
    other = Market.from_prices(prices().rename(columns={"A": "Z"}))
    with pytest.raises(SettingsError, match="trained on CASH, A, B, C"):
        agent.decide(other, cash(other))


def test_threads_change_nothing():
    market = Market.from_prices(prices())
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(Agent(QUICK).decide(market, cash(market)))
        assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    assert (found[0] == found[1]).all()


@pytest.mark.parametrize("scenarios", ["window", "bootstrap"])
def test_where_every_stock_is_gone_it_waits_in_cash_and_says_so(scenarios):
    """The walk goes on, and so does the learning once there are stocks again."""
    frame = prices(sessions=200)
    frame.iloc[125:135] = np.nan
    market = Market.from_prices(frame)
    agent = Agent(QUICK.model_copy(update={"scenarios": scenarios, "history": 20}))
    track = simulate(market, agent, start=market.dates[115], end=market.dates[170])
    gone = slice(10, 20)
    np.testing.assert_allclose(track.weights[gone, 0], 1.0)
    assert track.weights[40:, 1:].sum() > 0
    assert track.notes[:2] == (
        f"{market.dates[125]}: waits in cash (no stock is listed on {market.dates[125]}).",
        f"{market.dates[130]}: waits in cash (no stock is listed on {market.dates[130]}).",
    )
    assert agent.trace[-1]["iteration"] == len(agent.trace)


def test_without_anything_to_begin_with_it_refuses():
    frame = prices()
    frame.iloc[120:] = np.nan
    market = Market.from_prices(frame)
    with pytest.raises(HistoryError, match="no stock is listed"):
        Agent(QUICK).decide(market, cash(market))


@pytest.mark.parametrize("eta", [(0.0, 1.0), (5.0, 1.0), (-1.0, -1.0)])
def test_eta_must_grow(eta):
    with pytest.raises(SettingsError, match=r"AgentSettings\.eta: must be positive and must not fall"):
        AgentSettings(eta=eta)


def test_its_estimate_is_of_today_and_not_of_calmer_days():
    """After a quiet year the moves grow fivefold: what it says of its risk has to follow within a decision."""
    rng = np.random.default_rng(0)
    moves = rng.normal(0.002, 0.004, (140, 3))
    moves[130:] = rng.normal(-0.01, 0.03, (10, 3))
    days = pd.bdate_range("2018-01-01", periods=140)
    market = Market.from_prices(pd.DataFrame(100 * np.exp(moves.cumsum(0)), index=days, columns=["A", "B", "C"]))
    settings = QUICK.model_copy(update={"filtered": Volatility(), "first": 150, "further": 5, "paths": 512})
    agent = Agent(settings)
    agent.decide(market.until(129), cash(market))
    agent.decide(market, cash(market))
    source = agent.find_scenarios(market)
    rows = source.draw(np.random.default_rng(1), np.zeros(20_000, dtype=int))
    paths = torch.as_tensor(source.gross_returns[rows], dtype=torch.float32), torch.as_tensor(source.listed[rows])
    with torch.no_grad():
        start = draw_start(paths[1][:, 0], torch.Generator().manual_seed(0))
        growth = grow_as_deployed(agent.learner.algorithm.previous, *paths, start, settings.deployment)
        true = CVaR(alpha=0.1)(growth.sum(-1)).item()
    assert agent.trace[-1]["risk"] == pytest.approx(true, rel=0.15)
