"""A good mean under a bound on the CVaR of the return: what is achievable, and about how much more could be.

Unlike mean and variance, the CVaR of a policy has no finite recursion. The search therefore runs over the policies that
maximise mean − λ·variance, whose moments are exact, and takes the return from s0 as normal there; the policy that is
returned has been simulated, and it is the simulated CVaR that meets the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from portfolio_sdpo.envs.exact.evaluation import Evaluation, rollout
from portfolio_sdpo.envs.exact.variance import Actions, MeanVariance, Solution, Weights, at_angle
from portfolio_sdpo.envs.random_cmdp import Array, Cmdp
from portfolio_sdpo.errors import InfeasibleConstraintError, SettingsError

GRID = 40
"""Values of λ tried first, to find where the CVaR crosses the bound."""


@dataclass(frozen=True)
class CvarSolution(Solution):
    """A policy whose CVaR meets the bound in simulation, the best of its family."""

    cvar: float
    """CVaR of the return over simulated episodes; see `residual_cvar`"""
    standard_error: float
    """of that estimate"""
    normal_cvar: float
    """E_{s0}[CVaR(Y(s0))] from exact moments if Y(s0) were normal: agreement with `cvar` says that it nearly is"""
    approximate_upper_bound: float
    """what no policy exceeds if returns are normal: an approximation, not a proof"""
    multiplier: float
    """λ of the Lagrangian mean − λ·variance that the policy maximises (locally)"""


def solve_cvar(
    cmdp: Cmdp, alpha: float, bound: float, discount: float, *, episodes: int = 20_000, seed: int = 0, steps: int = 20
) -> CvarSolution:
    """A high mean with the α-CVaR of the reward's return ≥ bound: the smallest λ of the family that meets it.

    Raises `InfeasibleConstraintError` if no policy of the family does.
    """
    if not 0.0 < alpha < 1.0:
        raise SettingsError(f"alpha: a tail fraction must lie strictly between 0 and 1 (got {alpha}).")
    if not math.isfinite(bound):
        raise SettingsError(f"bound: must be finite (got {bound}).")
    search = _Search(cmdp, alpha, discount, episodes, seed)
    family = search.grid()
    shift = 0.0  # simulated less normal CVaR
    best: CvarSolution | None = None
    for _ in range(4):
        met = [j for j, member in enumerate(family) if member.cvar + shift >= bound]
        if not met:
            break
        found = search.refine(family, met[0], bound - shift, steps)
        cvar, error = search.simulate(found)
        if cvar >= bound and (best is None or found.moments.mean > best.mean):
            best = CvarSolution(
                policy=search.table(found.actions),
                mean=found.moments.mean,
                cvar=cvar,
                standard_error=error,
                normal_cvar=found.cvar,
                approximate_upper_bound=max(search.upper_bound(bound), found.moments.mean),
                multiplier=search.weights(found.theta).multiplier,
            )
        # The same random numbers serve every simulation, so the shift hardly moves between neighbouring policies.
        shift, last = cvar - found.cvar, shift
        if (cvar >= bound and found.theta == 0.0) or abs(shift - last) < 1e-3 * (1.0 + abs(bound)):
            shift -= 1e-3 * (1.0 + abs(bound)) if cvar < bound else 0.0
            if best is not None:
                break
    if best is None:
        slack = max(member.cvar for member in family) + shift - bound
        raise InfeasibleConstraintError(
            f"No policy with a {alpha:g}-CVaR of at least {bound:.6g} was found: the best slack is {slack:.6g}.", slack
        )
    return best


def residual_cvar(values: Array, centres: Array, mean: float, alpha: float) -> tuple[float, float]:
    """`mean` + CVaR of values − centres, both [episodes], and its standard error.

    With the exact E[Y(s0)] of each episode as its centre, this estimates E_{s0}[CVaR(Y(s0))] without needing many
    episodes from each s0. It errs on the safe side: pooling laws of different width only lowers the lower tail's mean.
    """
    residuals = np.sort(values - centres)
    tail = alpha * len(residuals)
    weights = np.clip(tail - np.arange(len(residuals)), 0.0, 1.0) / tail
    quantile = residuals[min(int(tail), len(residuals) - 1)]
    influence = quantile - np.maximum(quantile - residuals, 0.0) / alpha
    return mean + float(weights @ residuals), float(influence.std() / math.sqrt(len(residuals)))


@dataclass(frozen=True)
class _Member:
    """A policy of the family, its exact moments and its CVaR if returns are normal."""

    theta: float
    actions: Actions
    moments: Evaluation
    cvar: float


class _Search:
    """The family of policies that maximise mean − λ·variance, λ = unit·θ / (1 − θ)."""

    def __init__(self, cmdp: Cmdp, alpha: float, discount: float, episodes: int, seed: int) -> None:
        self.search = MeanVariance(cmdp, discount)
        self.table = self.search.table
        self.alpha, self.episodes, self.seed = alpha, episodes, seed
        normal = NormalDist()
        self.factor = normal.pdf(normal.inv_cdf(alpha)) / alpha
        """CVaR of a normal law is its mean less this many standard deviations."""
        free, _ = self.search.relaxed(Weights(1.0, 0.0))
        moments = self.search.moments(free)
        self.unit = max(abs(moments.mean), 1e-3) / max(moments.variance, 1e-9)

    def weights(self, theta: float) -> Weights:
        return at_angle(theta, self.unit)

    def grid(self) -> list[_Member]:
        """Roughly optimised members for λ from 0 to ∞."""
        thetas = np.linspace(0.0, 1.0, GRID + 1).tolist()
        return [self.member(*self.search.maximise(self.weights(theta), sweeps=0), theta) for theta in thetas]

    def member(self, actions: Actions, moments: Evaluation, theta: float) -> _Member:
        cvar = float(moments.initial @ (moments.means - self.factor * np.sqrt(moments.variances)))
        return _Member(theta, actions, moments, cvar)

    def refine(self, family: list[_Member], index: int, target: float, steps: int) -> _Member:
        """The smallest θ whose normal CVaR is at least `target`, between two neighbours on the grid."""
        best = family[index]
        if index == 0:
            return best
        low, high = family[index - 1].theta, best.theta
        for _ in range(steps):
            theta = 0.5 * (low + high)
            member = self.member(*self.search.maximise(self.weights(theta)), theta)
            if member.cvar < target:
                low = theta
                continue
            high = theta
            if member.moments.mean > best.moments.mean:
                best = member
        return best

    def simulate(self, member: _Member) -> tuple[float, float]:
        """CVaR of a policy over fresh episodes, and its standard error."""
        rng = np.random.default_rng(self.seed)
        first, returns = rollout(self.search.cmdp, self.table(member.actions), self.search.discount, self.episodes, rng)
        return residual_cvar(returns, member.moments.means[first], member.moments.mean, self.alpha)

    def upper_bound(self, bound: float) -> float:
        """The largest m with m ≤ W + λ·((m − bound) / factor)² for all λ tried: a normal law with mean m and CVaR ≥ bound
        has no larger variance than that."""
        means = np.linspace(bound, self.search.relaxed(Weights(1.0, 0.0))[1], 10_001)
        lowest = np.full_like(means, math.inf)
        for theta in np.linspace(0.0, 1.0, GRID, endpoint=False).tolist():
            weights = self.weights(theta)
            height = self.search.relaxed(weights)[1] / weights.mean
            np.minimum(lowest, height + weights.multiplier * ((means - bound) / self.factor) ** 2, out=lowest)
        return float(means[lowest >= means - 1e-9].max(initial=bound))
