"""What is trained is what trades: an agent on its own scenarios, its risk as trained and as a backtest has it."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from portfolio_sdpo.backtest import CvarLimit
from portfolio_sdpo.backtest.deployed_risk import measure_deployed_risk
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.path_policy import grow_as_deployed
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
    """Of 6,000 periods; training and backtest see the same days, so that little of the difference is chance."""
    agent, market = train(prices, execution=execution)
    found = measure_deployed_risk(agent, market, 6_000)
    assert found.deployed == pytest.approx(found.trained, rel=0.03)
    assert found.promised == pytest.approx(found.trained, rel=0.1)  # on other days
    assert -0.05 < found.trained < -0.02  # a good part of the limit, or there would be nothing to compare


def train_through_shield(prices, **changes) -> tuple[Agent, Market]:
    learner = {**SETTINGS["learner"], "learning_rate": 5e-2, "anneal": 30}
    return train(prices, training="through-shield", first=30, paths=32, learner=learner, **changes)


@pytest.mark.parametrize(("execution", "least"), [("next-close", -0.015), ("same-close", -0.012)])
def test_the_same_behind_the_shield_if_it_is_trained_through_it(prices, execution, least):
    """Every period of a backtest behind the shield, and of the training's paths on the same days."""
    agent, market = train_through_shield(prices, execution=execution)
    found = measure_deployed_risk(agent, market, 2_000)
    assert found.deployed == pytest.approx(found.trained, rel=0.03)
    assert found.promised == pytest.approx(found.trained, rel=0.15)  # on the real past
    assert -0.04 < found.deployed < least


def test_an_agent_that_is_not_trained_as_it_is_deployed_is_found_out(prices):
    """One whose training left out the shield, which halves the limit."""
    agent, market = train(prices)
    tight = CvarLimit(bound=-0.02, alpha=0.1, horizon=6)
    agent.settings = agent.settings.model_copy(update={"training": "through-shield", "limit": tight})
    agent.learner._rewards = lambda policy, paths: grow_as_deployed(policy, *paths, agent.learner.deployment)
    found = measure_deployed_risk(agent, market, 500)
    assert found.trained < -0.03 < -0.022 < found.deployed


def test_the_command_measures_every_seed(monkeypatch, capsys):
    path = Path(__file__).parents[2] / "benchmarks" / "deployed_risk.py"
    spec = importlib.util.spec_from_file_location("deployed_risk_command", path)
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)
    options = "--training through-shield --execution same-close --first 2 --paths 8 --sessions 400 --seeds 0,1"
    monkeypatch.setattr(sys, "argv", ["deployed_risk.py", *options.split()])
    command.main()
    head, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["seed", "promised", "trained", "deployed", "ratio"]
    assert [row[0] for row in rows] == ["0", "1"] and all(-100 < float(row[3].rstrip("%")) <= 0 for row in rows)


def test_a_shared_policy_has_no_trained_risk(prices):
    agent = build_agent(preset("default"))
    with pytest.raises(SettingsError, match="trained on no scenarios"):
        measure_deployed_risk(agent, Market.from_prices(prices(100, 2, gaps=False)), 100)


def test_a_replay_has_no_distribution(prices):
    agent, market = train(prices, scenarios="window", first=1)
    with pytest.raises(SettingsError, match="use bootstrap"):
        measure_deployed_risk(agent, market, 100)
