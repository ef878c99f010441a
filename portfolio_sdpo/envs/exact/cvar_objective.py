"""The highest CVaR of the return under at most one bound on an expectation: what is achievable.

As in `cvar`, the return from s0 is taken as normal, with κ so that its α-CVaR is m − κ√v. Since −√v = max over x > 0 of
−(v/x + x)/2, the CVaR is the maximum over λ > 0 of

    m − λ v − κ² / (4λ),      at its best with λ = κ / (2√v).

With v bounded from below by its additive part Σ γ^{2t} E[σ²] (see `variance`) and the bound priced by µ, dynamic
programming on r − λ γ^t σ² − µ c maximises that for every (λ, µ). µ is bisected for every λ until the bound holds, and
λ is searched. The policy that is returned has exact mean, variance and cost, and its CVaR is simulated; the dual value
is an upper bound as far as returns are normal and their variance is about the same from every s0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from portfolio_sdpo.envs.exact.cvar import simulate_cvar
from portfolio_sdpo.envs.exact.evaluation import check_discount, evaluate, transition_rows, uniform_policy
from portfolio_sdpo.envs.exact.variance import Actions, Solution
from portfolio_sdpo.envs.random_cmdp import Array, Cmdp
from portfolio_sdpo.errors import InfeasibleConstraintError, SettingsError
from portfolio_sdpo.risk import BadStateProbability, Constraint, Expectation

GRID = 24
"""Values of λ tried first."""


@dataclass(frozen=True)
class CvarObjectiveSolution(Solution):
    """A deterministic policy within the bound, with the highest normal CVaR of its family."""

    cvar: float
    """E_{s0}[CVaR(Y(s0))] from simulated paths, see `simulate_cvar`"""
    standard_error: float
    """of that estimate"""
    cost: float | None
    """expectation that the constraint bounds, exactly; None without a constraint"""
    approximate_upper_bound: float
    """what no policy exceeds if returns are normal: an approximation, not a proof"""


def maximise_cvar(
    cmdp: Cmdp, alpha: float, constraints: Sequence[Constraint], discount: float, *, episodes: int = 20_000
) -> CvarObjectiveSolution:
    """A policy with a high α-CVaR of the reward's return, within at most one constraint on an expectation.

    Raises `InfeasibleConstraintError` if no policy meets the bound, `SettingsError` for other constraints.
    """
    if not 0.0 < alpha < 1.0:
        raise SettingsError(f"alpha: a tail fraction must lie strictly between 0 and 1 (got {alpha}).")
    check_discount(discount)
    search = _Search(cmdp, alpha, constraints, discount)
    lowest, highest = search.range
    grid = np.geomspace(lowest, highest, GRID).tolist()
    best = max((search.solve(lam) for lam in grid), key=lambda candidate: candidate.cvar)
    ratio = (highest / lowest) ** (1.0 / (GRID - 1))
    for _ in range(4):
        # The neighbours of the best λ so far, three times as close every time.
        near = [search.solve(lam) for lam in np.geomspace(best.lam / ratio, best.lam * ratio, 7).tolist()]
        best = max([best, *near], key=lambda candidate: candidate.cvar)
        ratio **= 1.0 / 3.0
    policy = search.table(best.actions)
    moments = evaluate(cmdp, policy, discount)
    cvar, error = simulate_cvar(cmdp, policy, moments, alpha, discount, episodes, seed=0)
    return CvarObjectiveSolution(policy, moments.mean, cvar, error, search.cost(best.actions), max(search.bound, cvar))


@dataclass(frozen=True)
class _Candidate:
    """The best policy for one λ."""

    lam: float
    actions: Actions
    cvar: float
    """if returns are normal"""


class _Search:
    """Deterministic policies that maximise mean − λ·Σ γ^{2t} E[σ²] − µ·cost."""

    def __init__(self, cmdp: Cmdp, alpha: float, constraints: Sequence[Constraint], discount: float) -> None:
        if len(constraints) > 1 or not all(
            isinstance(constraint.measure, Expectation | BadStateProbability) for constraint in constraints
        ):
            raise SettingsError("maximise_cvar: knows at most one constraint, and that on an expectation.")
        self.cmdp, self.discount = cmdp, discount
        self.constraint = constraints[0] if constraints else None
        normal = NormalDist()
        self.kappa = normal.pdf(normal.inv_cdf(alpha)) / alpha
        self.bound = -math.inf
        """The highest dual value so far."""
        self._transitions = transition_rows(cmdp)
        self._states = np.arange(cmdp.states)
        self._toll, self._decay = np.zeros_like(cmdp.reward), 1.0
        if self.constraint is not None:
            self._toll = self.constraint.sign * cmdp.signal(self.constraint.signal)
            own = self.constraint.discount
            self._decay = (discount if own is None else own) / discount

    @property
    def range(self) -> tuple[float, float]:
        """λ = κ / (2√v) of the noisiest and of the calmest return that there can be, twice as wide, or nearly so."""
        lengths = float((self.discount ** (2 * np.arange(self.cmdp.horizon))).sum())
        noise = self.cmdp.noise**2
        usual = evaluate(self.cmdp, uniform_policy(self.cmdp), self.discount).variance
        most = max(float(noise.max()) * lengths, usual, 1e-6)
        least = max(float(noise.min()) * lengths, 1e-4 * most)
        return 0.25 * self.kappa / math.sqrt(most), self.kappa / math.sqrt(least)

    def solve(self, lam: float) -> _Candidate:
        """The best policy within the bound for one λ, µ bisected."""
        actions, value = self._dynamic_programming(lam, 0.0)
        ceiling = self._dual(lam, 0.0, value)
        if self._slack(actions) < 0.0:
            actions, least = self._within(lam)
            ceiling = min(ceiling, least)
        self.bound = max(self.bound, ceiling)
        moments = evaluate(self.cmdp, self.table(actions), self.discount)
        cvar = float(moments.initial @ (moments.means - self.kappa * np.sqrt(moments.variances)))
        return _Candidate(lam, actions, cvar)

    def _within(self, lam: float, steps: int = 14) -> tuple[Actions, float]:
        """The policy of the smallest µ that keeps the bound, and the least dual value of every µ tried."""
        high, least = 1.0, math.inf
        for _ in range(30):
            inside, value = self._dynamic_programming(lam, high)
            least = min(least, self._dual(lam, high, value))
            if self._slack(inside) >= 0.0:
                break
            high *= 2.0
        else:
            assert self.constraint is not None
            raise InfeasibleConstraintError(
                f"No policy with '{self.constraint.name}' was found: the best slack is {self._slack(inside):.6g}.",
                self._slack(inside),
            )
        low = 0.0
        for _ in range(steps):
            middle = 0.5 * (low + high)
            actions, value = self._dynamic_programming(lam, middle)
            least = min(least, self._dual(lam, middle, value))
            if self._slack(actions) >= 0.0:
                high, inside = middle, actions
            else:
                low = middle
        return inside, least

    def _dual(self, lam: float, mu: float, value: float) -> float:
        """max over policies of m − λ v − µ (cost − bound), less κ² / (4λ)."""
        limit = 0.0 if self.constraint is None else self.constraint.sign * self.constraint.bound
        return value + mu * limit - self.kappa**2 / (4.0 * lam)

    def _dynamic_programming(self, lam: float, mu: float) -> tuple[Actions, float]:
        """The policy that maximises mean − λ·Σ γ^{2t} E[σ²] − µ·(±cost), and that maximum."""
        cmdp, discount = self.cmdp, self.discount
        actions = np.empty((cmdp.horizon, cmdp.states), dtype=np.int64)
        ahead = np.zeros(cmdp.states)
        for t in reversed(range(cmdp.horizon)):
            gain = cmdp.reward - lam * discount**t * cmdp.noise**2 - mu * self._decay**t * self._toll
            q = gain + discount * (self._transitions @ ahead).reshape(gain.shape)
            actions[t] = q.argmax(-1)
            ahead = q[self._states, actions[t]]
        return actions, float(cmdp.initial @ ahead)

    def cost(self, actions: Actions) -> float | None:
        """Expectation that is bounded, exactly."""
        if self.constraint is None:
            return None
        discount = self._decay * self.discount
        return evaluate(self.cmdp, self.table(actions), discount, self.constraint.signal).mean

    def _slack(self, actions: Actions) -> float:
        cost = self.cost(actions)
        return math.inf if cost is None or self.constraint is None else self.constraint.slack(cost)

    def table(self, actions: Actions) -> Array:
        """[H, N, M] probabilities of a deterministic policy."""
        return np.eye(self.cmdp.actions)[actions]
