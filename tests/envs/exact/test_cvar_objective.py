"""The highest CVaR within a bound on an expectation, against brute force, simulation and problems solved by hand."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest

from portfolio_sdpo.envs import Cmdp, random_cmdp
from portfolio_sdpo.envs.exact import evaluate, maximise_cvar, solve_expectation, solve_unconstrained
from portfolio_sdpo.envs.exact.cvar import simulate_cvar
from portfolio_sdpo.errors import InfeasibleConstraintError, SettingsError
from portfolio_sdpo.risk import Constraint

KAPPA = NormalDist().pdf(NormalDist().inv_cdf(0.1)) / 0.1
"""The 0.1-CVaR of a normal distribution is its mean less 1.755 standard deviations."""


def bounds(*specs):
    return tuple(map(Constraint.from_spec, specs))


def one_state(rewards, noise, horizon=1, **costs):
    """A CMDP that stays where it is: action a pays rewards[a] ± noise[a]."""
    count = len(rewards)
    return Cmdp(
        successors=np.zeros((1, count, 1), dtype=np.int64),
        probabilities=np.ones((1, count, 1)),
        reward=np.array([rewards], dtype=float),
        noise=np.array([noise], dtype=float),
        initial=np.ones(1),
        horizon=horizon,
        costs={name: np.array([values], dtype=float) for name, values in costs.items()},
    )


def normal_cvar(found):
    """Of exact moments, if the return from every s0 were normal."""
    return float(found.initial @ (found.means - KAPPA * np.sqrt(found.variances)))


def best_by_force(cmdp, spec, discount):
    """The highest normal CVaR of all deterministic policies within the bound."""
    best = -math.inf
    for choice in itertools.product(range(cmdp.actions), repeat=cmdp.horizon * cmdp.states):
        policy = np.eye(cmdp.actions)[np.reshape(choice, (cmdp.horizon, cmdp.states))]
        for constraint in bounds(*spec):
            own = discount if constraint.discount is None else constraint.discount
            if constraint.slack(evaluate(cmdp, policy, own, constraint.signal).mean) < 0:
                break
        else:
            best = max(best, normal_cvar(evaluate(cmdp, policy, discount)))
    return best


def test_the_right_number_of_risky_steps_by_hand():
    """k of nine risky steps: mean k, variance k, CVaR k − 1.755 √k, which grows from k = 1 on: all nine, or none."""
    cmdp = one_state([0, 1], [0, 1], horizon=9, wear=[0, 1])
    free = maximise_cvar(cmdp, 0.1, (), 1.0)
    assert (free.mean, free.cost) == (9, None)
    assert free.cvar == pytest.approx(9 - 3 * KAPPA, abs=1e-6)
    assert free.approximate_upper_bound == pytest.approx(free.cvar, abs=1e-3)
    assert free.standard_error == pytest.approx(0, abs=1e-9)
    # With at most two of them none is best: 2 − 1.755 √2 < 0.
    least = maximise_cvar(cmdp, 0.1, bounds("expectation of wear <= 2 discount=1"), 1.0)
    assert (least.mean, least.cvar, least.cost) == (0, pytest.approx(0, abs=1e-9), 0)


def test_a_tail_is_not_a_mean():
    """A sure 0.9 against 1 ± 1: the mean prefers the second action, the tail the first."""
    cmdp = one_state([0.9, 1.0], [0.0, 1.0], horizon=4)
    cautious = maximise_cvar(cmdp, 0.1, (), 1.0)
    assert solve_unconstrained(cmdp, 1.0).mean == 4
    assert (cautious.mean, cautious.cvar) == (pytest.approx(3.6), pytest.approx(3.6))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spec", [(), ("expectation of wear <= 1.2",), ("expectation of wear >= 1.2 discount=1",)])
def test_as_good_as_the_best_of_all_policies(seed, spec):
    """3 states, 2 actions, 3 steps: all 512 deterministic policies."""
    cmdp = random_cmdp(3, 2, seed=seed, noise_scale=2.0, horizon=3, costs=("wear",))
    best = best_by_force(cmdp, spec, 0.95)
    if best == -math.inf:
        with pytest.raises(InfeasibleConstraintError, match=r"'expectation of wear <= 1\.2' was found: the best slack"):
            maximise_cvar(cmdp, 0.1, bounds(*spec), 0.95)
        return
    found = maximise_cvar(cmdp, 0.1, bounds(*spec), 0.95, episodes=2000)
    moments = evaluate(cmdp, found.policy, 0.95)
    assert normal_cvar(moments) == pytest.approx(best, abs=1e-9)
    assert found.mean == pytest.approx(moments.mean)
    for constraint in bounds(*spec):
        own = 0.95 if constraint.discount is None else constraint.discount
        assert found.cost == pytest.approx(evaluate(cmdp, found.policy, own, "wear").mean)
        assert constraint.slack(found.cost) >= 0
    simulated = simulate_cvar(cmdp, found.policy, moments, 0.1, 0.95, 2000, seed=0)
    assert (found.cvar, found.standard_error) == pytest.approx(simulated)
    # An upper bound but for how much the variance differs between initial states, by 0.01 at most here.
    assert best <= found.approximate_upper_bound + 0.01


@pytest.mark.parametrize("spec", [("expectation of wear <= 9",), ("expectation of wear <= 99",)])
def test_the_bound_above_is_near_on_a_larger_problem(spec):
    """Also where the constraint does not bind, which changes nothing."""
    cmdp = random_cmdp(60, 4, seed=9, noise_scale=4.0, horizon=30, costs=("wear",))
    found = maximise_cvar(cmdp, 0.1, bounds(*spec), 0.99, episodes=5000)
    assert found.cvar <= found.approximate_upper_bound
    assert found.approximate_upper_bound - found.cvar < 0.25
    free = maximise_cvar(cmdp, 0.1, (), 0.99, episodes=5000)
    if "<= 9" in str(spec) and "99" not in str(spec):
        assert 8.9 < found.cost <= 9
        assert found.cvar < free.cvar - 0.1
        # Within the same bound the best mean has the worse tail.
        brave = solve_expectation(cmdp, bounds(*spec), 0.99)
        moments = evaluate(cmdp, brave.policy, 0.99)
        assert moments.mean > found.mean
        assert simulate_cvar(cmdp, brave.policy, moments, 0.1, 0.99, 5000, seed=0)[0] < found.cvar - 0.5
    else:
        np.testing.assert_array_equal(found.policy, free.policy)
        assert found.approximate_upper_bound == pytest.approx(free.approximate_upper_bound)


def test_a_signal_without_noise_leaves_the_mean():
    cmdp = random_cmdp(20, 3, seed=8, horizon=10)
    assert maximise_cvar(cmdp, 0.1, (), 0.99, episodes=500).mean == pytest.approx(solve_unconstrained(cmdp, 0.99).mean)


@pytest.mark.parametrize(
    "alpha, discount, spec, message",
    [
        (0.0, 0.9, (), "alpha: a tail fraction"),
        (0.1, 1.5, (), "discount"),
        (0.1, 0.9, ("variance of reward <= 1",), "maximise_cvar: knows at most one constraint"),
        (0.1, 0.9, ("expectation of wear <= 1", "expectation of wear >= 0"), "maximise_cvar: knows at most one"),
    ],
)
def test_what_it_does_not_know_is_refused(alpha, discount, spec, message):
    cmdp = random_cmdp(3, 2, seed=0, noise_scale=1.0, horizon=3, costs=("wear",))
    with pytest.raises(SettingsError, match=message):
        maximise_cvar(cmdp, alpha, bounds(*spec), discount)
