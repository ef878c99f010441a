"""Quantile levels: what a few of them make of distributions whose tails are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from portfolio_sdpo.nn.networks import ObservationCodec, QuantileCritic
from portfolio_sdpo.nn.quantiles import draw_levels, expect, find_tails, midpoints, place_levels
from portfolio_sdpo.risk import CVaR, Entropic, Expectation, Variance

TAILS = [(side, alpha) for side in ("lower", "upper") for alpha in (0.01, 0.05, 0.1)]


def true_cvar(distribution, side, alpha) -> float:
    low, high = (0, alpha) if side == "lower" else (1 - alpha, 1)
    return integrate.quad(distribution.ppf, low, high, limit=500)[0] / alpha


@pytest.mark.parametrize("side, alpha", TAILS)
@pytest.mark.parametrize("distribution", [stats.norm(), stats.t(3), stats.t(5), stats.expon()])
def test_32_atoms_know_the_tail_within_two_percent(distribution, side, alpha):
    levels = place_levels(32, [(side, alpha)])
    quantiles = torch.from_numpy(distribution.ppf(levels.tau.double().numpy()))
    weight = levels.weight.double()
    assert len(quantiles) == 32 and weight.sum() == pytest.approx(1)
    truth = true_cvar(distribution, side, alpha)
    assert CVaR(alpha=alpha, tail=side)(quantiles, weight).item() == pytest.approx(truth, rel=0.02)
    assert expect(quantiles, weight).item() == pytest.approx(distribution.mean(), abs=0.04)
    # The kink of the influence function is the α-quantile.
    u = CVaR(alpha=alpha, tail=side).influence(quantiles, weight)
    kink = torch.tensor(distribution.ppf(alpha if side == "lower" else 1 - alpha))
    assert u(kink).item() == pytest.approx(kink.item(), abs=1e-4)


def test_midpoints_do_not_know_the_worst_hundredth():
    """What made this necessary: a standard normal at α = 0.01."""
    quantiles = torch.from_numpy(stats.norm.ppf(midpoints(32).numpy()))
    assert CVaR(alpha=0.01)(quantiles).item() == pytest.approx(-2.15, abs=0.01)
    assert true_cvar(stats.norm(), "lower", 0.01) == pytest.approx(-2.665, abs=0.001)


@settings(deadline=None)
@given(
    count=st.integers(1, 64),
    tails=st.lists(st.sampled_from(TAILS), max_size=3, unique=True),
)
def test_levels_share_out_the_whole_distribution(count, tails):
    levels = place_levels(count, tails)
    weight = torch.full((count,), 1 / count) if levels.weight is None else levels.weight
    assert len(levels.tau) == len(weight) == count
    assert weight.sum().item() == pytest.approx(1, abs=1e-5) and (weight > 0).all()
    assert (levels.tau.diff() > 0).all() and levels.tau[0] > 0 and levels.tau[-1] < 1
    # A level is the midpoint of its stratum.
    torch.testing.assert_close(levels.tau, weight.cumsum(0) - weight / 2, atol=1e-5, rtol=0)


def test_tails_are_those_of_narrow_measures():
    measures = [Expectation(), Variance(), Entropic(beta=1.0), CVaR(alpha=0.3), CVaR(alpha=0.05), CVaR(alpha=0.05)]
    assert find_tails(measures) == (("lower", 0.05),)


def test_learning_draws_half_of_its_levels_in_the_tail():
    generator = torch.Generator().manual_seed(0)
    tau = torch.stack([draw_levels(32, [("upper", 0.01)], generator) for _ in range(400)])
    assert (tau.diff(dim=-1) >= 0).all()
    assert ((tau > 0.99).float().mean()).item() == pytest.approx(0.5 + 0.5 * 0.01, abs=0.01)
    plain = draw_levels(8, (), torch.Generator().manual_seed(3))
    assert plain.equal(torch.rand(8, generator=torch.Generator().manual_seed(3)).sort().values)


def test_a_learnt_tail_is_nearer_the_truth():
    """A standard normal, 32 levels in each of 400 gradient steps, read at 32 levels."""
    found = {}
    for tails in ((), (("lower", 0.01),)):
        torch.manual_seed(0)
        critic = QuantileCritic(ObservationCodec(spaces.Box(-1, 1, (1,))).trunk((32,)), 32, tails=tails)
        optimiser = torch.optim.Adam(critic.parameters(), 1e-2)
        generator = torch.Generator().manual_seed(1)
        for step in range(400):
            optimiser.param_groups[0]["lr"] = 1e-2 * (1 - step / 400)
            loss = critic.loss(torch.ones(64, 1), torch.randn(64, 32, generator=generator), generator)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        levels = place_levels(32, tails)
        with torch.no_grad():
            found[len(tails)] = CVaR(alpha=0.01)(critic(torch.ones(1, 1), levels.tau), levels.weight).item()
    assert found[1] == pytest.approx(-2.665, rel=0.05)
    assert abs(found[1] + 2.665) < 0.5 * abs(found[0] + 2.665)
    assert np.isfinite(list(found.values())).all()
