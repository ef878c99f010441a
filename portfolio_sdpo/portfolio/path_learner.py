"""What a walk-forward trains: an allocation policy over price paths, and the rule by which paths improve it.

`AnalyticLearner` is SDPO with the analytic estimator, whose gradients go straight through the reward; `ActingLearner`
lets any of the algorithms act on the paths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from portfolio_sdpo.rl.metrics import LogRow


class PathLearner(ABC):
    """A policy and its learning. All that has to survive a restart is in `state_dict` or in `optimisers`."""

    @abstractmethod
    def update(self, gross_returns: Tensor, listed: Tensor, generator: torch.Generator) -> LogRow:
        """Improve the policy on paths [P, L+1, A]: row l is seen at decision l, row l+1 is earned by it.

        Returned is the learner's view before it: `objective`, and for constraint i `risk_i`, `slack_i`, `regime_i`.
        """

    def earn_as_deployed(self, gross_returns: Tensor, listed: Tensor, generator: torch.Generator) -> Tensor | None:
        """Log growth [N] of every period on paths, of the policy that decides; None where it is not known.

        The policy that decides may be another than the one that learns, such as its running average.
        """
        return None

    def restart_estimates(self) -> None:  # noqa: B027 — most learners have none
        """Paths are drawn from another distribution from now on: running estimates about the old one restart."""

    def resume(self, updates: int) -> None:  # noqa: B027
        """After a checkpoint: so many updates were made since the last restart, and the distribution is the same."""

    @abstractmethod
    def weights(self, gross_returns: Tensor, listed: Tensor, held: Tensor) -> Tensor:
        """Weights [A] after the sessions [L, A] that were seen last, newest at the end; `held` [A] drifted there."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint saves, besides the optimisers."""

    @abstractmethod
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Become the learner that was saved."""

    @abstractmethod
    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        """In a fixed order."""
