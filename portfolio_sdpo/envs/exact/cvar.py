"""A good mean under a bound on the CVaR of the return: what is achievable, and about how much more could be.

Unlike mean and variance, the CVaR of a policy has no finite recursion. The search therefore runs over policies that
maximise mean − λ·variance, whose moments are exact, as if the return from s0 were normal. The policy that it returns
has been simulated, and it is the simulated CVaR that meets the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from portfolio_sdpo.envs.exact.evaluation import Evaluation, rollout
from portfolio_sdpo.envs.exact.variance import Actions, MeanVariance, Solution, Weights, at_angle
from portfolio_sdpo.envs.random_cmdp import Array, Cmdp
from portfolio_sdpo.errors import InfeasibleConstraintError, SettingsError

GRID = 40
"""Values of λ tried first, to find where the CVaR crosses the bound."""
TOLERANCE = 1e-4
"""How far inside the bound, relative to its size, the search may stop."""


@dataclass(frozen=True)
class CvarSolution(Solution):
    """A policy whose CVaR meets the bound in simulation, the best of its family."""

    cvar: float
    """E_{s0}[CVaR(Y(s0))] from simulated paths, see `simulate_cvar`"""
    standard_error: float
    """of that estimate"""
    normal_cvar: float
    """the same from exact moments if Y(s0) were normal; close to `cvar` where that is nearly so"""
    approximate_upper_bound: float
    """what no policy exceeds if returns are normal: an approximation, not a proof"""
    multiplier: float
    """λ of the Lagrangian mean − λ·variance that the policy maximises, locally"""


def solve_cvar(
    cmdp: Cmdp, alpha: float, bound: float, discount: float, *, episodes: int = 20_000, seed: int = 0
) -> CvarSolution:
    """A high mean with the α-CVaR of the reward's return ≥ bound: the smallest λ of the family that meets it.

    Raises `InfeasibleConstraintError` if no policy of the family does.
    """
    if not 0.0 < alpha < 1.0:
        raise SettingsError(f"alpha: a tail fraction must lie strictly between 0 and 1 (got {alpha}).")
    if not math.isfinite(bound):
        raise SettingsError(f"bound: must be finite (got {bound}).")
    family = _Family(cmdp, alpha, discount, episodes, seed)
    tolerance = TOLERANCE * (1.0 + abs(bound))
    shift = 0.0  # simulated less normal CVaR; the same random numbers serve every simulation, so it hardly moves
    best: CvarSolution | None = None
    for _ in range(5):
        member = family.first(bound - shift)
        if member is None:
            break
        cvar, error = family.simulate(member)
        shift = cvar - member.cvar - 0.1 * tolerance
        if cvar < bound:
            continue
        if best is None or member.moments.mean > best.mean:
            best = CvarSolution(
                policy=family.search.table(member.actions),
                mean=member.moments.mean,
                cvar=cvar,
                standard_error=error,
                normal_cvar=member.cvar,
                approximate_upper_bound=max(family.upper_bound(bound - shift), member.moments.mean),
                multiplier=family.weights(member.theta).multiplier,
            )
        if cvar <= bound + tolerance or member.theta == 0.0:
            break
    if best is None:
        slack = max(member.cvar for member in family.grid) + shift - bound
        raise InfeasibleConstraintError(
            f"No policy with a {alpha:g}-CVaR of at least {bound:.6g} was found: the best slack is {slack:.6g}.", slack
        )
    return best


def simulate_cvar(
    cmdp: Cmdp, policy: Array, moments: Evaluation, alpha: float, discount: float, episodes: int, seed: int
) -> tuple[float, float]:
    """E_{s0}[CVaR_α(Y(s0))] of a policy [H, N, M] with these exact moments, and the standard error of the estimate.

    Given the path the return is normal, so only paths are simulated and their noise is integrated exactly: the
    distribution is a mixture of `episodes` normals. Each is taken about the exact mean of its own s0, which spares many
    episodes from every s0 and errs on the safe side: pooling distributions of different width can only lower the mean
    of the lower tail.
    """
    from scipy.special import ndtr

    paths = replace(cmdp, noise=np.zeros_like(cmdp.noise), costs={"noise": cmdp.noise**2})
    first, returns = rollout(
        paths, policy, {"reward": discount, "noise": discount**2}, episodes, np.random.default_rng(seed)
    )
    centres = returns["reward"] - moments.means[first]
    # A path without noise is a normal of next to no width.
    widths = np.sqrt(returns["noise"]) + 1e-12 * (1.0 + np.abs(centres))
    low, high = float((centres - 40.0 * widths).min()), float((centres + 40.0 * widths).max())
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if ndtr((middle - centres) / widths).mean() < alpha else (low, middle)
    # CVaR = ν − E[max(ν − Y, 0)] / α at the α-quantile ν
    z = (high - centres) / widths
    shortfall = (high - centres) * ndtr(z) + widths * np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    influence = high - shortfall / alpha
    return moments.mean + float(influence.mean()), float(influence.std() / math.sqrt(episodes))


@dataclass(frozen=True)
class _Member:
    """A policy of the family, its exact moments and its CVaR if returns are normal."""

    theta: float
    actions: Actions
    moments: Evaluation
    cvar: float


class _Family:
    """Policies that maximise mean − λ·variance, λ = unit·θ / (1 − θ)."""

    def __init__(self, cmdp: Cmdp, alpha: float, discount: float, episodes: int, seed: int) -> None:
        self.search = MeanVariance(cmdp, discount)
        self.alpha, self.episodes, self.seed = alpha, episodes, seed
        normal = NormalDist()
        self._factor = normal.pdf(normal.inv_cdf(alpha)) / alpha
        """CVaR of a normal distribution is its mean less this many standard deviations."""
        free, self._highest = self.search.relax(Weights(1.0, 0.0))
        self._unit = max(abs(self._highest), 1e-3) / max(self.search.moments(free).variance, 1e-9)
        self.grid = [self._member(theta, sweeps=0) for theta in np.linspace(0.0, 1.0, GRID + 1).tolist()]

    def weights(self, theta: float) -> Weights:
        return at_angle(theta, self._unit)

    def _member(self, theta: float, sweeps: int) -> _Member:
        actions, moments = self.search.maximise(self.weights(theta), sweeps=sweeps)
        cvar = float(moments.initial @ (moments.means - self._factor * np.sqrt(moments.variances)))
        return _Member(theta, actions, moments, cvar)

    def first(self, target: float, steps: int = 25) -> _Member | None:
        """The member with the smallest θ whose normal CVaR is at least `target`."""
        met = next((index for index, member in enumerate(self.grid) if member.cvar >= target), None)
        if met is None or met == 0:
            return None if met is None else self.grid[0]
        outside, best = self.grid[met - 1], self.grid[met]
        low, high = outside.theta, best.theta
        for _ in range(steps):
            member = self._member(0.5 * (low + high), sweeps=4)
            if member.cvar < target:
                low, outside = member.theta, member
            else:
                high = member.theta
                best = max(best, member, key=lambda candidate: candidate.moments.mean)
            if abs(outside.moments.mean - best.moments.mean) <= 1e-6 * (1.0 + abs(best.moments.mean)):
                break
        return best

    def simulate(self, member: _Member) -> tuple[float, float]:
        """CVaR of a member's policy over fresh paths, and its standard error."""
        policy = self.search.table(member.actions)
        return simulate_cvar(
            self.search.cmdp, policy, member.moments, self.alpha, self.search.discount, self.episodes, self.seed
        )

    def upper_bound(self, bound: float) -> float:
        """The largest m ≤ W(λ) + λ·((m − bound) / factor)² for all λ, W the maximum of mean − λ·variance or more.

        A normal distribution with mean m and a CVaR of at least `bound` has no larger variance than that square.
        """
        means = np.linspace(min(bound, self._highest), self._highest, 10_001)
        lowest = np.full_like(means, math.inf)
        for theta in np.linspace(0.0, 1.0, GRID, endpoint=False).tolist():
            weights = self.weights(theta)
            height = self.search.relax(weights)[1] / weights.mean
            np.minimum(lowest, height + weights.multiplier * ((means - bound) / self._factor) ** 2, out=lowest)
        return float(means[lowest >= means - 1e-9].max(initial=means[0]))
