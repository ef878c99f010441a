"""What a walk-forward trains: an allocation policy over price paths, and the rule by which paths improve it.

`Analytic` goes straight through the reward, `OnPaths` lets any of the algorithms act on the paths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from portfolio_sdpo.rl.algorithms.base import Metrics


class PathLearner(nn.Module, ABC):
    """A policy and its learning. All that has to survive a restart is a parameter, a buffer or in `optimisers`."""

    @abstractmethod
    def update(self, gross_returns: Tensor, listed: Tensor, generator: torch.Generator) -> Metrics:
        """Improve the policy on paths [P, L+1, A]: row l is seen at decision l, row l+1 is earned by it.

        Returned is the learner's view before it: `objective`, and for constraint i `risk_i`, `slack_i`, `regime_i`.
        """

    def renew(self) -> None:
        """From now on paths are drawn from another law: running estimates about the old one begin anew."""

    def go_on(self, updates: int) -> None:
        """After a checkpoint: so many updates were made since the last `renew`, and the law is still the same."""

    @abstractmethod
    def weights(self, gross_returns: Tensor, listed: Tensor, held: Tensor) -> Tensor:
        """Weights [A] after the sessions [L, A] that were seen last, newest at the end; `held` [A] drifted there."""

    @abstractmethod
    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        """In a fixed order."""
