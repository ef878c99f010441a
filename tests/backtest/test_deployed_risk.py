"""What is trained is what trades: an agent on its own scenarios, its risk as trained and as a backtest has it."""

import numpy as np
import pytest

from portfolio_sdpo.backtest import CvarLimit
from portfolio_sdpo.backtest.deployed_risk import measure_deployed_risk
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.market import Market

SETTINGS = {
    "limit": CvarLimit(bound=-0.04, alpha=0.1, horizon=6).model_dump(),
    "history": 250,
    "paths": 192,
    "first": 250,
    "every": 3,
    "fee": 0.0005,
    "learner": {"kind": "analytic", "hidden": (8, 8), "learning_rate": 1e-2, "anneal": 250},
}


def train(prices, **changes) -> tuple[Agent, Market]:
    market = Market.from_prices(prices(300, 3, seed=2, gaps=False))
    agent = Agent(AgentSettings.model_validate({**SETTINGS, **changes}))
    agent.decide(market, np.eye(4)[0])
    return agent, market


@pytest.mark.parametrize("execution", ["next-close", "same-close"])
def test_the_deployed_risk_is_the_trained_one_within_three_percent(prices, execution):
    agent, market = train(prices, execution=execution)
    found = measure_deployed_risk(agent, market, 40_000)
    assert found.deployed == pytest.approx(found.trained, rel=0.03)
    assert found.trained == pytest.approx(-0.04, rel=0.06)  # the limit binds, or there would be nothing to compare


def test_training_from_cash_understates_the_risk_that_is_deployed(prices):
    """At the next close an episode from cash is in the market a session less than a period of a backtest."""
    agent, market = train(prices, training="from-cash")
    found = measure_deployed_risk(agent, market, 40_000)
    assert found.deployed < 1.03 * found.trained


def test_a_replay_has_no_distribution(prices):
    agent, market = train(prices, scenarios="window", first=1)
    with pytest.raises(SettingsError, match="use bootstrap"):
        measure_deployed_risk(agent, market, 100)
