"""PD-SDPO: SDPO but for the price, which a multiplier sets."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms.base import ActorSettings, Problem
from portfolio_sdpo.rl.algorithms.pd_sdpo import PdSdpo, PdSdpoSettings
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo, SdpoSettings
from portfolio_sdpo.rl.critics import CriticSettings

CRITIC = CriticSettings(
    kind="quantile", hidden=(16,), dimension=16, atoms=16, epochs=2, minibatches=2, learning_rate=1e-2, averaging=0.9
)
TABLE = ActorSettings(hidden=(), learning_rate=0.06, anneal=60)
SHARED = {"actor": TABLE, "critic": CRITIC, "epochs": 4, "minibatches": 1, "smoothing": 0.5, "risk_atoms": 16}
CMDP = random_cmdp(6, 3, seed=0, noise_scale=1.0, horizon=4, costs=("pain",))
ESTIMATORS = pytest.mark.parametrize("estimator", ["score", "pathwise", "trajectory"])


def shared(estimator):
    """Settings that SDPO and PD-SDPO have in common; those about critics only where there are critics."""
    unused = ("critic", "risk_atoms") if estimator == "trajectory" else ()
    return {name: value for name, value in SHARED.items() if name not in unused}


def options(estimator="score", **given):
    return PdSdpoSettings(**(shared(estimator) | {"estimator": estimator} | given))


def problem(*specs, discount=1.0):
    return Problem(discount=discount, constraints=tuple(map(Constraint.from_spec, specs)))


def logits(learner):
    return torch.cat([parameter.detach().flatten() for parameter in learner.policy.parameters()])


@ESTIMATORS
def test_at_the_same_price_it_is_sdpo(estimator, make, train):
    """Beyond a bound that nobody can keep the barrier's price is 1 / (η · margin) = 0.5, and so is a multiplier that
    starts there and may go no further: policies, critics and logs are the same to the last bit."""
    task = problem(
        "variance of reward <= 1e-6 eta=4 margin=0.5", "expectation of pain <= 0 eta=1 margin=2", discount=0.9
    )
    learners = [
        make(Sdpo, SdpoSettings(**shared(estimator), estimator=estimator), task, RandomCmdpVectorEnv(CMDP, 8)),
        make(
            PdSdpo,
            options(estimator=estimator, multiplier_start=0.5, multiplier_max=0.5),
            task,
            RandomCmdpVectorEnv(CMDP, 8),
        ),
    ]
    sdpo, dual = (train(learner, RandomCmdpVectorEnv(CMDP, 8), 4, steps=4) for learner in learners)
    assert torch.equal(*map(logits, learners))
    assert {row["price_0"] for row in sdpo} == {row["price_1"] for row in dual} == {0.5}
    columns = dual[0].keys() & sdpo[0].keys()
    assert {"slack_0", "risk_0", "risk_1", "phase", "return", "kl"} <= columns
    assert [{name: row[name] for name in columns} for row in dual] == [
        {name: row[name] for name in columns} for row in sdpo
    ]
    # There is no barrier, and so neither its regime nor the theorem about it.
    assert sdpo[0].keys() - dual[0].keys() == {"regime_0", "regime_1", "suboptimality_bound"}


def test_ends_at_the_known_optimum(exposure, make, train):
    """Var = m⁴ ≤ 1 at m = 1, where a unit of variance is worth 1 / (4 m³) = 0.25."""
    env = type(exposure)(1000)
    actor = ActorSettings(hidden=(), learning_rate=0.05, initial_std=0.2)
    settings = options(actor=actor, estimator="trajectory", epochs=2, entropy=0.03, multiplier_start=0.2)
    learner = make(PdSdpo, settings, problem("variance of reward <= 1"), env)
    rows = train(learner, env, 120)
    tail = {name: np.mean([row[name] for row in rows[-80:]]) for name in ("return", "risk_0", "price_0")}
    assert tail == {
        "return": pytest.approx(1.0, abs=0.1),
        "risk_0": pytest.approx(1.0, abs=0.15),
        "price_0": pytest.approx(0.25, abs=0.06),
    }
    # Unlike a barrier, a multiplier learns of the bound by breaking it.
    assert max(row["risk_0"] for row in rows) > 1.2


def test_the_price_follows_the_running_slack(bandit, make, train):
    """λ ← λ − rate · slack, after it was used, the slack being that of the log: the running estimate, its confidence
    taken off."""
    env = bandit([1.0, 0.0], [1.0, 0.1])
    settings = options(multiplier_rate=0.3, multiplier_start=0.1)
    learner = make(PdSdpo, settings, problem("variance of reward <= 0.4 confidence=2"), env)
    rows = train(learner, env, 6)
    price = 0.1
    for row in rows:
        assert row["price_0"] == pytest.approx(price)
        price = max(price - 0.3 * row["slack_0"], 0.0)
    assert float(learner.multiplier) == pytest.approx(price)
    assert any(row["slack_0"] < 0 for row in rows)


def test_a_single_episode_with_a_confidence_does_not_drive_the_price_up(make, train):
    env = RandomCmdpVectorEnv(CMDP, 1)
    learner = make(PdSdpo, options(multiplier_start=0.1), problem("variance of reward <= 9 confidence=1"), env)
    rows = train(learner, env, 3, steps=4)
    assert {row["slack_0"] for row in rows} == {-math.inf}
    assert {row["price_0"] for row in rows} == {0.1}
    assert logits(learner).isfinite().all()


def test_multipliers_wait_for_phase_one(bandit, make, train, probabilities):
    """Phase I is SDPO's: only the worst slack counts, at the price 1; multipliers begin when it ends."""
    env = bandit([1.0, 0.4, 0.0], pain=[1.0, 0.1, 0.0])
    settings = options(phase_one=100, multiplier_rate=0.5, multiplier_start=0.2, smoothing=1.0)
    learner = make(PdSdpo, settings, problem("expectation of pain <= 0.2"), env)
    rows = train(learner, env, 40)
    phases = [row["phase"] for row in rows]
    first = phases.index(2.0)
    assert 0 < first < 20 and set(phases[first:]) == {2.0}
    assert {row["price_0"] for row in rows[:first]} == {1.0}
    assert rows[first]["price_0"] == 0.2
    assert probabilities(learner) @ torch.tensor([1.0, 0.1, 0.0]) < 0.35


def test_its_own_name_stands_in_errors(exposure, make):
    mean = CriticSettings(kind="mean")
    with pytest.raises(SettingsError, match=r"^pd-sdpo: mean critics know nothing of cvar\[0\.1\]; use quantile"):
        make(PdSdpo, options(critic=mean), problem("cvar(0.1) of reward >= 0"), exposure)
    with pytest.raises(SettingsError, match="multiplier_rate"):
        options(multiplier_rate=0)
