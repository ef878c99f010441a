"""Exact evaluation and the optimum under expectation constraints, against brute force and simulation."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from portfolio_sdpo.envs import Cmdp, random_cmdp
from portfolio_sdpo.envs.exact import (
    enumerate_distribution,
    evaluate,
    rollout_returns,
    solve_expectation,
    solve_unconstrained,
    uniform_policy,
)
from portfolio_sdpo.envs.exact.evaluation import transition_rows
from portfolio_sdpo.errors import InfeasibleConstraintError, SettingsError
from portfolio_sdpo.risk import Constraint

TINY = random_cmdp(3, 2, seed=4, horizon=3, costs=("wear",))


def random_policy(cmdp, seed, clock=True):
    shape = (cmdp.states, cmdp.actions)
    weights = np.random.default_rng(seed).exponential(size=(cmdp.horizon, *shape) if clock else shape)
    return weights / weights.sum(-1, keepdims=True)


def paths(cmdp, policy, discount, state, signal="reward", t=0):
    """Every (return, probability) from a state on, by walking the tree."""
    if t == cmdp.horizon:
        yield 0.0, 1.0
        return
    for action in range(cmdp.actions):
        for successor, chance in zip(cmdp.successors[state, action], cmdp.probabilities[state, action], strict=True):
            for tail, weight in paths(cmdp, policy, discount, successor, signal, t + 1):
                value = cmdp.signal(signal)[state, action] + discount * tail
                yield value, policy[t, state, action] * chance * weight


def all_policies(cmdp):
    """Every deterministic policy [H, N, M]."""
    for choice in itertools.product(range(cmdp.actions), repeat=cmdp.horizon * cmdp.states):
        yield np.eye(cmdp.actions)[np.reshape(choice, (cmdp.horizon, cmdp.states))]


# --- evaluation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal", ["reward", "wear"])
@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_evaluation_and_law_equal_the_tree_of_paths(signal, discount):
    policy = random_policy(TINY, 0)
    found = evaluate(TINY, policy, discount, signal)
    distributions = enumerate_distribution(TINY, policy, discount, signal)
    for state in range(TINY.states):
        values, weights = np.array(list(paths(TINY, policy, discount, state, signal))).T
        mean = weights @ values
        assert found.means[state] == pytest.approx(mean)
        assert found.variances[state] == pytest.approx(weights @ (values - mean) ** 2)
        distribution = distributions[state]
        assert (np.diff(distribution.values) > 0).all()
        assert distribution.weights.sum() == pytest.approx(1)
        for level in (*distribution.values, values.mean()):
            assert distribution.weights[distribution.values <= level + 1e-9].sum() == pytest.approx(
                weights[values <= level + 1e-9].sum()
            )


def pooled_variance(found):
    """Var(Y) over episodes from all initial states: the mean variance from each, and what differs between them."""
    return found.variance + found.initial @ (found.means - found.mean) ** 2


def test_averages_over_initial_states():
    cmdp = replace(TINY, initial=np.array([0.5, 0.2, 0.3]))
    found = evaluate(cmdp, random_policy(cmdp, 1), 0.9)
    assert found.mean == pytest.approx(cmdp.initial @ found.means)
    assert found.variance == pytest.approx(cmdp.initial @ found.variances)
    distributions = enumerate_distribution(cmdp, random_policy(cmdp, 1), 0.9)
    second = sum(
        p * distribution.weights @ distribution.values**2
        for p, distribution in zip(cmdp.initial, distributions, strict=True)
    )
    assert pooled_variance(found) == pytest.approx(second - found.mean**2)


def test_evaluation_equals_simulation_with_noise():
    cmdp, episodes = random_cmdp(30, 4, seed=2, noise_scale=2.0, horizon=20), 40_000
    policy = random_policy(cmdp, 0)
    found = evaluate(cmdp, policy, 0.95)
    returns = rollout_returns(cmdp, policy, 0.95, episodes, np.random.default_rng(0))
    assert returns.shape == (episodes,)
    assert returns.mean() == pytest.approx(found.mean, abs=4 * (pooled_variance(found) / episodes) ** 0.5)
    assert returns.var() == pytest.approx(pooled_variance(found), rel=4 * (2 / episodes) ** 0.5)


def test_simulation_draws_from_the_enumerated_law():
    episodes, initial = 50_000, np.array([0.0, 1.0, 0.0])
    cmdp = replace(TINY, initial=initial)
    policy = random_policy(cmdp, 3)
    distribution = enumerate_distribution(cmdp, policy, 0.9, "wear")[1]
    returns = rollout_returns(cmdp, policy, 0.9, episodes, np.random.default_rng(1), "wear")
    nearest = np.abs(returns[:, None] - distribution.values).argmin(1)
    np.testing.assert_allclose(returns, distribution.values[nearest], atol=1e-9)
    frequencies = np.bincount(nearest, minlength=len(distribution.values)) / episodes
    np.testing.assert_allclose(frequencies, distribution.weights, atol=5 * 0.5 / episodes**0.5)


def test_a_policy_without_a_clock_is_the_same_at_all_times():
    policy = random_policy(TINY, 5, clock=False)
    repeated = np.broadcast_to(policy, (TINY.horizon, *policy.shape)).copy()
    np.testing.assert_allclose(evaluate(TINY, policy, 0.9).variances, evaluate(TINY, repeated, 0.9).variances)
    ours, theirs = (rollout_returns(TINY, table, 0.9, 50, np.random.default_rng(0)) for table in (policy, repeated))
    np.testing.assert_array_equal(ours, theirs)


def test_single_precision_policies_are_taken_as_they_come():
    policy = torch.softmax(torch.randn(TINY.states, TINY.actions), -1)
    double = policy.double() / policy.double().sum(-1, keepdim=True)
    assert evaluate(TINY, policy.numpy(), 0.9).mean == pytest.approx(
        evaluate(TINY, double.numpy(), 0.9).mean, abs=1e-12
    )


def test_equal_values_are_merged():
    cmdp = replace(TINY, reward=np.round(TINY.reward), horizon=12)
    distributions = enumerate_distribution(cmdp, uniform_policy(cmdp), 1.0)
    assert max(len(distribution.values) for distribution in distributions) <= 13
    assert sum(distribution.weights.sum() for distribution in distributions) == pytest.approx(3)


def test_enumeration_refuses_what_it_cannot_do():
    with pytest.raises(SettingsError, match="Gaussian noise"):
        enumerate_distribution(replace(TINY, noise=TINY.reward), uniform_policy(TINY), 0.9)
    with pytest.raises(SettingsError, match="limit of 1000"):
        enumerate_distribution(replace(TINY, horizon=50), uniform_policy(TINY), 0.9, limit=1000)


@pytest.mark.parametrize(
    "policy, discount, signal, field",
    [
        (np.ones((3, 2)), 0.9, "reward", "policy"),
        (np.array([[1.5, -0.5]] * 3), 0.9, "reward", "policy"),
        (np.full((3, 2), np.nan), 0.9, "reward", "policy"),
        (np.full((2, 3, 2), 0.5), 0.9, "reward", "policy"),
        (np.full((3, 2), 0.5), 0.0, "reward", "discount"),
        (np.full((3, 2), 0.5), 1.1, "reward", "discount"),
        (np.full((3, 2), 0.5), math.nan, "reward", "discount"),
        (np.full((3, 2), 0.5), 0.9, "hazards", "signal"),
    ],
)
def test_bad_input_is_refused_by_name(policy, discount, signal, field):
    with pytest.raises(SettingsError, match=field):
        evaluate(TINY, policy, discount, signal)
    with pytest.raises(SettingsError, match=field):
        enumerate_distribution(TINY, policy, discount, signal)
    with pytest.raises(SettingsError, match=field):
        rollout_returns(TINY, policy, discount, 5, np.random.default_rng(0), signal)


def test_simulation_needs_an_episode():
    with pytest.raises(SettingsError, match="episodes"):
        rollout_returns(TINY, uniform_policy(TINY), 0.9, 0, np.random.default_rng(0))


# --- expectation constraints ------------------------------------------------------------------------------------------


def wear(bound, sense="<=", discount=None, signal="wear"):
    return Constraint.from_spec(
        f"expectation of {signal} {sense} {bound!r}" + (f" discount={discount}" if discount else "")
    )


def test_without_constraints_the_program_equals_dynamic_programming_and_brute_force():
    cmdp = random_cmdp(20, 3, seed=7, horizon=10)
    free = solve_unconstrained(cmdp, 0.97)
    solution = solve_expectation(cmdp, [], 0.97)
    assert solution.mean == pytest.approx(free.mean)
    assert evaluate(cmdp, solution.policy, 0.97).mean == pytest.approx(free.mean)
    assert evaluate(cmdp, free.policy, 0.97).mean == pytest.approx(free.mean)
    assert solution.multipliers == solution.risks == ()
    tiny = replace(TINY, horizon=2)
    best = max(evaluate(tiny, policy, 0.9).mean for policy in all_policies(tiny))
    assert solve_unconstrained(tiny, 0.9).mean == pytest.approx(best)


@pytest.mark.parametrize("budget_discount", [None, 1.0, 0.5])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.5])
def test_one_constraint_equals_brute_force(share, budget_discount):
    cmdp, discount = replace(TINY, horizon=2), 0.9
    points = np.array(
        [
            (evaluate(cmdp, p, discount).mean, evaluate(cmdp, p, budget_discount or discount, "wear").mean)
            for p in all_policies(cmdp)
        ]
    )
    means, costs = points.T
    bound = (1 - share) * costs.min() + share * costs[means.argmax()]
    # The optimum is a mixture of at most two deterministic policies, one on each side of the bound.
    best = means[costs <= bound].max()
    for low, high in itertools.product(points[costs <= bound], points[costs > bound]):
        weight = (bound - low[1]) / (high[1] - low[1])
        best = max(best, (1 - weight) * low[0] + weight * high[0])
    solution = solve_expectation(cmdp, [wear(float(bound), discount=budget_discount)], discount)
    assert solution.mean == pytest.approx(best, abs=1e-8)
    assert evaluate(cmdp, solution.policy, discount).mean == pytest.approx(best, abs=1e-7)


def test_several_constraints_with_their_own_discounts():
    cmdp, discount = random_cmdp(15, 3, seed=3, horizon=20, costs=("wear", "tear", "idle")), 0.98
    constraints = [wear(6.0, discount=1.0), wear(5.0, signal="tear", discount=0.9), wear(1e3, signal="idle")]
    solution = solve_expectation(cmdp, constraints, discount)
    free = solve_unconstrained(cmdp, discount)
    assert solution.mean < free.mean
    for constraint, risk, slack, price in zip(
        constraints, solution.risks, solution.slacks, solution.multipliers, strict=True
    ):
        table = evaluate(cmdp, solution.policy, constraint.discount or discount, constraint.signal)
        assert table.mean == pytest.approx(risk, abs=1e-6)
        assert slack == pytest.approx(constraint.slack(risk))
        assert slack > -1e-7
        assert price >= 0
        assert slack * price == pytest.approx(0, abs=1e-6)  # complementary slackness
    assert solution.multipliers[2] == 0

    # Strong duality: what the Lagrangian's unconstrained optimum promises is what the program finds.
    def summed(name, gamma):
        return gamma ** np.arange(cmdp.horizon)[:, None, None] * cmdp.signal(name)

    gains = summed("reward", discount)
    for constraint, price in zip(constraints, solution.multipliers, strict=True):
        gains = gains - price * summed(constraint.signal, constraint.discount or discount)
    value = np.zeros(cmdp.states)
    for gain in gains[::-1]:
        value = (gain + (transition_rows(cmdp) @ value).reshape(gain.shape)).max(-1)
    promised = cmdp.initial @ value + sum(p * c.bound for p, c in zip(solution.multipliers, constraints, strict=True))
    assert promised == pytest.approx(solution.mean)


def test_multipliers_are_shadow_prices_in_both_senses():
    cmdp, step = random_cmdp(10, 3, seed=1, horizon=10, costs=("wear",)), 1e-3
    best = solve_unconstrained(cmdp, 0.99)
    idle = evaluate(cmdp, best.policy, 0.99, "wear").mean
    for sense, bound in (("<=", idle - 1), (">=", idle + 1)):
        solution = solve_expectation(cmdp, [wear(bound, sense)], 0.99)
        looser = solve_expectation(cmdp, [wear(bound + (step if sense == "<=" else -step), sense)], 0.99)
        assert solution.risks[0] == pytest.approx(bound)
        assert solution.multipliers[0] > 0
        assert (looser.mean - solution.mean) / step == pytest.approx(solution.multipliers[0], rel=1e-4)


def test_a_bad_state_is_entered_no_more_often_than_allowed():
    # State 0 works: slowly (0.1, safe) or fast (1, breaks with probability 0.2). State 1 is broken for good.
    cmdp = Cmdp(
        successors=np.array([[[0, 1], [0, 1]], [[1, 0], [1, 0]]]),
        probabilities=np.array([[[1.0, 0.0], [0.8, 0.2]], [[1.0, 0.0], [1.0, 0.0]]]),
        reward=np.array([[0.1, 1.0], [0.0, 0.0]]),
        noise=np.zeros((2, 2)),
        initial=np.array([1.0, 0.0]),
        horizon=2,
        costs={"crash": np.array([[0.0, 0.2], [0.0, 0.0]])},
    )
    limit = Constraint.from_spec("bad-state-probability of crash <= 0.1")
    solution = solve_expectation(cmdp, [limit], discount=1.0)
    assert solution.risks[0] == pytest.approx(0.1)
    # Fast in the last step breaks what is no longer needed: half of the time, 0.2 · 0.5 = 0.1.
    assert solution.mean == pytest.approx(0.1 + 0.5 * 1.0 + 0.5 * 0.1)
    np.testing.assert_allclose(solution.policy[:, 0], [[1, 0], [0.5, 0.5]], atol=1e-9)


def test_infeasible_constraints_tell_the_best_slack():
    cmdp = random_cmdp(10, 3, seed=1, horizon=10, costs=("wear",))
    least = -solve_unconstrained(replace(cmdp, reward=-cmdp.costs["wear"]), 0.99).mean
    with pytest.raises(InfeasibleConstraintError, match="expectation of wear <= 1") as caught:
        solve_expectation(cmdp, [wear(1.0)], 0.99)
    assert caught.value.best_slack == pytest.approx(1.0 - least)
    with pytest.raises(InfeasibleConstraintError, match="' and '") as caught:
        solve_expectation(cmdp, [wear(3.0), wear(4.0, ">=")], 0.99)
    assert caught.value.best_slack == pytest.approx(-0.5)
    assert solve_expectation(cmdp, [wear(least + 1e-6)], 0.99).slacks[0] > -1e-7


def test_the_program_refuses_what_it_cannot_do():
    with pytest.raises(SettingsError, match="solve_variance or solve_cvar"):
        solve_expectation(TINY, [Constraint.from_spec("variance of reward <= 2")], 0.9)
    with pytest.raises(SettingsError, match="hazards"):
        solve_expectation(TINY, [wear(1.0, signal="hazards")], 0.9)
    with pytest.raises(SettingsError, match="limit of 10"):
        solve_expectation(TINY, [], 0.9, limit=10)
