"""PD-VAR; what it shares with PD-CVaR is tested there."""

from __future__ import annotations

import pytest
import torch

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms.base import ActorSettings, Problem
from portfolio_sdpo.rl.algorithms.pd_var import PdVar, PdVarSettings


def problem(*specs):
    return Problem(discount=1.0, constraints=tuple(map(Constraint.from_spec, specs)))


def test_ends_at_the_known_optimum(exposure, make, train):
    """Var = m⁴ ≤ 1 at m = 1, where the multiplier is 1/4."""
    actor = ActorSettings(hidden=(), learning_rate=0.02, initial_std=0.1)
    settings = PdVarSettings(actor=actor, multiplier_rate=0.003, multiplier_start=0.2)
    learner = make(PdVar, settings, problem("variance of reward <= 1"), exposure)
    tail = train(learner, exposure, 300)[-150:]
    assert sum(row["return"] for row in tail) / 150 == pytest.approx(1.0, abs=0.1)
    assert sum(row["risk_0"] for row in tail) / 150 == pytest.approx(1.0, abs=0.25)
    assert sum(row["price_0"] for row in tail) / 150 == pytest.approx(0.25, abs=0.1)


def test_avoids_the_noisy_arm_of_a_bandit(bandit, make, train, probabilities):
    """Means 1, 0.8, 0 with deviations 2, 0.5, 0: under Var ≤ 0.5 nearly the whole weight belongs on the second arm."""
    env = bandit([1.0, 0.8, 0.0], [2.0, 0.5, 0.0])
    settings = PdVarSettings(actor=ActorSettings(hidden=(), learning_rate=0.05), multiplier_rate=0.01)
    learner = make(PdVar, settings, problem("variance of reward <= 0.5"), env)
    train(learner, env, 150)
    p = probabilities(learner)
    assert p[1] > 0.75 and p[0] < 0.15


def test_moments_follow_the_returns(exposure, make, train):
    learner = make(PdVar, PdVarSettings(moment_rate=0.5), problem("variance of reward <= 1"), exposure)
    first, second = torch.tensor([1.0, 3.0]).double(), torch.tensor([5.0, 5.0]).double()
    constraint = learner.problem.constraints[0]
    risk, influence = learner.follow(0, constraint, first)
    assert learner.moments[0].tolist() == [2.0, 5.0] and risk == pytest.approx(1.0)
    risk, influence = learner.follow(0, constraint, second)
    assert learner.moments[0].tolist() == [3.5, 15.0] and risk == pytest.approx(15 - 3.5**2)
    assert influence(torch.tensor([4.5])).item() == pytest.approx(1.0)


def test_refuses_other_measures(exposure, make):
    with pytest.raises(SettingsError, match=r"pd-var: bounds only the variance, not cvar\[0.1\]"):
        make(PdVar, PdVarSettings(), problem("cvar(0.1) of reward >= 0"), exposure)
