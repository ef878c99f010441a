"""Observations of episodes that replay price paths: a number of a path, a step on it, and what is held.

The prices themselves stay here, once, however many episodes replay them. The policy's LSTM runs over the distinct paths
and every observation picks its row of the result; critics stand on the same features and do not move them, so that
fitting the critics leaves the policy where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.heads import UNLISTED
from portfolio_sdpo.nn.networks import ObservationCodec, Trunk, orthogonal
from portfolio_sdpo.portfolio.path_policy import Allocation, Deployment, PathTrunk


class PathCodec(ObservationCodec):
    """Columns (path, step) and, if the policy sees them, held weights [A]."""

    def __init__(self, assets: int, sees_held: bool = False) -> None:
        self.assets = assets
        self.sees_held = sees_held
        super().__init__(spaces.Box(-np.inf, np.inf, (2 + assets * sees_held,)))
        self._relatives = torch.ones(1, 1, assets)
        self._listed = torch.ones(1, 1, assets, dtype=torch.bool)
        self._trunk: PathTrunk | None = None
        self._features: Tensor | None = None
        self._deployment: Deployment | None = None

    def replay(self, gross_returns: Tensor, listed: Tensor, deployment: Deployment | None = None) -> None:
        """From now on path p is row p of these, [P, L+1, A] each, and a step is a row, or with a deployment a decision.

        At a decision the policy sees the sessions before it, and no others.
        """
        self._relatives, self._listed, self._deployment = gross_returns, listed, deployment
        self._features = None

    @property
    def paths(self) -> tuple[Tensor, Tensor]:
        """Relatives and listings [P, L+1, A]."""
        return self._relatives, self._listed

    def read(self, network: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """[P, steps, ...] what a network of gross returns and listings says at every step."""
        if self._deployment is None:
            return network(self._relatives, self._listed)
        windows = self._deployment.windows
        return network(windows(self._relatives), windows(self._listed))[:, -1].unflatten(0, (len(self._relatives), -1))

    def features(self) -> Tensor:
        """[P, steps, H] what the policy's trunk says at every step, without gradient."""
        if self._features is None:
            assert self._trunk is not None, "the policy is built before its critics"
            with torch.no_grad():
                self._features = self.read(self._trunk)
        return self._features

    def trunk(self, hidden: Sequence[int], extra: int = 0) -> Trunk:
        return PathReader(self, hidden[-1], extra)

    def policy_network(self, hidden: Sequence[int], initial: Tensor) -> nn.Module:
        if len(hidden) != 2 or len(initial) != self.assets:
            raise SettingsError(f"hidden: an LSTM and the layer after it have two widths (got {tuple(hidden)}).")
        network = PathLogits(self, (hidden[0], hidden[1]))
        network.allocation.output.bias.data.copy_(initial)
        self._trunk = network.allocation.trunk
        return network

    def __deepcopy__(self, memo: dict[int, Any]) -> PathCodec:
        # Averaged critics read the same paths.
        return self


class PathLogits(nn.Module):
    """The allocation policy's logits, [..., A], at observations [..., D]."""

    def __init__(self, codec: PathCodec, hidden: tuple[int, int]) -> None:
        super().__init__()
        self._codec = codec
        self.allocation = Allocation(codec.assets, hidden, codec.sees_held)

    def forward(self, observation: Tensor) -> Tensor:
        path, step = _row(observation)
        table = self._codec.read(lambda gross_returns, listed: self.allocation.logits(gross_returns, listed, UNLISTED))
        return self.allocation.join(table[path, step], observation[..., 2:])


class PathReader(Trunk):
    """A layer of a critic's own on the policy's features, the share of the path that is over, and what is held."""

    def __init__(self, codec: PathCodec, width: int, extra: int = 0) -> None:
        super().__init__()
        self._codec = codec
        self.features = width
        trunk = codec._trunk
        assert trunk is not None, "the policy is built before its critics"
        columns = trunk.features + 1 + codec.assets * codec.sees_held + extra
        self.linear = orthogonal(nn.Linear(columns, width), 2**0.5)

    def forward(self, observation: Tensor) -> Tensor:
        path, step = _row(observation)
        table = self._codec.features()
        over = observation[..., 1:2] / table.shape[1]
        return torch.tanh(self.linear(torch.cat([table[path, step], over, observation[..., 2:]], -1)))


def _row(observation: Tensor) -> tuple[Tensor, Tensor]:
    return observation[..., 0].long(), observation[..., 1].long()
