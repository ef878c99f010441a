"""The hedging problem: its environment against its exact distribution, its optima against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from portfolio_sdpo.envs.exact import evaluate_hedging, solve_hedging
from portfolio_sdpo.envs.hedging import HedgingVectorEnv
from portfolio_sdpo.errors import InfeasibleConstraintError, SettingsError

STATISTICS = {
    "variance": (lambda mu, y: (y - mu) ** 2, 0.5, np.linspace(-1, 1, 41)),
    "cvar": (lambda mu, y: mu + np.maximum(y - mu, 0) / 0.25, 1.0, np.arange(-2.0, 3.0)),
    "entropic": (lambda mu, y: np.exp(y), np.exp(0.35), (0.0,)),
    "upper deviation": (lambda mu, y: np.maximum(y, 0) ** 2, 0.49, (0.0,)),
}


def cautious(k, losses, shocks):
    """Hedge losses, and the more so the larger they are; let gains be."""
    risky = np.where(losses > 0, 0.5 ** losses.clip(0), 0.9)
    return np.stack([1 - risky, 0.75 * risky, 0.25 * risky], -1)


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_environment_has_the_exact_distribution(rounds):
    count = 20_000
    env = HedgingVectorEnv(count, rounds)
    rng = np.random.default_rng(0)
    seen, _ = env.reset(seed=1)
    reward, loss = np.zeros(count), np.zeros(count)
    for step in range(env.horizon):
        table = cautious(step // 2, seen[:, 1], seen[:, 2])
        actions = (rng.random(count)[:, None] >= table.cumsum(-1)[:, :2]).sum(-1)
        assert np.array_equal(seen[:, 1], loss) and (np.abs(seen[:, 2]) == step % 2).all()
        seen, earned, terminated, _, info = env.step(actions)
        over = step == env.horizon - 1
        assert (terminated == over).all()
        reward += earned
        loss += (info["final_info"] if over else info)["loss"]
    exact = evaluate_hedging(rounds, cautious)
    assert exact.weights.sum() == pytest.approx(1)
    assert reward.mean() == pytest.approx(exact.reward, abs=5 * reward.std() / count**0.5)
    for value, weight in zip(exact.losses, exact.weights, strict=True):
        assert (loss == value).mean() == pytest.approx(weight, abs=5 * (weight / count) ** 0.5 + 1e-9)


@pytest.mark.parametrize("name", STATISTICS)
def test_the_optimum_of_one_round_is_that_of_a_search(name):
    """Over all policies on a grid of probabilities: none is better, and one comes near."""
    statistic, bound, candidates = STATISTICS[name]
    best = solve_hedging(1, statistic, bound, candidates)
    grid = [(a, b, 1 - a - b) for a, b in product(np.linspace(0, 1, 11), repeat=2) if a + b <= 1 + 1e-9]
    found = 0.0
    for after_gain, after_loss in product(grid, repeat=2):
        weights = np.array([*after_gain[::-1], *after_loss]) / 2
        losses = np.array([-2.0, -1.0, 0.0, 0.0, 1.0, 2.0])
        reward = weights @ np.array([2.0, 1.0, 0.0, 0.0, 1.0, 2.0])
        if reward > found and min(weights @ statistic(mu, losses) for mu in candidates) <= bound + 1e-9:
            found = reward
    assert best - 0.12 <= found <= best + 1e-6


def test_more_rounds_are_worth_more_and_tighter_bounds_less():
    def value(rounds, bound):
        return solve_hedging(rounds, lambda mu, y: np.exp(y), np.exp(bound))

    assert value(1, 0.3) < value(1, 0.6) < value(3, 0.6) < 6.0
    assert value(2, 10.0) == pytest.approx(4.0)


def test_what_cannot_be_met_is_said():
    with pytest.raises(InfeasibleConstraintError, match="no policy meets the bound"):
        solve_hedging(1, lambda mu, y: np.ones_like(y), 0.1)
    with pytest.raises(SettingsError, match="at least one episode and one round"):
        HedgingVectorEnv(4, 0)
