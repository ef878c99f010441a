"""The entropy bonus of phase I: how it fades, what it leaves open, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from portfolio_sdpo.envs.exact import evaluate_hedging, solve_hedging
from portfolio_sdpo.envs.hedging import HedgingVectorEnv, observe
from portfolio_sdpo.errors import InfeasibleConstraintError, SettingsError
from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import Ipo, IpoSettings, Problem, Sdpo, SdpoSettings
from portfolio_sdpo.rl.algorithms.pricing import HALF_LIFE, ConstraintMonitor
from portfolio_sdpo.rl.estimators.base import RiskEstimate
from portfolio_sdpo.rl.trainer import TrainSettings

SMALL = {
    "actor": {"hidden": (32,), "learning_rate": 3e-3},
    "critic": {"kind": "quantile", "hidden": (32,), "atoms": 16, "dimension": 16, "learning_rate": 3e-3},
    "risk_atoms": 16,
}
TASK = Problem(discount=1.0, constraints=(Constraint.from_spec("variance of loss <= 2 discount=1"),))


def reach(slack: float, monitor: ConstraintMonitor, iteration: int) -> None:
    """The monitor after an estimate of that slack."""
    slacks, _ = monitor.track([RiskEstimate(2 - slack, 0.1, 2 - slack, torch.zeros(1))])
    monitor.enter_phase(slacks, iteration)


def test_it_lasts_for_half_of_phase_one_and_then_fades():
    """So that it cannot hide a feasible policy: in the end phase I has nothing but the worst slack."""
    monitor = ConstraintMonitor(nn.Module(), TASK.constraints, 1.0, phase_one=100, entropy=0.2)
    reach(-1.0, monitor, 0)
    left = [monitor.entropy_bonus(iteration) for iteration in (0, 25, 50, 75, 90, 100)]
    assert left == pytest.approx([0.2, 0.2, 0.2, 0.1, 0.04, 0.0])


@pytest.mark.parametrize("began, left", [(10, 0.2), (75, 0.1)])
def test_what_is_left_when_the_reward_begins_to_count_is_halved_again_and_again(began, left):
    monitor = ConstraintMonitor(nn.Module(), TASK.constraints, 1.0, phase_one=100, entropy=0.2)
    reach(-1.0, monitor, 0)
    reach(0.5, monitor, began)
    assert monitor.feasible
    found = [monitor.entropy_bonus(began + k * HALF_LIFE) for k in range(3)]
    assert found == pytest.approx([left, left / 2, left / 4])
    # A breach later on is no second phase I.
    reach(-0.5, monitor, began + 2 * HALF_LIFE)
    assert monitor.entropy_bonus(began + 2 * HALF_LIFE) == pytest.approx(left / 4)


def test_a_feasible_start_has_none():
    monitor = ConstraintMonitor(nn.Module(), TASK.constraints, 1.0, entropy=0.2)
    assert monitor.entropy_bonus(0) == monitor.entropy_bonus(100) == 0.0


def final(learner) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in learner.policy.parameters()]


def test_without_phase_one_and_for_densities_it_changes_nothing(make, train, exposure):
    """To the last bit; the entropy of a density has no upper bound, so a bonus would only widen it."""
    loose = Problem(discount=1.0, constraints=(Constraint.from_spec("variance of loss <= 40 discount=1"),))
    tight = Problem(constraints=(Constraint.from_spec("expectation of energy <= 0.1"),))
    for algorithm, settings, task, env, steps in (
        (Sdpo, SdpoSettings.model_validate(SMALL), loose, HedgingVectorEnv(8, 2), 4),
        (Ipo, IpoSettings(phase_one=9), tight, exposure, 1),
    ):
        found = []
        for entropy in (0.0, 0.2):
            learner = make(algorithm, settings.model_copy(update={"phase_one_entropy": entropy}), task, env)
            train(learner, env, 3, steps)
            found.append(final(learner))
        for without, with_bonus in zip(*found, strict=True):
            assert torch.equal(without, with_bonus)


def test_a_policy_that_has_just_become_feasible_has_not_made_up_its_mind(make, train):
    """Of the entropy of three actions, 1.10, phase I by itself leaves less than half as much as with the bonus."""
    env = HedgingVectorEnv(128, rounds=3)
    entropy = []
    for bonus in (0.0, 0.2):
        settings = SdpoSettings.model_validate(SMALL | {"phase_one": 400, "phase_one_entropy": bonus})
        rows = train(make(Sdpo, settings, TASK, env), env, 25, steps=6)
        assert [row["phase"] for row in rows][-1] == 2.0
        entropy.append(next(row["entropy"] for row in rows if row["phase"] == 2.0))
    assert entropy[1] > 2 * entropy[0]


def test_it_finds_out_afterwards_what_pays(make, train):
    """Three rounds: to double what brings the loss back to zero. Reward against the best that the same risk allows, of
    which the policy has four fifths without the bonus."""
    env = HedgingVectorEnv(128, rounds=3)
    actor = {"hidden": (64, 64), "learning_rate": 5e-3, "anneal": 80}
    settings = SdpoSettings.model_validate(SMALL | {"actor": actor, "phase_one": 80})
    constraint = Constraint.from_spec("variance of loss <= 1.5 discount=1 confidence=1")
    learner = make(Sdpo, settings, Problem(discount=1.0, constraints=(constraint,)), env)
    train(learner, env, 80, steps=6)

    @torch.no_grad()
    def policy(k: int, losses: np.ndarray, shocks: np.ndarray) -> np.ndarray:
        seen = observe((2 * k + 1) / env.horizon, losses.astype(float), shocks.astype(float))
        return torch.softmax(learner.policy(torch.from_numpy(seen)).double(), -1).numpy()

    outcome = evaluate_hedging(3, policy)
    centred = outcome.losses - outcome.weights @ outcome.losses
    variance = float(outcome.weights @ centred**2)
    best = solve_hedging(3, lambda mu, y: (y - mu) ** 2, variance, np.linspace(-0.5, 0.5, 21))
    assert variance < 1.25 * 1.5
    assert 0.92 < outcome.reward / best <= 1.0


def test_a_search_that_fails_still_says_so(make, train):
    env = HedgingVectorEnv(8)
    never = Problem(discount=1.0, constraints=(Constraint.from_spec("expectation of loss <= -3 discount=1"),))
    settings = SdpoSettings.model_validate(SMALL | {"phase_one": 3})
    with pytest.raises(InfeasibleConstraintError, match="in 3 iterations"):
        train(make(Sdpo, settings, never, env), env, 4, steps=2)


def test_runs_with_phase_one_are_other_runs_than_before_it_and_those_without_the_same():
    def unused(**fields: object) -> dict[str, object]:
        settings = TrainSettings(problem=TASK, algorithm=SdpoSettings(**fields), iterations=1, steps=1)
        return settings.find_unused_additions()["algorithm"]

    assert "phase_one_entropy" in unused()
    assert "phase_one_entropy" not in unused(phase_one=5)


def test_a_run_with_phase_one_and_without_the_bonus_is_that_of_before_there_was_one():
    """Computed by the version before the bonus."""
    assert fingerprint_of(SdpoSettings(phase_one=5, phase_one_entropy=0.0)) == "6e79fa826c704a41"
    assert fingerprint_of(SdpoSettings(phase_one=5)) != "6e79fa826c704a41"


def fingerprint_of(settings: SdpoSettings) -> str:
    return TrainSettings(problem=TASK, algorithm=settings, iterations=5, steps=6).fingerprint("")


def test_a_bonus_for_continuous_actions_is_refused():
    codec, space = ObservationCodec(spaces.Box(-1, 1, (2,))), spaces.Box(-1, 1, (1,))
    Sdpo(SdpoSettings(phase_one=5, phase_one_entropy=0.0), TASK, codec, space)
    with pytest.raises(SettingsError, match="phase_one_entropy: only policies over finitely many actions"):
        Sdpo(SdpoSettings(phase_one=5, phase_one_entropy=0.5), TASK, codec, space)
