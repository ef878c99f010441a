"""Critics: the formula of the network, units that come and go without a trace, and distributions that are learnt."""

from __future__ import annotations

import math

import pytest
import torch
from gymnasium import spaces

from portfolio_sdpo.nn.networks import MeanCritic, Mlp, ObservationCodec, QuantileCritic
from portfolio_sdpo.nn.quantiles import midpoints

KINDS = pytest.mark.parametrize("kind", [QuantileCritic, MeanCritic])


def make(kind, hidden=(16, 8), seed=0):
    torch.manual_seed(seed)
    return kind(Mlp(ObservationCodec(spaces.Box(-1, 1, (3,))), hidden))


def test_midpoints():
    assert midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]
    assert midpoints(1).tolist() == [0.5]


def test_quantile_critic_is_equation_4_of_the_iqn_paper():
    critic = make(QuantileCritic)
    observation, tau = torch.randn(5, 3), torch.rand(7)
    expected = torch.empty(5, 7)
    for b in range(5):
        psi = critic.trunk(observation[b])
        for k in range(7):
            cosines = torch.tensor([math.cos(math.pi * i * tau[k]) for i in range(256)])
            phi = torch.relu(critic.embedding(cosines))
            expected[b, k] = critic.output(psi * phi)
    torch.testing.assert_close(critic(observation, tau), expected, atol=1e-4, rtol=1e-4)
    assert critic(observation.view(5, 1, 3), tau).shape == (5, 1, 7)


def test_mean_critic_is_a_law_of_one_value():
    critic = make(MeanCritic)
    value = critic(torch.randn(5, 3), torch.rand(4))
    assert value.shape == (5, 4) and (value == value[:, :1]).all()


@KINDS
def test_rescaling_changes_units_and_no_prediction(kind):
    critic = make(kind)
    observation, tau = torch.randn(20, 3), torch.rand(9)
    before = critic(observation, tau)
    for location, scale in ((50.0, 3.0), (-2.0, 0.001), (0.0, 1.0)):
        critic.rescale(torch.tensor(location), torch.tensor(scale))
        assert critic.location == location and critic.scale == scale
        torch.testing.assert_close(critic(observation, tau), before, atol=1e-4, rtol=1e-4)
    critic.rescale(torch.tensor(50.0), torch.tensor(3.0))
    torch.testing.assert_close(
        critic.predict_standardised(critic.trunk(observation), tau), (before - 50) / 3, atol=1e-4, rtol=1e-4
    )


@KINDS
@pytest.mark.parametrize("location, scale", [(0.0, 1.0), (5000.0, 300.0), (0.0, 1e-3)])
def test_loss_does_not_depend_on_the_units(kind, location, scale):
    """A critic of 300-fold values in 300-fold units learns as the plain one does."""
    plain, scaled = make(kind), make(kind)
    scaled.location.fill_(location)
    scaled.scale.fill_(scale)
    observation, target = torch.randn(20, 3), torch.randn(20, 16)
    losses = [
        critic.loss(observation, units, torch.Generator().manual_seed(0))
        for critic, units in ((plain, target), (scaled, location + scale * target))
    ]
    torch.testing.assert_close(losses[0], losses[1], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("distribution", ["exponential", "two points"])
def test_learns_the_quantiles_of_a_law(distribution):
    """Plain regression on fresh samples: an exponential distribution, and one with two atoms, of two sizes at once."""

    def quantile(tau):
        return -torch.log1p(-tau) - 1 if distribution == "exponential" else (tau > 0.7).float() * 2 - 0.6

    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    critic = QuantileCritic(Mlp(ObservationCodec(spaces.Discrete(2)), (32,)), dimension=64)
    optimiser = torch.optim.Adam(critic.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.02, total_iters=600)
    observation = torch.tensor([[0.0], [1.0]]).repeat(16, 1)
    for _ in range(600):
        target = quantile(torch.rand(32, 64, generator=generator)) * (1 + observation)
        optimiser.zero_grad()
        critic.loss(observation, target, generator).backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        found = critic(torch.tensor([[0.0], [1.0]]), midpoints(100))
    exact = quantile(midpoints(100))
    for row, size in zip(found / torch.tensor([[1.0], [2.0]]), (1, 2), strict=True):
        distance = (row - exact).abs().mean()  # Wasserstein
        assert distance < 0.08 * exact.std(), size
        assert row.mean() == pytest.approx(exact.mean().item(), abs=0.05)
        assert row.var() == pytest.approx(exact.var().item(), rel=0.1)
