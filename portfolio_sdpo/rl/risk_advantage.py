"""The risk of the current policy and the advantage whose policy gradient is the gradient of that risk.

Let u be the influence function of ρ at the law of Y(s0), and c_t the discounted signal cumulated before t. Seen from
step t the value of u is U_t = E_τ[u(c_t + γ^t Ŷ_τ(s_t))], and its increments do two jobs:

- summed over an episode they correct the critic's plug-in value of ρ by what really happened (the one-step estimator
  of semiparametric statistics: ρ(Ŷ) + mean of the increments; an error of the critic enters only squared),
- summed ahead with decay λ they are the risk advantage (design, section 4).

For an expectation u(y) = y, the increments are γ^t times the TD errors, the estimate is the mean return and the
advantage is GAE: the policy-gradient theorem's case and the non-linear one are the same formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from portfolio_sdpo.risk import RiskMeasure
from portfolio_sdpo.risk.pooling import Pooled
from portfolio_sdpo.rl.advantage import Grid, cumulated_before, discounted_sum_ahead
from portfolio_sdpo.rl.critics import Valuation
from portfolio_sdpo.rl.rollout import Rollout

LEAST_WEIGHT = 1e-4
"""Increments of u are divided by γ^t, but by no less than this: later steps hardly move the return from s0, and in
single precision the quotient would be noise, or 0/0."""


@dataclass(frozen=True)
class Assessment:
    """One risk measure of one cumulated signal under the policy that made the rollout."""

    estimate: float
    """ρ: the critic's value corrected by the rollout"""
    standard_error: float
    """of `estimate`, from the spread over episodes"""
    plug_in: float
    """ρ of the critic's law at s0, mean over the episodes' s0"""
    advantage: Tensor
    """[n] risk advantage, on the footing of the reward advantage"""


class Utility:
    """What u is worth seen from every transition: E[u(c_t + γ^t Y)] for laws Y of the return-to-go.

    u belongs to an episode's s0 (the paper's ρ is a mean over s0), c_t to its past. Pooled, both are averaged over
    `partners` episodes at the same step instead of taken from the transition's own: the policy cannot see c_t, so this
    removes noise; it is an approximation where c_t and s_t depend on each other.
    """

    def __init__(
        self,
        measure: RiskMeasure,
        first: Tensor,
        signal: Tensor,
        discount: float,
        rollout: Rollout,
        grid: Grid,
        partners: int,
        pooled: bool,
    ) -> None:
        # first: [E, N] laws at the episodes' s0; signal: [n].
        self._rollout = rollout
        self._weight = discount ** rollout.step.to(signal.dtype)
        self._before = cumulated_before(grid, rollout, signal, discount)
        self._measure, self._first = measure, first
        self._pooled: Pooled | None = None
        if pooled:
            chosen = torch.linspace(0, rollout.episodes - 1, min(partners, rollout.episodes)).round().long()
            alive = grid.lay_out(torch.ones_like(signal))[:, chosen]
            # Where none of the partners is still under way, all of them count.
            alive = torch.where(alive.sum(1, keepdim=True) > 0, alive, 1.0)
            share = alive / alive.sum(1, keepdim=True)
            self._pooled = measure.influence(first[chosen]).pool(self._before[:, chosen].T, share.T)

    def __call__(self, law: Tensor, index: Tensor | None = None) -> Tensor:
        """Laws [m, N], equally likely atoms, at the transitions `index` [m] (None: all of them) to utilities [m]."""
        step, episode, weight = self._rollout.step, self._rollout.episode, self._weight
        if index is not None:
            step, episode, weight = step[index], episode[index], weight[index]
        law = weight.unsqueeze(-1) * law
        if self._pooled is None:
            total = self._before[step, episode].unsqueeze(-1) + law
            return self._measure.influence(self._first[episode])(total).mean(-1)
        # [L, C, N]: the laws at a step, which meet the same partners, side by side
        slot = episode if index is None else _order_within(step)
        table = law.new_zeros(len(self._before), int(slot.max()) + 1, law.shape[-1]).index_put((step, slot), law)
        return self._pooled(table.flatten(1)).view_as(table).mean(-1)[step, slot]


def _order_within(group: Tensor) -> Tensor:
    """How many elements of the same group stand before each, for groups [m]."""
    ordered, order = group.sort(stable=True)
    place = torch.arange(len(group)) - torch.searchsorted(ordered, ordered)
    return torch.empty_like(group).scatter_(0, order, place)


def assess(
    measure: RiskMeasure,
    signal: Tensor,
    discount: float,
    rollout: Rollout,
    grid: Grid,
    valuation: Valuation,
    lam: float,
    partners: int = 32,
    pooled: bool = True,
) -> Assessment:
    """ρ of Σ_t γ^t signal_t and its advantage.

    signal: [n] the stream that is cumulated. lam: decay of the increments, as λ in GAE.
    partners, pooled: see `Utility`.
    """
    first = valuation.here[rollout.starts]
    plug_in = measure(first)
    weight = discount ** rollout.step.to(signal.dtype)
    if measure.linear:
        increments = weight * valuation.increments
        unweighted = valuation.increments
    else:
        utility = Utility(measure, first, signal, discount, rollout, grid, partners, pooled)
        increments = utility(signal.unsqueeze(-1) + discount * valuation.ahead) - utility(valuation.here)
        unweighted = increments / weight.clamp_min(LEAST_WEIGHT)
    per_episode = plug_in + rollout.per_episode(increments)
    spread = per_episode.std() if rollout.episodes > 1 else per_episode.new_tensor(float("inf"))
    return Assessment(
        estimate=per_episode.mean().item(),
        standard_error=spread.item() / rollout.episodes**0.5,
        plug_in=plug_in.mean().item(),
        advantage=discounted_sum_ahead(grid, unweighted, discount * lam),
    )


def empirical(measure: RiskMeasure, returns: Tensor) -> tuple[float, float]:
    """ρ of sampled returns [K] and its standard error by the influence function; the law is pooled over s0."""
    risk = measure(returns).item()
    if len(returns) < 2:
        return risk, float("inf")
    return risk, (measure.influence(returns)(returns).std() / len(returns) ** 0.5).item()
