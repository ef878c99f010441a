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
from portfolio_sdpo.rl.advantage import Grid, cumulated_before, discounted_sum_ahead
from portfolio_sdpo.rl.critics import Valuation
from portfolio_sdpo.rl.rollout import Rollout

_CHUNK = 1 << 21
"""Elements of the table partners × transitions × atoms that are evaluated at a time."""


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
    pooled: average u over the c_t of `partners` episodes at the same step instead of each episode's own c_t. The policy
    cannot see c_t, so this removes noise; it is an approximation where c_t and s_t depend on each other.
    """
    first = valuation.here[rollout.starts]
    plug_in = measure(first)
    weight = discount**rollout.step
    if measure.linear:
        increments = weight * valuation.increments
    else:
        paid = signal.unsqueeze(-1) + discount * valuation.ahead
        before = cumulated_before(grid, rollout, signal, discount)
        if pooled:
            chosen = torch.linspace(0, rollout.episodes - 1, min(partners, rollout.episodes)).round().long()
        else:
            chosen = None
        increments = _increments(measure, rollout, grid, first, before, valuation.here, paid, weight, chosen)
    per_episode = plug_in + rollout.per_episode(increments)
    spread = per_episode.std() if rollout.episodes > 1 else per_episode.new_tensor(float("inf"))
    return Assessment(
        estimate=per_episode.mean().item(),
        standard_error=spread.item() / rollout.episodes**0.5,
        plug_in=plug_in.mean().item(),
        advantage=discounted_sum_ahead(grid, increments / weight, discount * lam),
    )


def _increments(
    measure: RiskMeasure,
    rollout: Rollout,
    grid: Grid,
    first: Tensor,
    before: Tensor,
    here: Tensor,
    paid: Tensor,
    weight: Tensor,
    chosen: Tensor | None,
) -> Tensor:
    """U_{t+1} − U_t of every transition, [n].

    before: c_t [L, E]; here, paid: laws [n, N] of the return-to-go at t before and after the transition.
    chosen: [J] the episodes over whose c_t and u the values are averaged, None for each transition's own episode.
    """
    atoms = here.shape[-1]
    if chosen is None:
        # [L, E, N] → [E, L, N]: every episode meets its own influence function.
        influence = measure.influence(first)
        own = (grid.lay_out(torch.stack([here, paid])[k] * weight.unsqueeze(-1)) for k in (0, 1))
        low, high = ((influence((before.unsqueeze(-1) + law).transpose(0, 1))).mean(-1).T for law in own)
        return grid.flatten(high - low)
    influence = measure.influence(first[chosen])
    alive = grid.lay_out(torch.ones(len(rollout)))[:, chosen]
    # Where none of the partners is still under way, all of them count.
    alive = torch.where(alive.sum(1, keepdim=True) > 0, alive, 1.0)
    share = (alive / alive.sum(1, keepdim=True)).T
    increments = torch.empty(len(rollout))
    size = max(1, _CHUNK // (len(chosen) * atoms))
    for start in range(0, len(rollout), size):
        part = slice(start, start + size)
        step, scale = rollout.step[part], weight[part].unsqueeze(-1)
        # [J, m, 1] + [m, N]
        cumulated = before[step][:, chosen].T.unsqueeze(-1)
        change = influence(cumulated + scale * paid[part]) - influence(cumulated + scale * here[part])
        increments[part] = (share[:, step] * change.mean(-1)).sum(0)
    return increments


def empirical(measure: RiskMeasure, returns: Tensor) -> tuple[float, float]:
    """ρ of sampled returns [K] and its standard error by the influence function; the law is pooled over s0."""
    risk = measure(returns).item()
    if len(returns) < 2:
        return risk, float("inf")
    return risk, (measure.influence(returns)(returns).std() / len(returns) ** 0.5).item()
