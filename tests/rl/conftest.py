"""Rollouts written down by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from portfolio_sdpo.rl.rollout import Rollout


def rollout_of(
    rewards: Sequence[Sequence[float]],
    terminated: Sequence[bool],
    dtype: torch.dtype = torch.float32,
    truncated: Sequence[bool] | None = None,
) -> Rollout:
    """Episodes by their rewards; those that are neither `terminated` nor `truncated` are cut. Observation k of each is
    k, action and log-probability are 0, and the cost `pain` is ten times the reward."""
    lengths = torch.tensor([len(episode) for episode in rewards])
    step = torch.cat([torch.arange(length) for length in lengths.tolist()])
    episode = torch.arange(len(rewards)).repeat_interleave(lengths)
    last = step == lengths[episode] - 1
    reward = torch.tensor([reward for episode in rewards for reward in episode], dtype=dtype)
    return Rollout(
        observation=step.unsqueeze(-1).float(),
        action=torch.zeros(len(step), dtype=torch.int64),
        log_prob=torch.zeros(len(step)),
        signals={"reward": reward, "pain": 10 * reward},
        next_observation=step.unsqueeze(-1).float() + 1,
        terminated=last & torch.tensor(terminated)[episode],
        ended=last & (torch.tensor(terminated) | torch.tensor(truncated or [False] * len(rewards)))[episode],
        last=last,
        episode=episode,
        step=step,
    )


@pytest.fixture(scope="session")
def by_hand() -> Callable[..., Rollout]:
    return rollout_of
