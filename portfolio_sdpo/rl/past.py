"""The past: what an episode may have cumulated before it came to a state, c_t given (s_t, t).

A risk advantage weighs what is to come by what has been. The policy sees s_t and not c_t, so its gradient is that of
the mean over the distribution of c_t given (s_t, t). Of this mean an episode's own c_t is one sample, consistent and
noisy; the batch's c_t at the same step are many, and wrong wherever the state tells something of the past, as it does
when there is something to hedge. `BackwardCritics` move the batch's c_t to where the state has them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from portfolio_sdpo.rl.rollout import Rollout


@dataclass(frozen=True)
class Past:
    """J equally shaped possibilities for each of n transitions."""

    cumulated: Tensor
    """[J, n] what has been cumulated before, c_t"""
    share: Tensor
    """[J, n] their probabilities, which sum to 1 over J"""
    episode: Tensor
    """[J, 1] or [1, n] the episode whose influence function they meet"""

    def take(self, index: Tensor) -> Past:
        """That of the transitions `index` [m]."""
        episode = self.episode if self.episode.shape[1] == 1 else self.episode[:, index]
        return Past(self.cumulated[:, index], self.share[:, index], episode)


def own_past(signal: Tensor, discount: float, rollout: Rollout) -> Past:
    """What the episode itself has cumulated, for a signal [n]."""
    own = rollout.grid.flatten(rollout.grid.sum_before(signal, discount)).unsqueeze(0)
    return Past(own, torch.ones_like(own), rollout.episode.unsqueeze(0))


def batch_past(signal: Tensor, discount: float, rollout: Rollout, partners: int) -> Past:
    """What up to `partners` episodes of the batch have cumulated at the same step, each with its own u."""
    chosen = choose_partners(rollout, partners)
    before = rollout.grid.sum_before(signal, discount)[:, chosen].T[:, rollout.step]
    return Past(before, share_among(rollout, chosen, signal), chosen.unsqueeze(1))


def choose_partners(rollout: Rollout, partners: int) -> Tensor:
    """[J] numbers of episodes, evenly spread over the batch."""
    return torch.linspace(0, rollout.episodes - 1, min(partners, rollout.episodes)).round().long()


def share_among(rollout: Rollout, chosen: Tensor, like: Tensor) -> Tensor:
    """[J, n] equal shares of the chosen episodes that are still under way at each transition's step."""
    alive = rollout.grid.lay_out(torch.ones_like(like))[:, chosen]
    # Where none of them is, all of them count.
    alive = torch.where(alive.sum(1, keepdim=True) > 0, alive, 1.0)
    return (alive / alive.sum(1, keepdim=True)).T[:, rollout.step]
