"""Policies: a trunk, an output layer, and a head that reads the output as a distribution over actions.

A head is stateless: it maps parameters [..., P], which the network makes, to samples, log-probabilities, entropies and
divergences, and samples to what the environment is given. Algorithms only ever see heads through these functions, so a
new kind of action is one new head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.trunk import ObservationCodec

_LOG_2PI = math.log(2 * math.pi)
CASH_AT_START = 0.9995
"""Weight of cash before the first update."""


class CategoricalHead:
    """One of `count` actions; the parameters are logits [..., count], actions integers [...]."""

    action_shape: tuple[int, ...] = ()
    action_dtype = torch.int64

    def __init__(self, count: int) -> None:
        self.count = count
        self.width = count
        self.initial = torch.zeros(count)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        # The Gumbel trick: cheaper than torch.multinomial on small batches, and exact.
        noise = torch.empty_like(parameters).exponential_(generator=generator).log_()
        return (parameters - noise).argmax(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.argmax(-1)

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        return torch.log_softmax(parameters, -1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        log = torch.log_softmax(parameters, -1)
        return -(log.exp() * log).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        log_old, log_new = torch.log_softmax(old, -1), torch.log_softmax(new, -1)
        return (log_old.exp() * (log_old - log_new)).sum(-1)

    def executed(self, action: Tensor) -> Tensor:
        """What the environment is given."""
        return action


class GaussianHead:
    """A real vector of length `size`; the parameters are mean and log standard deviation, [..., 2·size]."""

    action_dtype = torch.float32

    def __init__(self, size: int) -> None:
        self.size = size
        self.action_shape: tuple[int, ...] = (size,)
        self.width = size
        self.initial = torch.zeros(size)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        mean, log_std = parameters.chunk(2, -1)
        return mean + log_std.exp() * torch.empty_like(mean).normal_(generator=generator)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.chunk(2, -1)[0]

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        mean, log_std = parameters.chunk(2, -1)
        standardised = (action - mean) * (-log_std).exp()
        return (-0.5 * standardised.square() - log_std - 0.5 * _LOG_2PI).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        log_std = parameters.chunk(2, -1)[1]
        return (log_std + 0.5 * (1 + _LOG_2PI)).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        (mean_old, log_old), (mean_new, log_new) = old.chunk(2, -1), new.chunk(2, -1)
        squared = (2 * log_old).exp() + (mean_old - mean_new).square()
        return (log_new - log_old + 0.5 * squared * (-2 * log_new).exp() - 0.5).sum(-1)

    def executed(self, action: Tensor) -> Tensor:
        """What the environment is given."""
        return action


class SimplexHead(GaussianHead):
    """Weights on cash and stocks: the softmax of Gaussian logits, whose mean starts all in cash."""

    def __init__(self, assets: int) -> None:
        super().__init__(assets)
        self.initial[0] = math.log(CASH_AT_START / (1 - CASH_AT_START) * (assets - 1))

    def executed(self, action: Tensor) -> Tensor:
        """Weights [..., A] of logits [..., A]."""
        return torch.softmax(action.double(), -1)


class Policy(nn.Module):
    """π(a | s): observations [..., D] to the parameters [..., P] of `head`.

    It starts at a known place: the output layer is almost zero, so a categorical policy begins uniform and a Gaussian
    one begins at mean zero (no motion; all in cash, for weights) with standard deviation `initial_std`. With `hidden`
    empty the policy is linear in the observation: for a discrete state a table of logits.
    """

    def __init__(
        self, codec: ObservationCodec, action_space: spaces.Space[Any], hidden: Sequence[int], initial_std: float = 0.5
    ) -> None:
        super().__init__()
        self.head: CategoricalHead | GaussianHead = _head_for(action_space)
        width = self.head.width
        self.network = codec.policy_network(hidden, self.head.initial)
        gaussian = isinstance(self.head, GaussianHead)
        self.log_std = nn.Parameter(torch.full((width,), math.log(initial_std))) if gaussian else None

    def forward(self, observation: Tensor) -> Tensor:
        """[..., D] → [..., P]"""
        output: Tensor = self.network(observation)
        if self.log_std is None:
            return output
        return torch.cat([output, self.log_std.expand_as(output)], -1)

    def act(self, observation: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sampled actions [B, ...] and their log-probabilities [B] for observations [B, D]; no gradient."""
        with torch.no_grad():
            parameters = self(observation)
            action = self.head.sample(parameters, generator)
            return action, self.head.log_prob(parameters, action)


def _head_for(space: spaces.Space[Any]) -> CategoricalHead | GaussianHead:
    if isinstance(space, spaces.Discrete):
        return CategoricalHead(int(space.n))
    if getattr(space, "simplex", False) and len(space.shape or ()) == 1:
        return SimplexHead(int(space.shape[0]))  # type: ignore[index]
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return GaussianHead(int(space.shape[0]))
    raise SettingsError(f"action space {space} is not supported: use Discrete or a one-dimensional Box.")
