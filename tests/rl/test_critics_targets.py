"""Known answers on episodes written down by hand, and what must hold on any."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.rl.critics import lambda_returns, lambda_targets
from portfolio_sdpo.rl.rollout import Grid

REWARDS = [[1.0, 2.0, 3.0], [4.0], [5.0, 6.0]]
ENDED = [True, False, False]

EPISODES = st.lists(
    st.tuples(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=6), st.booleans()), min_size=1, max_size=5
)


def split(episodes):
    rewards, terminated = zip(*episodes, strict=True)
    return list(rewards), list(terminated)


def values_ahead(rollout, values):
    """`values` [n] at s_t as seen one step before: that of the next transition, of `next_observation`, or 0."""
    ahead = values.roll(-1)
    ahead[rollout.last] = 7.0  # what a critic says of the observation at which an episode was cut
    ahead[rollout.terminated] = 0.0
    return ahead


def plain_gae(rewards, values, after, discount, lam):
    """Schulman et al. 2016, eq. 16, one episode, straight from its definition."""
    following = [*values[1:], after]
    delta = [r + discount * f - v for r, f, v in zip(rewards, following, values, strict=True)]
    return [sum((discount * lam) ** k * d for k, d in enumerate(delta[t:])) for t in range(len(delta))]


def test_grid_lays_episodes_side_by_side(by_hand):
    rollout = by_hand(REWARDS, ENDED)
    grid = Grid(rollout)
    table = grid.lay_out(rollout.signals["reward"], fill=-1.0)
    assert table.tolist() == [[1.0, 4.0, 5.0], [2.0, -1.0, 6.0], [3.0, -1.0, -1.0]]
    assert grid.flatten(table).equal(rollout.signals["reward"])
    vectors = torch.randn(6, 2, 3, dtype=torch.float64)
    assert grid.flatten(grid.lay_out(vectors)).equal(vectors)


def test_sum_ahead_stops_at_the_end_of_an_episode(by_hand):
    rollout = by_hand(REWARDS, ENDED)
    ahead = rollout.grid.sum_ahead(rollout.signals["reward"], 0.5)
    assert ahead.tolist() == [1 + 1 + 0.75, 2 + 1.5, 3, 4, 5 + 3, 6]


def test_cumulated_before_keeps_the_total_once_an_episode_is_over(by_hand):
    rollout = by_hand(REWARDS, ENDED)
    before = rollout.grid.sum_before(rollout.signals["reward"], 0.5)
    assert before.tolist() == [[0, 0, 0], [1, 4, 5], [2, 4, 8]]


@settings(max_examples=60, deadline=None)
@given(episodes=EPISODES, discount=st.sampled_from([1.0, 0.9]), lam=st.sampled_from([0.0, 0.7, 1.0]))
def test_gae_of_any_episodes(by_hand, episodes, discount, lam):
    """A terminated episode ends with value 0, a truncated or cut one with the critic's."""
    rewards, terminated = split(episodes)
    rollout = by_hand(rewards, terminated, torch.float64)
    values = torch.linspace(-1, 2, len(rollout), dtype=torch.float64)
    increments = rollout.signals["reward"] + discount * values_ahead(rollout, values) - values
    advantage = rollout.grid.sum_ahead(increments, discount * lam)
    parts = values.split([len(episode) for episode in rewards])
    expected = [
        number
        for episode, own, ended in zip(rewards, parts, terminated, strict=True)
        for number in plain_gae(episode, own.tolist(), 0.0 if ended else 7.0, discount, lam)
    ]
    np.testing.assert_allclose(advantage.numpy(), expected, atol=1e-12)


def test_truncation_bootstraps_and_termination_does_not(by_hand):
    """Two episodes alike but for how they end: with γ = ½ and the critic's 7 after the cut."""
    rollout = by_hand([[1.0, 1.0], [1.0, 1.0]], [True, False])
    grid = Grid(rollout)
    ahead = values_ahead(rollout, torch.zeros(4))
    signal = rollout.signals["reward"]
    assert lambda_returns(grid, signal, ahead, 0.5, lam=1.0).tolist() == [1.5, 1.0, 1.5 + 7 / 4, 1 + 7 / 2]
    samples = lambda_targets(grid, signal, ahead.unsqueeze(-1).expand(-1, 3), 0.5, 1.0, torch.Generator())
    assert samples.tolist() == [[1.5] * 3, [1.0] * 3, [3.25] * 3, [4.5] * 3]


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_limits_of_lambda(by_hand, lam):
    """λ = 0 is the one-step target, λ = 1 the plain return, and the k-th sample stays the k-th sample."""
    rollout = by_hand(REWARDS, ENDED)
    grid, signal = rollout.grid, rollout.signals["reward"]
    ahead = torch.arange(12.0).view(6, 2) + 1
    ahead[rollout.terminated] = 0.0
    targets = lambda_targets(grid, signal, ahead, 0.5, lam, torch.Generator())
    if lam == 0:
        assert targets.equal(signal.unsqueeze(-1) + 0.5 * ahead)
    else:
        cut_short, cut_long = ahead[3], ahead[5]
        expected = [[2.75] * 2, [3.5] * 2, [3.0] * 2]
        expected += [(4 + 0.5 * cut_short).tolist(), (8 + 0.25 * cut_long).tolist(), (6 + 0.5 * cut_long).tolist()]
        assert targets.tolist() == expected


@settings(max_examples=15, deadline=None)
@given(episodes=EPISODES, lam=st.sampled_from([0.0, 0.3, 0.9, 1.0]))
def test_lambda_returns_are_the_mean_of_lambda_targets(by_hand, episodes, lam):
    rewards, terminated = split(episodes)
    rollout = by_hand(rewards, terminated, torch.float64)
    grid, signal = rollout.grid, rollout.signals["reward"]
    ahead = values_ahead(rollout, torch.linspace(-1, 2, len(rollout), dtype=torch.float64))
    many = 20_000
    samples = lambda_targets(
        grid, signal, ahead.unsqueeze(-1).expand(-1, many), 0.9, lam, torch.Generator().manual_seed(0)
    )
    exact = lambda_returns(grid, signal, ahead, 0.9, lam)
    assert exact.dtype == samples.dtype == torch.float64
    # Five standard errors; a sample lies between the smallest and the largest possible.
    tolerance = 5 * samples.std(-1) / many**0.5 + 1e-9
    assert ((samples.mean(-1) - exact).abs() <= tolerance).all()


def test_lambda_returns_and_gae_are_the_same_thing(by_hand):
    rollout = by_hand(REWARDS, ENDED, torch.float64)
    grid, signal = rollout.grid, rollout.signals["reward"]
    values = torch.linspace(-1, 2, 6, dtype=torch.float64)
    ahead = values_ahead(rollout, values)
    advantage = grid.sum_ahead(signal + 0.9 * ahead - values, 0.9 * 0.8)
    torch.testing.assert_close(lambda_returns(grid, signal, ahead, 0.9, 0.8), values + advantage)


def test_samples_of_one_transition_stop_at_different_times(by_hand):
    """With probability λ^k (1 − λ) a sample rests on the critic k steps ahead: atoms at 1, 2, 3, … in proportion."""
    length = 12
    rollout = by_hand([[0.0] * length], [True])
    ahead = torch.arange(1.0, length + 1).unsqueeze(-1).expand(-1, 50_000).clone()
    ahead[-1] = 0.0
    first = lambda_targets(rollout.grid, rollout.signals["reward"], ahead, 1.0, 0.5, torch.Generator().manual_seed(1))[
        0
    ]
    for k in range(4):
        assert (first == k + 1).float().mean() == pytest.approx(0.5 ** (k + 1), abs=0.01)
