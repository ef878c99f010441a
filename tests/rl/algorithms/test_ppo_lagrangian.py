"""PPO-Lagrangian: IPO but for the price, which a multiplier sets."""

from __future__ import annotations

import pytest
import torch

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms.base import ActorSettings, Problem
from portfolio_sdpo.rl.algorithms.ipo import Ipo, IpoSettings
from portfolio_sdpo.rl.algorithms.ppo_lagrangian import PpoLagrangian, PpoLagrangianSettings
from portfolio_sdpo.rl.critics import CriticSettings

MEAN = CriticSettings(kind="mean", hidden=(16,), epochs=2, minibatches=2, learning_rate=1e-2, averaging=0.9)
SHARED = {"actor": ActorSettings(hidden=(), learning_rate=0.06, anneal=60), "critic": MEAN, "smoothing": 1.0}


def problem(*specs: str) -> Problem:
    return Problem(discount=1.0, constraints=tuple(map(Constraint.from_spec, specs)))


def test_at_the_same_price_it_is_ipo(bandit, make, train):
    """Beyond a bound that nobody can keep, the barrier's price is 1 / (η · margin) = 0.5: so is the multiplier's."""
    task, env = problem("expectation of pain <= -1 eta=4 margin=0.5"), bandit([1.0, 0.4, 0.0], pain=[1.0, 0.1, 0.0])
    ipo = make(Ipo, IpoSettings(**SHARED), task, env)
    dual = make(PpoLagrangian, PpoLagrangianSettings(**SHARED, multiplier_start=0.5, multiplier_max=0.5), task, env)
    rows = [train(learner, env, 4) for learner in (ipo, dual)]
    assert torch.equal(*(torch.cat([p.detach().flatten() for p in each.policy.parameters()]) for each in (ipo, dual)))
    assert {row["price_0"] for row in rows[0]} == {row["price_0"] for row in rows[1]} == {0.5}


def test_the_price_follows_the_slack_and_keeps_the_policy_back(bandit, make, train, probabilities):
    """λ ← λ − rate · slack, after it was used; what it was when the bound was passed ends the excess."""
    env = bandit([1.0, 0.4, 0.0], pain=[1.0, 0.1, 0.0])
    options = PpoLagrangianSettings(**SHARED, multiplier_rate=1.0, multiplier_start=0.1)
    learner = make(PpoLagrangian, options, problem("expectation of pain <= 0.3"), env)
    rows = train(learner, env, 15)
    price = 0.1
    for row in rows:
        assert row["price_0"] == pytest.approx(price)
        assert row["slack_0"] == pytest.approx(0.3 - row["risk_0"])
        price = max(price - row["slack_0"], 0.0)
    assert float(learner.multiplier) == pytest.approx(price)
    # A multiplier learns of the bound by breaking it.
    assert max(row["risk_0"] for row in rows) > 0.35
    assert probabilities(learner) @ torch.tensor([1.0, 0.1, 0.0]) < 0.3


def test_it_bounds_expectations_only(exposure, make):
    with pytest.raises(SettingsError, match=r"ppo-lagrangian: bounds only expectations, not cvar\[0\.1\]; use sdpo"):
        make(PpoLagrangian, PpoLagrangianSettings(), problem("cvar(0.1) of reward >= 0"), exposure)
