"""The best mean under a bound on the variance of the return, as a bracket: a policy that reaches it, and a dual bound.

Neither side is a heuristic. Above: Var(Y(s0)) ≥ Σ γ^{2t} E[σ²(s_t, a_t)], since conditioning on the path only removes
variance; the right side is an additive cost, so dynamic programming on r − λ γ^t σ² gives an upper bound for every λ,
and the least one is kept. Below: coordinate ascent on mean − λ·variance ends in a deterministic policy whose mean and
variance are computed exactly; λ is bisected until the variance is at the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

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
    """no policy within the bound has a higher mean, history-dependent ones included"""
    multiplier: float
    """λ of the Lagrangian mean − λ·variance that the policy maximises (locally): the bound's shadow price"""


@dataclass(frozen=True)
class Weights:
    """The Lagrangian mean − λ·variance, scaled so that both ends have a name: λ = 0 is (1, 0), λ = ∞ is (0, 1)."""

    mean: float
    variance: float

    @property
    def multiplier(self) -> float:
        """λ"""
        return self.variance / self.mean if self.mean > 0.0 else math.inf

    def objective(self, moments: Evaluation) -> float:
        return self.mean * moments.mean - self.variance * moments.variance


class MeanVariance:
    """Deterministic policies that maximise weighted mean and variance of a CMDP's reward."""

    def __init__(self, cmdp: Cmdp, discount: float) -> None:
        check_discount(discount)
        self.cmdp = cmdp
        self.discount = discount
        self._transitions = transition_rows(cmdp)
        self._noise = cmdp.noise**2
        self._states = np.arange(cmdp.states)

    def relaxed(self, weights: Weights) -> tuple[Actions, float]:
        """The policy that maximises mean − λ·Σ γ^{2t} E[σ²], and that maximum: dynamic programming on r − λ γ^t σ²."""
        actions = np.empty((self.cmdp.horizon, self.cmdp.states), dtype=np.int64)
        value = np.zeros(self.cmdp.states)
        for t in reversed(range(self.cmdp.horizon)):
            gain = weights.mean * self.cmdp.reward - weights.variance * self.discount**t * self._noise
            q = gain + self.discount * (self._transitions @ value).reshape(gain.shape)
            actions[t] = q.argmax(-1)
            value = q[self._states, actions[t]]
        return actions, float(self.cmdp.initial @ value)

    def maximise(self, weights: Weights, sweeps: int = 4) -> tuple[Actions, Evaluation]:
        """A policy that maximises mean − λ·variance, locally, and its exact moments.

        Start: in every state, what maximises mean − λ·variance of the return from there on. What that misses is how the
        past and the rest of the return add up, so sweeps of coordinate ascent follow. Since Var(Y) = min_µ E[(Y − µ)²],
        with µ(s0) held at the current means and the choices before t held too, the best action at (t, s) maximises
        the exact objective: no sweep from H − 1 down to 0 makes it worse.
        """
        actions, moments = self._backward(weights, None)
        for _ in range(sweeps):
            candidate, better = self._backward(weights, self._past(actions, moments.means))
            gain = weights.objective(better) - weights.objective(moments)
            if gain <= 1e-7 * abs(weights.objective(moments)):
                break
            actions, moments = candidate, better
        return actions, moments

    def _backward(self, weights: Weights, past: Array | None) -> tuple[Actions, Evaluation]:
        actions = np.empty((self.cmdp.horizon, self.cmdp.states), dtype=np.int64)
        means, variances = np.zeros(self.cmdp.states), np.zeros(self.cmdp.states)
        for t in reversed(range(self.cmdp.horizon)):
            q, spread = look_ahead(
                self._transitions, self.cmdp.reward, self._noise, means, variances, self.discount
            )
            risk = self.discount**t * spread
            if past is not None:
                # E[(c_t + γ^t Y_a − µ)²] / γ^t = γ^t (Var Y_a + q_a²) + 2 E[c_t − µ] q_a + what no action changes
                risk += (self.discount**t * q + 2.0 * past[t][:, None]) * q
            actions[t] = (weights.mean * q - weights.variance * risk).argmax(-1)
            means, variances = q[self._states, actions[t]], spread[self._states, actions[t]]
        return actions, Evaluation(means, variances, self.cmdp.initial)

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

    def _past(self, actions: Actions, centres: Array) -> Array:
        """[H, N] E[c_t − µ(s0) | s_t = s], c_t the return before t and µ = `centres` [N]; 0 where s is not reached."""
        cmdp = self.cmdp
        past = np.zeros((cmdp.horizon, cmdp.states))
        visits, sums = cmdp.initial, -centres * cmdp.initial
        for t in range(cmdp.horizon):
            np.divide(sums, visits, out=past[t], where=visits > 0.0)
            taken = self._states, actions[t]
            targets, chances = cmdp.successors[taken].ravel(), cmdp.probabilities[taken]
            sums = sums + self.discount**t * cmdp.reward[taken] * visits
            visits, sums = (
                np.bincount(targets, (chances * flow[:, None]).ravel(), cmdp.states) for flow in (visits, sums)
            )
        return past


def solve_unconstrained(cmdp: Cmdp, discount: float) -> Solution:
    """The policy with the highest mean, by dynamic programming."""
    search = MeanVariance(cmdp, discount)
    actions, mean = search.relaxed(Weights(1.0, 0.0))
    return Solution(search.table(actions), mean)


def solve_variance(cmdp: Cmdp, bound: float, discount: float, *, steps: int = 30) -> VarianceSolution:
    """The best mean with E_{s0}[Var(Y(s0))] ≤ bound, bracketed; λ is bisected `steps` times at most.

    Raises `InfeasibleConstraintError` if even the calmest policy found has a higher variance.
    """
    if not 0.0 <= bound < math.inf:
        raise SettingsError(f"bound: a variance is bounded by a finite number, not negative (got {bound}).")
    search = MeanVariance(cmdp, discount)
    free, highest = search.relaxed(Weights(1.0, 0.0))
    loose = search.moments(free)
    if loose.variance <= bound:
        return VarianceSolution(search.table(free), highest, loose.variance, highest, 0.0)

    # λ = unit·θ / (1 − θ): θ in [0, 1] covers all λ, with the middle where mean and variance count alike.
    unit = max(abs(highest), 1e-3) / loose.variance
    upper_bound = _dual_bound(search, bound, unit, steps)
    calmest, tight = search.maximise(Weights(0.0, 1.0))
    if tight.variance > bound:
        raise InfeasibleConstraintError(
            f"No policy with a variance of at most {bound:.6g} was found: the calmest has {tight.variance:.6g}.",
            bound - tight.variance,
        )

    inside, outside, multiplier = calmest, free, math.inf
    low, high = 0.0, 1.0
    for _ in range(steps):
        weights = at_angle(0.5 * (low + high), unit)
        actions, moments = search.maximise(weights)
        if moments.variance <= bound:
            high = 0.5 * (low + high)
            if moments.mean >= tight.mean:
                inside, tight, multiplier = actions, moments, weights.multiplier
        else:
            low, outside, loose = 0.5 * (low + high), actions, moments
        if abs(loose.mean - tight.mean) <= 1e-6 * (1.0 + abs(tight.mean)):
            break
    policy, moments = _between(search, inside, outside, lambda moments: moments.variance <= bound)
    if moments.mean < tight.mean:
        policy, moments = search.table(inside), tight
    return VarianceSolution(policy, moments.mean, moments.variance, max(upper_bound, moments.mean), multiplier)


def at_angle(theta: float, unit: float) -> Weights:
    """The Lagrangian with λ = unit·θ / (1 − θ)."""
    return Weights(1.0 - theta, unit * theta)


def _dual_bound(search: MeanVariance, bound: float, unit: float, steps: int) -> float:
    """min over λ of [max over policies of mean − λ·Σ γ^{2t} E[σ²]] + λ·bound."""
    least, low, high = math.inf, 0.0, 1.0
    for _ in range(steps):
        weights = at_angle(0.5 * (low + high), unit)
        actions, value = search.relaxed(weights)
        least = min(least, value / weights.mean + weights.multiplier * bound)
        # The dual is convex and its slope at λ is the bound less the policy's cost.
        cost = (weights.mean * search.moments(actions).mean - value) / weights.variance
        low, high = (low, 0.5 * (low + high)) if cost <= bound else (0.5 * (low + high), high)
    return least


def _between(
    search: MeanVariance, inside: Actions, outside: Actions, meets: Callable[[Evaluation], bool], steps: int = 12
) -> tuple[Array, Evaluation]:
    """Mix a policy inside the bound with one outside, as far towards the latter as the bound allows.

    Deterministic policies leave gaps on small problems. Randomising fills them, at the price of its own variance.
    """
    tables = search.table(inside), search.table(outside)
    best, moments = tables[0], search.moments(inside)
    low, high = 0.0, 1.0
    for _ in range(steps if (inside != outside).any() else 0):
        share = 0.5 * (low + high)
        policy = (1.0 - share) * tables[0] + share * tables[1]
        candidate = evaluate(search.cmdp, policy, search.discount)
        if meets(candidate):
            low = share
            if candidate.mean > moments.mean:
                best, moments = policy, candidate
        else:
            high = share
    return best, moments
