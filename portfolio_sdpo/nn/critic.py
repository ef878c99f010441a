"""Critics: the distribution of the return-to-go of one signal, Ψ(s, τ), or only its mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from portfolio_sdpo.nn.levels import Tail, draw_levels
from portfolio_sdpo.nn.networks import Trunk, orthogonal
from portfolio_sdpo.nn.quantile_loss import quantile_huber_loss


class Critic(nn.Module):
    """Base of both critics: outputs in the units of the signal, learning in standardised ones.

    `location` and `scale` follow the targets; whenever they move, the output layer is rescaled so that no prediction
    changes (the PopArt idea), and the same learning rate serves a CMDP's 50 and a portfolio's 0.005.
    """

    location: Tensor
    scale: Tensor

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.trunk = trunk
        self.register_buffer("location", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))
        self.output = orthogonal(nn.Linear(trunk.features, 1), gain=1.0)

    def standardised(self, observation: Tensor, tau: Tensor) -> Tensor:
        """Predictions [..., N] in standardised units, for observations [..., D] and levels [N]."""
        raise NotImplementedError

    def loss(self, observation: Tensor, target: Tensor, generator: torch.Generator) -> Tensor:
        """The loss of the predictions at [B, D] for target samples [B, N] of the return-to-go."""
        raise NotImplementedError

    def forward(self, observation: Tensor, tau: Tensor) -> Tensor:
        """The τ-quantiles [..., N] of the return-to-go, in the signal's units."""
        return self.standardised(observation, tau) * self.scale + self.location

    @torch.no_grad()
    def rescale(self, location: Tensor, scale: Tensor) -> None:
        """Change the standardised units in which it learns; predictions do not change."""
        ratio = self.scale / scale
        self.output.weight.mul_(ratio)
        self.output.bias.copy_((self.output.bias * self.scale + self.location - location) / scale)
        self.location.copy_(location)
        self.scale.copy_(scale)


class QuantileCritic(Critic):
    """Implicit quantile network (Dabney et al. 2018, eq. 4): Ψ(s, τ) = w · (ψ(s) ⊙ φ(τ)) + b.

    φ(τ) = relu(W cos(π i τ) + v), i = 0 … dimension − 1. There is no hidden layer after the product, and one draw of
    levels serves a whole batch, so the head is a single matrix product [B, H] · [H, N].
    """

    frequencies: Tensor

    def __init__(self, trunk: Trunk, dimension: int = 256, kappa: float = 0.0, tails: Sequence[Tail] = ()) -> None:
        """tails: where half of the levels are drawn that the critic learns at."""
        super().__init__(trunk)
        self.tails = tails
        self.embedding = nn.Linear(dimension, trunk.features)
        self.kappa = kappa
        self.register_buffer("frequencies", math.pi * torch.arange(dimension), persistent=False)

    def standardised(self, observation: Tensor, tau: Tensor) -> Tensor:
        # [N, H]
        levels = torch.relu(self.embedding(torch.cos(tau.unsqueeze(-1) * self.frequencies)))
        # [..., H] · [H, N]
        features: Tensor = self.trunk(observation) * self.output.weight[0]
        return features @ levels.T + self.output.bias

    def loss(self, observation: Tensor, target: Tensor, generator: torch.Generator) -> Tensor:
        # With sorted levels the predictions are nearly sorted as well, and the loss finds their ranks in half the time.
        tau = draw_levels(target.shape[-1], self.tails, generator)
        return quantile_huber_loss(
            self.standardised(observation, tau), tau, (target - self.location) / self.scale, self.kappa
        )


class MeanCritic(Critic):
    """The expected return-to-go, as in PPO, IPO, CPO and PCPO: a distribution with one atom."""

    def standardised(self, observation: Tensor, tau: Tensor) -> Tensor:
        value: Tensor = self.output(self.trunk(observation))
        return value.expand(*value.shape[:-1], len(tau))

    def loss(self, observation: Tensor, target: Tensor, generator: torch.Generator) -> Tensor:
        error: Tensor = (
            self.output(self.trunk(observation)) - (target.mean(-1, keepdim=True) - self.location) / self.scale
        )
        return error.square().mean()
