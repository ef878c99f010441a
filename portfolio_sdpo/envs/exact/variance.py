"""The best mean under a bound on the variance of the return, as a bracket: a policy that reaches it, and a dual bound.

Above: Var(Y(s0)) ≥ Σ γ^{2t} E[σ²(s_t, a_t)], since conditioning on the path only removes variance; the right side is an
additive cost, so dynamic programming on r − λ γ^t σ² gives an upper bound for every λ, and the least one is kept.
Below: coordinate ascent on mean − λ·variance ends in a deterministic policy whose mean and variance are computed
exactly; λ is bisected until the variance is at the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.envs.exact.evaluation import Evaluation, check_discount, evaluate, look_ahead, transition_rows
from portfolio_sdpo.envs.random_cmdp import Array, Cmdp
from portfolio_sdpo.errors import InfeasibleConstraintError, SettingsError

Actions = NDArray[np.int64]
"""[H, N] a deterministic policy"""


@dataclass(frozen=True)
class Solution:
    """A policy and the mean of its return."""

    policy: Array
    """[H, N, M]"""
    mean: float


@dataclass(frozen=True)
class VarianceSolution(Solution):
    """A policy within the bound on variance, and how much better any policy could be."""

    variance: float
    """E_{s0}[Var(Y(s0))] of the policy, exactly"""
    upper_bound: float
    """no policy within the bound has a higher mean, if it looks at states, actions and time, not at past noise"""
    multiplier: float
    """λ of the Lagrangian mean − λ·variance that the policy maximises, locally: the bound's shadow price"""


class Candidate(NamedTuple):
    """A deterministic policy and its exact moments."""

    actions: Actions
    moments: Evaluation


@dataclass(frozen=True)
class Weights:
    """The Lagrangian mean − λ·variance, scaled so that both ends have a name: λ = 0 is (1, 0), λ = ∞ is (0, 1)."""

    mean: float
    variance: float

    @property
    def multiplier(self) -> float:
        """λ"""
        return self.variance / self.mean if self.mean > 0.0 else math.inf

    def objective(self, candidate: Candidate) -> float:
        return self.mean * candidate.moments.mean - self.variance * candidate.moments.variance


class MeanVariance:
    """Deterministic policies that maximise weighted mean and variance of a CMDP's reward."""

    def __init__(self, cmdp: Cmdp, discount: float) -> None:
        check_discount(discount)
        self.cmdp = cmdp
        self.discount = discount
        self._transitions = transition_rows(cmdp)
        self._noise = cmdp.noise**2
        self._states = np.arange(cmdp.states)

    def relax(self, weights: Weights) -> tuple[Actions, float]:
        """The policy that maximises mean − λ·Σ γ^{2t} E[σ²], and that maximum: dynamic programming on r − λ γ^t σ²."""
        actions = np.empty((self.cmdp.horizon, self.cmdp.states), dtype=np.int64)
        value = np.zeros(self.cmdp.states)
        for t in reversed(range(self.cmdp.horizon)):
            gain = weights.mean * self.cmdp.reward - weights.variance * self.discount**t * self._noise
            q = gain + self.discount * (self._transitions @ value).reshape(gain.shape)
            actions[t] = q.argmax(-1)
            value = q[self._states, actions[t]]
        return actions, float(self.cmdp.initial @ value)

    def maximise(self, weights: Weights, known: Sequence[Candidate] = (), sweeps: int = 4) -> Candidate:
        """A policy that maximises mean − λ·variance, locally.

        Start: in every state, what maximises mean − λ·variance of the return from there on. What that misses is how the
        past and the rest of the return add up, so sweeps of coordinate ascent follow; they are repeated from the best
        of the `known` policies if one of those is better still.
        """
        found = self._ascend(self._backward(weights, None), weights, sweeps)
        best = max([found, *known], key=weights.objective)
        return found if best is found else self._ascend(best, weights, sweeps)

    def _ascend(self, current: Candidate, weights: Weights, sweeps: int) -> Candidate:
        """Coordinate ascent on mean − λ·variance.

        Since Var(Y) = min_µ E[(Y − µ)²], with µ(s0) held at the current means and the choices before t held too, the
        best action at (t, s) maximises the exact objective: no sweep from H − 1 down to 0 makes it worse.
        """
        for _ in range(sweeps):
            candidate = self._backward(weights, self._past(current))
            gain = weights.objective(candidate) - weights.objective(current)
            if gain <= 1e-7 * abs(weights.objective(current)):
                break
            current = candidate
        return current

    def _backward(self, weights: Weights, past: Array | None) -> Candidate:
        """The best actions from the last time to the first, given E[c_t − µ | s_t] [H, N]; None looks ahead only."""
        actions = np.empty((self.cmdp.horizon, self.cmdp.states), dtype=np.int64)
        means, variances = np.zeros(self.cmdp.states), np.zeros(self.cmdp.states)
        for t in reversed(range(self.cmdp.horizon)):
            q, spread = look_ahead(self._transitions, self.cmdp.reward, self._noise, means, variances, self.discount)
            risk = self.discount**t * spread
            if past is not None:
                # E[(c_t + γ^t Y_a − µ)²] / γ^t = γ^t (Var Y_a + q_a²) + 2 E[c_t − µ] q_a + what no action changes
                risk += (self.discount**t * q + 2.0 * past[t][:, None]) * q
            actions[t] = (weights.mean * q - weights.variance * risk).argmax(-1)
            means, variances = q[self._states, actions[t]], spread[self._states, actions[t]]
        return Candidate(actions, Evaluation(means, variances, self.cmdp.initial))

    def moments(self, actions: Actions) -> Evaluation:
        """Exact mean and variance of a deterministic policy."""
        means, variances = np.zeros(self.cmdp.states), np.zeros(self.cmdp.states)
        for t in reversed(range(self.cmdp.horizon)):
            taken = self._states, actions[t]
            successors, chances = self.cmdp.successors[taken], self.cmdp.probabilities[taken]
            following = means[successors]
            expected = (chances * following).sum(-1)
            spread = (chances * (variances[successors] + (following - expected[:, None]) ** 2)).sum(-1)
            means = self.cmdp.reward[taken] + self.discount * expected
            variances = self._noise[taken] + self.discount**2 * spread
        return Evaluation(means, variances, self.cmdp.initial)

    def table(self, actions: Actions) -> Array:
        """[H, N, M] probabilities of a deterministic policy."""
        return np.eye(self.cmdp.actions)[actions]

    def _past(self, candidate: Candidate) -> Array:
        """[H, N] E[c_t − µ(s0) | s_t = s], c_t the return before t, µ the policy's means; 0 where s is not reached."""
        cmdp = self.cmdp
        past = np.zeros((cmdp.horizon, cmdp.states))
        visits, sums = cmdp.initial, -candidate.moments.means * cmdp.initial
        for t in range(cmdp.horizon):
            np.divide(sums, visits, out=past[t], where=visits > 0.0)
            taken = self._states, candidate.actions[t]
            targets, chances = cmdp.successors[taken], cmdp.probabilities[taken]
            sums = sums + self.discount**t * cmdp.reward[taken] * visits
            visits, sums = self._arrivals(targets, chances, visits), self._arrivals(targets, chances, sums)
        return past

    def _arrivals(self, targets: NDArray[np.int64], chances: Array, flow: Array) -> Array:
        """[N] where a flow [N] out of every state goes by its `chances` [N, K] of the states `targets` [N, K]."""
        weights = (chances * flow[:, None]).ravel()
        return np.bincount(targets.ravel(), weights, self.cmdp.states).astype(np.float64, copy=False)


def solve_unconstrained(cmdp: Cmdp, discount: float) -> Solution:
    """The policy with the highest mean, by dynamic programming."""
    search = MeanVariance(cmdp, discount)
    actions, mean = search.relax(Weights(1.0, 0.0))
    return Solution(search.table(actions), mean)


def solve_variance(cmdp: Cmdp, bound: float, discount: float, *, steps: int = 18) -> VarianceSolution:
    """The best mean with E_{s0}[Var(Y(s0))] ≤ bound, bracketed; λ is bisected `steps` times at most.

    Raises `InfeasibleConstraintError` if even the calmest policy found has a higher variance.
    """
    if not 0.0 <= bound < math.inf:
        raise SettingsError(f"bound: a variance is bounded by a finite number, not negative (got {bound}).")
    search = MeanVariance(cmdp, discount)
    free, highest = search.relax(Weights(1.0, 0.0))
    outside = Candidate(free, search.moments(free))
    if outside.moments.variance <= bound:
        return VarianceSolution(search.table(free), highest, outside.moments.variance, highest, 0.0)
    inside = search.maximise(Weights(0.0, 1.0), [outside], sweeps=10)
    if inside.moments.variance > bound:
        least = inside.moments.variance
        raise InfeasibleConstraintError(
            f"No policy with a variance of at most {bound:.6g} was found: the lowest has {least:.6g}.", bound - least
        )
    unit = max(abs(highest), 1e-3) / outside.moments.variance
    low, high, multiplier = 0.0, 1.0, math.inf
    for _ in range(steps):
        theta = 0.5 * (low + high)
        weights = at_angle(theta, unit)
        candidate = search.maximise(weights, [inside, outside])
        if candidate.moments.variance > bound:
            low, outside = theta, candidate
        else:
            high, multiplier = theta, weights.multiplier
            inside = max(inside, candidate, key=lambda found: found.moments.mean)
        if abs(outside.moments.mean - inside.moments.mean) <= 2e-5 * (1.0 + abs(inside.moments.mean)):
            break
    policy, moments = _approach_bound(search, inside, outside, bound)
    upper_bound = min(highest, _dual_bound(search, bound, unit))
    return VarianceSolution(policy, moments.mean, moments.variance, upper_bound, multiplier)


def at_angle(theta: float, unit: float) -> Weights:
    """The Lagrangian with λ = unit·θ / (1 − θ): θ from 0 to 1 covers every λ."""
    return Weights(1.0 - theta, unit * theta)


def _dual_bound(search: MeanVariance, bound: float, unit: float, steps: int = 30) -> float:
    """min over λ of [max over policies of mean − λ·Σ γ^{2t} E[σ²]] + λ·bound."""
    least, low, high = math.inf, 0.0, 1.0
    for _ in range(steps):
        weights = at_angle(0.5 * (low + high), unit)
        actions, value = search.relax(weights)
        least = min(least, value / weights.mean + weights.multiplier * bound)
        # The dual is convex and its slope at λ is the bound less the policy's cost.
        cost = (weights.mean * search.moments(actions).mean - value) / weights.variance
        low, high = (low, 0.5 * (low + high)) if cost <= bound else (0.5 * (low + high), high)
    return least


def _approach_bound(
    search: MeanVariance, inside: Candidate, outside: Candidate, bound: float, steps: int = 16
) -> tuple[Array, Evaluation]:
    """Go from a policy inside the bound towards one outside, as far as the bound allows.

    On small problems deterministic policies leave gaps. The way passes through the (t, s) in which the two differ, one
    after the other in both directions of time, and randomises in one only, since that has a variance of its own.
    """
    start, goal = search.table(inside.actions), search.table(outside.actions)
    best, moments = start, inside.moments
    differing = np.argwhere(inside.actions != outside.actions)
    for way in (differing, differing[::-1]) if len(differing) else ():
        times, states = way.T
        low, high = 0.0, float(len(way))
        for _ in range(steps):
            middle = 0.5 * (low + high)
            whole = int(middle)
            policy = start.copy()
            done, here = (times[:whole], states[:whole]), (times[whole], states[whole])
            policy[done] = goal[done]
            policy[here] += (middle - whole) * (goal[here] - start[here])
            reached = evaluate(search.cmdp, policy, search.discount)
            low, high = (middle, high) if reached.variance <= bound else (low, middle)
            if reached.variance <= bound and reached.mean > moments.mean:
                best, moments = policy, reached
    return best, moments
