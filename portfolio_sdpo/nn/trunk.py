"""Observations into features: what every policy and critic stands on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from portfolio_sdpo.errors import SettingsError


class ObservationCodec:
    """Turns observations of a gymnasium space into one flat tensor [B, D], and remembers what each column means.

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
        """What a critic stands on: observations (+ `extra` further real columns) to features."""
        return Mlp(self, hidden, extra)

    def policy_network(self, hidden: Sequence[int], initial: Tensor) -> nn.Module:
        """Observations to `initial` [width], near enough, until it learns; without hidden layers it is linear."""
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
    """The linear map of [one-hot categories, continuous columns] to `width` features, without making the one-hots.

    Multiplying a one-hot vector by a matrix picks a row of it, so each categorical column is a table look-up.
    """

    def __init__(self, codec: ObservationCodec, width: int, extra: int = 0) -> None:
        super().__init__()
        self.continuous = codec.continuous + extra
        tables = [nn.Embedding(size, width) for size in codec.categories]
        for table in tables:
            # As for a one-hot input of that size: all categories start nearly alike, and only data tells them apart.
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
