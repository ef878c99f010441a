"""The best mean under a bound on variance or CVaR, against brute force, simulation and problems solved by hand."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.envs import Cmdp, random_cmdp
from portfolio_sdpo.envs.exact import (
    enumerate_distribution,
    evaluate,
    rollout_returns,
    solve_cvar,
    solve_unconstrained,
    solve_variance,
    uniform_policy,
)
from portfolio_sdpo.envs.exact.cvar import simulate_cvar
from portfolio_sdpo.envs.exact.variance import Candidate, MeanVariance, Weights, at_angle
from portfolio_sdpo.errors import InfeasibleConstraintError, SettingsError
from portfolio_sdpo.risk import CVaR

TINY = random_cmdp(3, 2, seed=4, horizon=3)


def all_policies(cmdp):
    """Every deterministic policy [H, N, M]."""
    for choice in itertools.product(range(cmdp.actions), repeat=cmdp.horizon * cmdp.states):
        yield np.eye(cmdp.actions)[np.reshape(choice, (cmdp.horizon, cmdp.states))]


def one_state(rewards, noise, horizon=1):
    """A CMDP that stays where it is: action a pays rewards[a] ± noise[a]."""
    count = len(rewards)
    return Cmdp(
        successors=np.zeros((1, count, 1), dtype=np.int64),
        probabilities=np.ones((1, count, 1)),
        reward=np.array([rewards], dtype=float),
        noise=np.array([noise], dtype=float),
        initial=np.ones(1),
        horizon=horizon,
    )


# --- variance ---------------------------------------------------------------------------------------------------------


def test_one_risky_step_by_hand():
    # Risky with probability p: mean p, variance p·1 + p(1 − p). At the bound 0.36, p = 0.2; without its own, p = 0.36.
    solution = solve_variance(one_state([0, 1], [0, 1]), bound=0.36, discount=0.9)
    assert solution.mean == pytest.approx(0.2, abs=1e-4)
    assert solution.variance == pytest.approx(0.36, abs=1e-4)
    assert solution.upper_bound == pytest.approx(0.36)


def test_four_risky_steps_by_hand():
    # Each risky step adds 1 to mean and variance: two of four fill the bound 2 exactly, whatever the policy.
    solution = solve_variance(one_state([0, 1], [0, 1], horizon=4), bound=2.0, discount=1.0)
    assert solution.mean == pytest.approx(2.0, abs=1e-4)
    assert solution.variance <= 2.0
    assert solution.upper_bound == pytest.approx(2.0)
    assert solution.multiplier == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_variance_bracket(share):
    cmdp, discount = random_cmdp(200, 5, seed=8, noise_scale=1.0, horizon=40), 0.99
    free = solve_unconstrained(cmdp, discount)
    bound = share * evaluate(cmdp, free.policy, discount).variance
    solution = solve_variance(cmdp, bound, discount)
    found = evaluate(cmdp, solution.policy, discount)
    assert (found.mean, found.variance) == (pytest.approx(solution.mean), pytest.approx(solution.variance))
    assert bound * 0.99 <= solution.variance <= bound
    assert solution.mean <= solution.upper_bound <= free.mean
    assert solution.upper_bound - solution.mean <= 0.02 * free.mean
    assert solution.multiplier > 0


def test_no_tiny_policy_beats_the_bracket():
    cmdp = random_cmdp(3, 2, seed=2, noise_scale=1.0, horizon=3)
    moments = [(found.mean, found.variance) for found in (evaluate(cmdp, p, 0.95) for p in all_policies(cmdp))]
    for bound in (0.2, 0.4, 0.6):
        best = max(mean for mean, variance in moments if variance <= bound)
        solution = solve_variance(cmdp, bound, 0.95)
        assert best <= solution.mean + 1e-9
        assert solution.mean <= solution.upper_bound + 1e-9
        assert solution.variance <= bound


def test_a_bound_that_does_not_bind_changes_nothing():
    cmdp = random_cmdp(20, 3, seed=8, noise_scale=1.0, horizon=10)
    solution, free = solve_variance(cmdp, 1e3, 0.99), solve_unconstrained(cmdp, 0.99)
    assert (solution.mean, solution.upper_bound, solution.multiplier) == (free.mean, free.mean, 0)
    np.testing.assert_array_equal(solution.policy, free.policy)


def test_an_unreachable_variance_tells_the_best_slack():
    with pytest.raises(InfeasibleConstraintError, match=r"lowest has 0\.5") as caught:
        solve_variance(one_state([0, 1], [0.5, 1], horizon=2), bound=0.2, discount=1.0)
    assert caught.value.best_slack == pytest.approx(-0.3)


@pytest.mark.parametrize("bound", [-1.0, math.nan, math.inf])
def test_impossible_variances_are_refused(bound):
    with pytest.raises(SettingsError, match="bound"):
        solve_variance(TINY, bound, 0.9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 1), st.sampled_from([0.0, 1.0]), st.sampled_from([0.6, 1.0]))
def test_a_sweep_never_makes_the_lagrangian_worse(seed, theta, scale, discount):
    cmdp = random_cmdp(6, 3, seed=seed, noise_scale=scale, horizon=6)
    search, weights = MeanVariance(cmdp, discount), at_angle(theta, unit=3.0)
    actions = np.random.default_rng(seed).integers(3, size=(6, 6))
    candidate = Candidate(actions, search.moments(actions))
    table = evaluate(cmdp, search.table(actions), discount)
    np.testing.assert_allclose(candidate.moments.means, table.means)
    np.testing.assert_allclose(candidate.moments.variances, table.variances, atol=1e-12)
    for _ in range(4):
        better = search._backward(weights, search._past(candidate))
        assert weights.objective(better) >= weights.objective(candidate) - 1e-12
        candidate = better


def test_the_paper_sized_problem_has_the_published_optimum():
    cmdp = random_cmdp(seed=5, noise_scale=1.0)
    uniform = evaluate(cmdp, uniform_policy(cmdp), 0.99)
    assert (uniform.mean, uniform.variance) == (pytest.approx(31.471, abs=1e-3), pytest.approx(9.638, abs=1e-3))
    search, weights = MeanVariance(cmdp, 0.99), Weights(1.0, 0.7205)
    found = search.maximise(weights).moments
    assert (found.mean, found.variance) == (pytest.approx(50.83, abs=0.02), pytest.approx(12.0, abs=0.03))
    assert search.relax(weights)[1] + 0.7205 * 12 == pytest.approx(50.93, abs=0.01)


# --- CVaR -------------------------------------------------------------------------------------------------------------


def test_the_cvar_of_a_normal_return_by_hand():
    cmdp = one_state([1.0], [2.0], horizon=4)  # N(4, 16)
    factor = math.exp(-0.5 * 1.2815515655**2) / math.sqrt(2 * math.pi) / 0.1
    solution = solve_cvar(cmdp, alpha=0.1, bound=-4.0, discount=1.0)
    assert solution.mean == solution.approximate_upper_bound == 4
    assert solution.cvar == pytest.approx(4 - 4 * factor, abs=1e-6)
    assert solution.normal_cvar == pytest.approx(4 - 4 * factor)
    assert solution.standard_error == pytest.approx(0, abs=1e-9)
    with pytest.raises(InfeasibleConstraintError, match=r"0\.1-CVaR of at least 0") as caught:
        solve_cvar(cmdp, alpha=0.1, bound=0.0, discount=1.0)
    assert caught.value.best_slack == pytest.approx(4 - 4 * factor, abs=1e-3)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.8])
def test_simulated_cvar_without_noise_equals_that_of_the_law(alpha):
    cmdp = replace(random_cmdp(3, 2, seed=6, horizon=4), initial=np.array([1.0, 0.0, 0.0]))
    policy = np.random.default_rng(1).dirichlet(np.ones(2), size=(4, 3))
    values, weights = enumerate_distribution(cmdp, policy, 0.9)[0]
    exact = float(CVaR(alpha=alpha)(torch.from_numpy(values), torch.from_numpy(weights)))
    cvar, error = simulate_cvar(cmdp, policy, evaluate(cmdp, policy, 0.9), alpha, 0.9, episodes=40_000, seed=0)
    assert 0 < error < 0.02
    assert cvar == pytest.approx(exact, abs=4 * error)


def test_cvar_is_met_by_fresh_episodes():
    cmdp, discount, alpha, episodes = random_cmdp(100, 4, seed=9, noise_scale=4.0, horizon=40), 0.99, 0.1, 40_000
    free = solve_unconstrained(cmdp, discount)
    factor = 1.7549833
    wild = evaluate(cmdp, free.policy, discount)
    bound = wild.mean - factor * wild.variance**0.5 + 2.0
    solution = solve_cvar(cmdp, alpha, bound, discount)
    found = evaluate(cmdp, solution.policy, discount)
    assert found.mean == pytest.approx(solution.mean)
    assert bound <= solution.cvar <= bound + 0.01
    assert solution.normal_cvar == pytest.approx(solution.cvar, abs=0.2)
    assert solution.standard_error < 0.02
    assert solution.mean <= solution.approximate_upper_bound < free.mean
    assert solution.approximate_upper_bound - solution.mean < 0.02 * free.mean

    returns = rollout_returns(cmdp, solution.policy, discount, episodes, np.random.default_rng(123))
    cvar = float(CVaR(alpha=alpha)(torch.from_numpy(returns)))
    error = returns.std() * 2.5 / episodes**0.5
    # All episodes together also see the difference between initial states, which is small here.
    assert bound - 4 * error - 0.2 < cvar < bound + 4 * error


def test_it_is_the_simulated_cvar_that_counts():
    # From state 0: 0.5 for sure, or 1 and a loss of 3 with probability 0.05. The 0.1-CVaR of that is 1 − 3/2 = −0.5; a
    # normal distribution with its mean 0.85 and standard deviation 0.65 would have −0.3.
    cmdp = Cmdp(
        successors=np.array([[[1, 2], [1, 2]], [[1, 2], [1, 2]], [[1, 2], [1, 2]]]),
        probabilities=np.array([[[1, 0], [0.95, 0.05]], [[1, 0], [1, 0]], [[1, 0], [1, 0]]]),
        reward=np.array([[0.5, 1.0], [0.0, 0.0], [-3.0, -3.0]]),
        noise=np.zeros((3, 2)),
        initial=np.array([1.0, 0.0, 0.0]),
        horizon=2,
    )
    loose = solve_cvar(cmdp, 0.1, -0.6, 1.0)
    assert (loose.mean, loose.cvar) == (pytest.approx(0.85), pytest.approx(-0.5, abs=4 * loose.standard_error))
    tight = solve_cvar(cmdp, 0.1, -0.4, 1.0)
    assert (tight.mean, tight.cvar) == (pytest.approx(0.5), pytest.approx(0.5))


def test_a_cvar_that_does_not_bind_changes_nothing():
    cmdp = random_cmdp(20, 3, seed=8, horizon=10)
    solution, free = solve_cvar(cmdp, 0.1, 0.0, 0.99, episodes=500), solve_unconstrained(cmdp, 0.99)
    assert (solution.mean, solution.multiplier) == (pytest.approx(free.mean), 0)


@pytest.mark.parametrize("alpha, bound, field", [(0, 1, "alpha"), (1, 1, "alpha"), (math.nan, 1, "alpha")])
def test_bad_tail_fractions_are_refused(alpha, bound, field):
    with pytest.raises(SettingsError, match=field):
        solve_cvar(TINY, alpha, bound, 0.9)
    with pytest.raises(SettingsError, match="bound"):
        solve_cvar(TINY, 0.1, math.nan, 0.9)
