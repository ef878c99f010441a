"""The term that the pathwise estimator adds to the objective, against gradients that are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv
from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms.base import ActorSettings, Problem
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo, SdpoSettings
from portfolio_sdpo.rl.critics import Valuation
from portfolio_sdpo.rl.rollout import Rollout
from tests.rl.estimators.little_cmdp import ACTIONS, ATOMS, HORIZON, Little, make_little


class Ahead(nn.Module):
    """Ψ(s, a) of the undiscounted little CMDP for transitions in the order of the rollout."""

    def __init__(self, little: Little) -> None:
        super().__init__()
        self.little = little

    def forward(self, inputs: Tensor, levels: Tensor) -> Tensor:
        assert len(levels) == ATOMS
        action = inputs[:, -ACTIONS:].argmax(-1)
        return self.little.after[self.little.rollout.step, inputs[:, 0].long(), action]


@pytest.mark.parametrize("spec", ["variance of reward <= 9", "cvar(0.3) of reward >= -9", "cvar(0.1) of reward <= 9"])
@pytest.mark.parametrize("price", [0.5, 2.0])
def test_pathwise_barriers_carry_minus_price_times_the_gradient(spec, price):
    """The term of the objective that SDPO's pathwise form adds, with exact critics and γ = 1, at the old policy."""
    little = make_little(1.0, torch.float32)
    env = RandomCmdpVectorEnv(little.cmdp, 1)
    constraint = Constraint.from_spec(spec)
    settings = SdpoSettings(actor=ActorSettings(hidden=()), estimator="pathwise", risk_atoms=ATOMS, pooled=False)
    codec = ObservationCodec(env.single_observation_space["state"])
    learner = Sdpo(settings, Problem(discount=1.0, constraints=(constraint,)), codec, env.single_action_space)
    action_critics = {("reward", 1.0): Ahead(little)}
    term = learner.estimator._term(
        action_critics, 0, little.rollout, {("reward", 1.0): little.valuation()}, price, torch.Generator()
    )
    every = torch.arange(len(little.rollout))
    value = term(every, learner.policy(little.rollout.observation))
    (table,) = learner.policy.parameters()
    gradient = torch.autograd.grad(value * HORIZON, table)[0].double()
    sign = 1 if constraint.sense == "<=" else -1
    truth = -price * sign * make_little(1.0).gradient(constraint.measure)
    torch.testing.assert_close(gradient, truth, rtol=0, atol=1e-5)


class Exposed(nn.Module):
    """Ψ(a, τ) = a + a² Φ⁻¹(τ): one step of the exposure problem, exactly."""

    def forward(self, inputs: Tensor, levels: Tensor) -> Tensor:
        exposure = inputs[:, -1:]
        return exposure + exposure.square() * torch.special.ndtri(levels)


def test_pathwise_barriers_of_a_continuous_action():
    """a ~ N(m, s²), Y = a + a²ξ: Var = s² + E[a⁴] = s² + m⁴ + 6m²s² + 3s⁴."""
    from gymnasium import spaces

    m, s, count, price = 0.8, 0.3, 100_000, 0.7
    zeros = torch.zeros(count, dtype=torch.int64)
    ends = torch.ones(count, dtype=torch.bool)
    rollout = Rollout(
        observation=torch.ones(count, 1),
        action=torch.zeros(count, 1),
        log_prob=torch.zeros(count),
        signals={"reward": torch.zeros(count)},
        next_observation=torch.ones(count, 1),
        terminated=ends,
        ended=ends,
        last=ends,
        episode=torch.arange(count),
        step=zeros,
    )
    constraint = Constraint.from_spec("variance of reward <= 9")
    settings = SdpoSettings(actor=ActorSettings(hidden=()), estimator="pathwise", risk_atoms=200, partners=1)
    codec = ObservationCodec(spaces.Box(-1, 1, (1,)))
    learner = Sdpo(settings, Problem(constraints=(constraint,)), codec, spaces.Box(-9, 9, (1,)))
    distribution = torch.full((count, 1), m)
    valuations = {("reward", 0.99): Valuation(distribution, distribution, distribution[:, 0])}
    action_critics = {("reward", 0.99): Exposed()}
    term = learner.estimator._term(action_critics, 0, rollout, valuations, price, torch.Generator().manual_seed(0))
    parameters = torch.tensor([m, np.log(s)], dtype=torch.float32).requires_grad_()
    value = term(torch.arange(count), parameters.expand(count, 2))
    gradient = torch.autograd.grad(value, parameters)[0]
    truth = -price * np.array([4 * m**3 + 12 * m * s**2, 2 * s**2 + 12 * m**2 * s**2 + 12 * s**4])
    np.testing.assert_allclose(gradient.numpy(), truth, rtol=0.02)
