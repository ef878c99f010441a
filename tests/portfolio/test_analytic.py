"""SDPO by gradients through the reward, on problems whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from portfolio_sdpo.portfolio.analytic import AnalyticLearner, AnalyticSettings
from portfolio_sdpo.portfolio.path_policy import Allocation, grow_from_cash
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms.base import Problem

ALPHA = 0.1


def constant(policy: Allocation, weights: list[float]) -> Allocation:
    """The policy that always asks for these weights."""
    with torch.no_grad():
        policy.output.weight.zero_()
        policy.output.bias.copy_(torch.tensor(weights).log())
    return policy


def learner(bound: float, assets: int, updates: int, eta: str = "500:100000") -> AnalyticLearner:
    torch.manual_seed(0)
    spec = f"cvar({ALPHA}) of reward >= {bound} eta={eta}:{updates}"
    problem = Problem(discount=1.0, constraints=(Constraint.from_spec(spec),))
    return AnalyticLearner(AnalyticSettings(hidden=(16, 16), learning_rate=3e-3, anneal=updates), problem, assets)


def one_period(returns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Simple returns [P, N] as paths of a single decision; cash earns nothing."""
    growth = torch.cat([torch.ones(len(returns), 1), 1 + returns], -1)
    gross_returns = torch.stack([torch.ones_like(growth), growth], 1)
    return gross_returns, torch.ones_like(gross_returns, dtype=torch.bool)


def test_growth_of_a_constant_mix_by_hand():
    policy = constant(Allocation(3, (4, 4)), [0.5, 0.25, 0.25])
    gross_returns = torch.tensor([[[1.0, 1.0, 1.0], [1.0, 1.2, 0.8], [1.0, 1.0, 2.0]]])
    growth = grow_from_cash(policy, gross_returns, torch.ones_like(gross_returns, dtype=torch.bool))
    assert growth.exp().detach().numpy() == pytest.approx(np.array([[1.0, 1.25]]))


def test_a_fee_is_paid_on_what_is_traded_from_the_drifted_weights():
    policy = constant(Allocation(2, (4, 4), sees_held=True), [0.5, 0.5])
    gross_returns = torch.tensor([[[1.0, 1.0], [1.0, 1.5], [1.0, 1.0]]])
    growth = grow_from_cash(policy, gross_returns, torch.ones_like(gross_returns, dtype=torch.bool), fee=0.01).exp()
    # Half is bought; it drifts to 0.75 / 1.25 = 0.6, of which 0.1 is sold.
    assert growth.detach().numpy() == pytest.approx(np.array([[(1 - 0.005) * 1.25, 1 - 0.001]]))


def test_a_delisting_pays_out_in_cash_without_a_fee():
    policy = constant(Allocation(2, (4, 4), sees_held=True), [0.5, 0.5])
    gross_returns = torch.ones(1, 3, 2)
    listed = torch.tensor([[[True, True], [True, False], [True, False]]])
    growth = grow_from_cash(policy, gross_returns, listed, fee=0.01).exp()
    assert growth.detach().numpy() == pytest.approx(np.array([[0.995, 1.0]]))


def test_leaves_cash_for_a_stock_that_always_rises_and_not_for_one_that_falls():
    for move, least, most in ((0.01, 0.95, 1.0), (-0.01, 0.0, 0.001)):
        agent = learner(-0.05, 2, 200)
        gross_returns, listed = one_period(torch.full((64, 1), move))
        for _ in range(200):
            agent.update(gross_returns, listed, torch.Generator())
        weight = agent.policy(gross_returns[:1, :1], listed[:1, :1])[0, 0, 1].item()
        assert least <= weight <= most


def test_finds_what_the_past_says_about_tomorrow():
    """Tomorrow moves as today did: the sign of today's move is all there is to know, and the agent finds it."""
    generator = torch.Generator().manual_seed(0)
    agent = learner(-0.5, 2, 300)
    for _ in range(300):
        move = torch.where(torch.rand(256, generator=generator) < 0.5, 0.02, -0.02)
        gross_returns = torch.ones(256, 2, 2)
        gross_returns[..., 1] += move.unsqueeze(-1)
        row = agent.update(gross_returns, torch.ones_like(gross_returns, dtype=torch.bool), generator)
    assert row["objective"] > 0.9 * 0.5 * np.log(1.02)


@pytest.mark.parametrize("bound", [-0.02, -0.05])
def test_one_period_optimum_under_a_cvar_limit(bound):
    """Two stocks, one riskier: against a grid over all mixes, the limit never broken on the whole set of scenarios."""
    generator = torch.Generator().manual_seed(1)
    returns = 0.02 * torch.randn(2000, 2, generator=generator) * torch.tensor([1.0, 2.0]) + torch.tensor([0.004, 0.010])
    gross_returns, listed = one_period(returns)

    def tail(growth: np.ndarray) -> float:
        return float(np.sort(growth)[: int(ALPHA * len(growth))].mean())

    def of(weights: np.ndarray) -> np.ndarray:
        return np.log(1 + returns.double().numpy() @ weights)

    grid = [np.array([a, b]) for a in np.linspace(0, 1, 101) for b in np.linspace(0, 1 - a, 101)]
    best = max(of(weights).mean() for weights in grid if tail(of(weights)) >= bound)
    agent = learner(bound, 3, 500)
    tails = []
    for update in range(500):
        batch = torch.randint(2000, (1000,), generator=generator)
        agent.update(gross_returns[batch], listed[batch], torch.Generator())
        if update % 10 == 9:
            weights = agent.averaged(gross_returns[:1, :1], listed[:1, :1])[0, 0, 1:].double().numpy()
            tails.append(tail(of(weights)))
    assert of(weights).mean() > 0.98 * best
    assert min(tails) > bound


def test_the_log_says_where_each_constraint_stands():
    agent = learner(-0.05, 2, 10)
    row = agent.update(*one_period(torch.full((64, 1), 0.01)), torch.Generator())
    assert row["regime_0"] == "interior" and row["slack_0"] == pytest.approx(0.05, abs=1e-3)
    assert row["suboptimality_bound"] == pytest.approx(1 / 500)
