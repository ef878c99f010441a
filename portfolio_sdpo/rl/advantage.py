"""From rewards and critics to advantages: GAE, λ-targets for quantile critics, cumulated signals.

All functions work on the flat order of `Rollout`: episodes one after the other, `last` marks where each ends.
"""

from __future__ import annotations

import torch
from torch import Tensor

from portfolio_sdpo.rl.rollout import Rollout


class Grid:
    """The flat transitions of a rollout laid out as [L, E] (step × episode), for recursions over time.

    >>> # flat  [a0 a1 a2 b0 b1]   →   rows: [a0 b0], [a1 b1], [a2 –]
    """

    def __init__(self, rollout: Rollout) -> None:
        self.length = int(rollout.step.max()) + 1
        self.episodes = rollout.episodes
        self._index = rollout.step * self.episodes + rollout.episode

    def lay_out(self, flat: Tensor, fill: float = 0.0) -> Tensor:
        """[n, ...] → [L, E, ...], `fill` where an episode is already over."""
        grid = torch.full((self.length * self.episodes, *flat.shape[1:]), fill, dtype=flat.dtype)
        grid[self._index] = flat
        return grid.view(self.length, self.episodes, *flat.shape[1:])

    def flatten(self, grid: Tensor) -> Tensor:
        """[L, E, ...] → [n, ...], the inverse."""
        return grid.reshape(-1, *grid.shape[2:])[self._index]


def discounted_sum_ahead(grid: Grid, increments: Tensor, decay: float) -> Tensor:
    """A_t = Σ_k decay^k · increment_{t+k} to the end of the episode, for flat increments [n].

    With increments δ_t = r_t + γ V(s_{t+1}) − V(s_t) and decay γλ this is GAE (Schulman et al. 2016, eq. 16).
    """
    ahead = grid.lay_out(increments)
    for t in range(grid.length - 2, -1, -1):
        ahead[t] += decay * ahead[t + 1]
    return grid.flatten(ahead)


def cumulated_before(grid: Grid, rollout: Rollout, signal: Tensor, discount: float) -> Tensor:
    """c_t = Σ_{k<t} γ^k signal_k, [L, E]; once an episode is over it stays at the episode's total."""
    paid = grid.lay_out(signal * discount ** rollout.step.to(signal.dtype))
    total = paid.cumsum(0)
    return total - paid


def lambda_targets(
    grid: Grid, signal: Tensor, ahead: Tensor, discount: float, lam: float, generator: torch.Generator
) -> Tensor:
    """Samples [n, N] of the return-to-go of every transition (design, section 4).

    The k-th sample at t is signal_t + γ · (with probability λ the k-th sample already built for t+1, else `ahead`, a
    critic sample at s_{t+1}). λ = 0 is one-step TD, λ = 1 the plain return. `ahead` [n, N] is always used in the last
    transition of an episode; it is zero there if nothing is to follow.
    """
    paid, fresh = grid.lay_out(signal), grid.lay_out(ahead)
    alive = grid.lay_out(torch.ones(len(signal), dtype=torch.bool), fill=False)
    keep = torch.rand(fresh.shape, generator=generator) < lam
    targets = torch.empty_like(fresh)
    for t in range(grid.length - 1, -1, -1):
        following = fresh[t]
        if t + 1 < grid.length:
            following = torch.where(keep[t] & alive[t + 1].unsqueeze(-1), targets[t + 1], following)
        targets[t] = paid[t].unsqueeze(-1) + discount * following
    return grid.flatten(targets)


def lambda_returns(grid: Grid, signal: Tensor, ahead: Tensor, discount: float, lam: float) -> Tensor:
    """The expectation of `lambda_targets` over its coin flips: the λ-return [n], from values ahead [n]."""
    paid, fresh = grid.lay_out(signal), grid.lay_out(ahead)
    alive = grid.lay_out(torch.ones_like(signal))
    targets = torch.empty_like(fresh)
    for t in range(grid.length - 1, -1, -1):
        following = fresh[t]
        if t + 1 < grid.length:
            following = torch.lerp(following, targets[t + 1], lam * alive[t + 1])
        targets[t] = paid[t] + discount * following
    return grid.flatten(targets)
