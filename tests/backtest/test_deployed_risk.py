"""What is trained is what trades: an agent on its own scenarios, its risk as trained and as a backtest has it."""

import numpy as np
import pytest

from portfolio_sdpo.backtest import CvarLimit
from portfolio_sdpo.backtest.deployed_risk import measure_deployed_risk
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.presets import preset
from portfolio_sdpo.portfolio.shared_policy_agent import build_agent

SETTINGS = {
    "limit": CvarLimit(bound=-0.04, alpha=0.1, horizon=6).model_dump(),
    "history": 250,
    "paths": 64,
    "first": 120,
    "every": 3,
    "fee": 0.0005,
    "learner": {"kind": "analytic", "hidden": (8, 8), "learning_rate": 1e-2, "anneal": 120, "averaging": 0.8},
}


def train(prices, **changes) -> tuple[Agent, Market]:
    market = Market.from_prices(prices(300, 3, seed=2, gaps=False))
    agent = Agent(AgentSettings.model_validate({**SETTINGS, **changes}))
    agent.decide(market, np.eye(4)[0])
    return agent, market


@pytest.mark.parametrize("execution", ["next-close", "same-close"])
def test_the_deployed_risk_is_the_trained_one_within_three_percent(prices, execution):
    agent, market = train(prices, execution=execution)
    found = measure_deployed_risk(agent, market, 30_000)
    assert found.deployed == pytest.approx(found.trained, rel=0.03)
    assert -0.05 < found.trained < -0.02  # a good part of the limit, or there would be nothing to compare


def test_the_same_behind_the_shield_if_it_is_trained_through_it(prices):
    """Every period of a backtest behind the shield, and of the training's paths on the same days."""
    learner = {**SETTINGS["learner"], "learning_rate": 5e-2, "anneal": 30}
    agent, market = train(prices, training="through-shield", first=30, paths=32, learner=learner)
    found = measure_deployed_risk(agent, market, 2_000)
    assert found.deployed == pytest.approx(found.trained, rel=0.03)
    assert agent.estimate_promise(market, 256) == pytest.approx(found.trained, rel=0.15)  # on the real past
    assert -0.04 < found.deployed < -0.015


def test_a_shared_policy_has_no_trained_risk(prices):
    agent = build_agent(preset("default"))
    with pytest.raises(SettingsError, match="trained on no scenarios"):
        measure_deployed_risk(agent, Market.from_prices(prices(100, 2, gaps=False)), 100)


def test_a_replay_has_no_distribution(prices):
    agent, market = train(prices, scenarios="window", first=1)
    with pytest.raises(SettingsError, match="use bootstrap"):
        measure_deployed_risk(agent, market, 100)
