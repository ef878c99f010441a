"""Observations into features, on which every policy and critic stands; features into returns-to-go and into actions.

A critic is a trunk and an output layer: the distribution of the return-to-go of one signal, Ψ(s, τ), or only its mean.
A policy is a trunk, an output layer, and a head that reads the output as a distribution over actions. A head is
stateless: it maps parameters [..., P], which the network makes, to samples, log-probabilities, entropies and
divergences, and samples to what the environment is given. Algorithms see heads only through these functions, so a new
kind of action is one new head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.heads import CategoricalHead, GaussianHead, SimplexHead, make_head
from portfolio_sdpo.nn.quantiles import Tail, draw_levels, quantile_huber_loss


class ObservationCodec:
    """Turns observations of a gymnasium space into one flat tensor [B, D], and knows what each column means.

    A discrete component takes one column that holds its index, not a one-hot vector: a random CMDP's observation has
    2 columns instead of 1001. `FirstLayer` knows how to read it back. Boxes are flattened, `Dict` and `Tuple` joined.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.categories: list[int] = []
        """Size of each categorical column, in order; these columns come first."""
        self.continuous = 0
        """How many real-valued columns follow."""
        for leaf in _leaves(space):
            if isinstance(leaf, spaces.Discrete):
                self.categories.append(int(leaf.n))
            elif isinstance(leaf, spaces.MultiDiscrete):
                self.categories.extend(int(n) for n in leaf.nvec.ravel())
            elif isinstance(leaf, spaces.Box):
                self.continuous += int(np.prod(leaf.shape))
            elif isinstance(leaf, spaces.MultiBinary):
                self.continuous += int(np.prod(np.atleast_1d(leaf.shape)))
            else:
                raise SettingsError(
                    f"observation space {leaf} is not supported: use Box, Discrete, MultiDiscrete, MultiBinary, "
                    "or a Dict or Tuple of these."
                )

    @property
    def width(self) -> int:
        return len(self.categories) + self.continuous

    def encode(self, observation: Any, count: int) -> Tensor:
        """A batch of `count` observations as gymnasium's vector environments return them → float32 [count, D]."""
        discrete: list[np.ndarray] = []
        real: list[np.ndarray] = []
        for leaf, value in zip(_leaves(self.space), _values(self.space, observation), strict=True):
            if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
                discrete.append(np.asarray(value - leaf.start, dtype=np.float32).reshape(count, -1))
            else:
                real.append(np.asarray(value, dtype=np.float32).reshape(count, -1))
        return torch.from_numpy(np.concatenate(discrete + real, axis=1))

    def trunk(self, hidden: Sequence[int], extra: int = 0) -> Trunk:
        """The trunk of a critic: observations (and `extra` further real columns) to features."""
        return Mlp(self, hidden, extra)

    def policy_network(self, hidden: Sequence[int], initial: Tensor) -> nn.Module:
        """A network whose output is close to `initial` [width] before training; without hidden layers it is linear."""
        if hidden:
            trunk, output = self.trunk(hidden), orthogonal(nn.Linear(hidden[-1], len(initial)), gain=0.01)
            output.bias.data.copy_(initial)
            return nn.Sequential(trunk, output)
        network = FirstLayer(self, len(initial))
        for parameter in network.parameters():
            nn.init.zeros_(parameter)
        start = network.linear.bias if network.linear is not None else network.tables[0].weight
        start.data.add_(initial)  # type: ignore[operator]
        return network


def _leaves(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    if isinstance(space, spaces.Dict):
        return [leaf for part in space.spaces.values() for leaf in _leaves(part)]
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space.spaces for leaf in _leaves(part)]
    return [space]


def _values(space: spaces.Space[Any], observation: Any) -> list[Any]:
    if isinstance(space, spaces.Dict):
        return [value for name, part in space.spaces.items() for value in _values(part, observation[name])]
    if isinstance(space, spaces.Tuple):
        return [value for part, item in zip(space.spaces, observation, strict=True) for value in _values(part, item)]
    return [observation]


class FirstLayer(nn.Module):
    """The linear map of [one-hot categories, continuous columns] to `width` features, without building the one-hots.

    Multiplying a one-hot vector by a matrix picks a row of it, so each categorical column is a table look-up.
    """

    def __init__(self, codec: ObservationCodec, width: int, extra: int = 0) -> None:
        super().__init__()
        self.continuous = codec.continuous + extra
        tables = [nn.Embedding(size, width) for size in codec.categories]
        for table in tables:
            # As for a one-hot input of that size: all categories start nearly equal, and only data separates them.
            nn.init.normal_(table.weight, std=table.num_embeddings**-0.5)
        self.tables = nn.ModuleList(tables)
        self.linear = nn.Linear(self.continuous, width) if self.continuous else None
        if self.linear is not None:
            nn.init.normal_(self.linear.weight, std=self.continuous**-0.5)
            nn.init.zeros_(self.linear.bias)

    def forward(self, observation: Tensor) -> Tensor:
        """[..., D] → [..., width]"""
        split = len(self.tables)
        parts = [table(observation[..., k].long()) for k, table in enumerate(self.tables)]
        if self.linear is not None:
            parts.append(self.linear(observation[..., split:]))
        return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    """Initialise a linear layer as is usual in policy optimisation: orthogonal weights, zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Trunk(nn.Module):
    """Maps observations [..., D] to features [..., `features`]."""

    features: int


class Mlp(Trunk):
    """Observation [..., D] (+ `extra` further real columns) → features [..., hidden[-1]], tanh between layers."""

    def __init__(self, codec: ObservationCodec, hidden: Sequence[int], extra: int = 0) -> None:
        super().__init__()
        self.features = hidden[-1]
        self.first = FirstLayer(codec, hidden[0], extra)
        self.rest = nn.ModuleList(
            orthogonal(nn.Linear(a, b), 2**0.5) for a, b in zip(hidden[:-1], hidden[1:], strict=True)
        )

    def forward(self, observation: Tensor) -> Tensor:
        features = torch.tanh(self.first(observation))
        for layer in self.rest:
            features = torch.tanh(layer(features))
        return features


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

    def predict_standardised(self, features: Tensor, tau: Tensor) -> Tensor:
        """Predictions [..., N] in standardised units, for features [..., H] of the trunk and levels [N]."""
        raise NotImplementedError

    def loss(self, observation: Tensor, target: Tensor, generator: torch.Generator) -> Tensor:
        """The loss of the predictions at [B, D] for target samples [B, N] of the return-to-go."""
        raise NotImplementedError

    def forward(self, observation: Tensor, tau: Tensor) -> Tensor:
        """The τ-quantiles [..., N] of the return-to-go, in the signal's units."""
        return self.predict(self.trunk(observation), tau)

    def predict(self, features: Tensor, tau: Tensor) -> Tensor:
        """The same for features [..., H] that the trunk has already made of observations."""
        return self.predict_standardised(features, tau) * self.scale + self.location

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

    def predict_standardised(self, features: Tensor, tau: Tensor) -> Tensor:
        # [N, H]
        levels = torch.relu(self.embedding(torch.cos(tau.unsqueeze(-1) * self.frequencies)))
        # [..., H] · [H, N]
        return (features * self.output.weight[0]) @ levels.T + self.output.bias

    def loss(self, observation: Tensor, target: Tensor, generator: torch.Generator) -> Tensor:
        # With sorted levels the predictions are nearly sorted as well, and the loss finds their ranks in half the time.
        tau = draw_levels(target.shape[-1], self.tails, generator)
        return quantile_huber_loss(
            self.predict_standardised(self.trunk(observation), tau),
            tau,
            (target - self.location) / self.scale,
            self.kappa,
        )


class MeanCritic(Critic):
    """The expected return-to-go, as in PPO, IPO, CPO and PCPO: a distribution with one atom."""

    def predict_standardised(self, features: Tensor, tau: Tensor) -> Tensor:
        value: Tensor = self.output(features)
        return value.expand(*value.shape[:-1], len(tau))

    def loss(self, observation: Tensor, target: Tensor, generator: torch.Generator) -> Tensor:
        error: Tensor = (
            self.output(self.trunk(observation)) - (target.mean(-1, keepdim=True) - self.location) / self.scale
        )
        return error.square().mean()


class Policy(nn.Module):
    """π(a | s): observations [..., D] to the parameters [..., P] of `head`.

    Its start is known: the output layer is almost zero, so a categorical policy starts uniform and a Gaussian policy
    starts with mean zero (no motion; for weights, all in cash) and standard deviation `initial_std`. If `hidden` is
    empty, the policy is linear in the observation; for a discrete state it is a table of logits.
    """

    def __init__(
        self,
        codec: ObservationCodec,
        action_space: spaces.Space[Any],
        hidden: Sequence[int],
        initial_std: float = 0.5,
        logit_bound: float | None = None,
    ) -> None:
        """logit_bound: of a policy of weights, see `SimplexHead`."""
        super().__init__()
        self.head: CategoricalHead | GaussianHead = make_head(action_space, logit_bound)
        width = self.head.width
        self.network = codec.policy_network(hidden, self.head.initial)
        gaussian = isinstance(self.head, GaussianHead)
        self.log_std = nn.Parameter(torch.full((width,), math.log(initial_std))) if gaussian else None

    def forward(self, observation: Tensor) -> Tensor:
        """[..., D] → [..., P]"""
        output: Tensor = self.network(observation)
        if self.log_std is None:
            return output
        if isinstance(self.head, SimplexHead):
            output = self.head.limit(output)
        return torch.cat([output, self.log_std.expand_as(output)], -1)

    def act(self, observation: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sampled actions [B, ...] and their log-probabilities [B] for observations [B, D]; no gradient."""
        with torch.no_grad():
            parameters = self(observation)
            action = self.head.sample(parameters, generator)
            return action, self.head.log_prob(parameters, action)
