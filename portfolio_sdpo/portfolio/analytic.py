"""SDPO on price paths with the analytic estimator: what trains the default portfolio.

Growth is a smooth function of the weights, and prices do not depend on them. So `path_policy` is a reward model for
`rl.estimators.analytic`, and Algorithm 1 (`rl.algorithms.sdpo`) runs without critics, advantages or exploration:

    θ ← ascend  E[R(θ)] + Σ_i ln(slack_i(ρ_i(R(θ)))) / η_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from portfolio_sdpo.portfolio.accounting import Execution
from portfolio_sdpo.portfolio.path_learner import PathLearner
from portfolio_sdpo.portfolio.path_policy import Allocation, Deployment, draw_start, grow_as_deployed, grow_from_cash
from portfolio_sdpo.portfolio.path_shield import PathShield
from portfolio_sdpo.rl.algorithms.ascent import GradientAscent
from portfolio_sdpo.rl.algorithms.base import Problem
from portfolio_sdpo.rl.algorithms.pricing import CappedBarrierPricing
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo
from portfolio_sdpo.rl.estimators.analytic import AnalyticEstimator
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.settings import Settings

Paths = tuple[Tensor, Tensor, Tensor | None]
"""Gross returns and listings, [P, rows, A] each, and the weights [P, A] at the start; None for all cash."""


class AnalyticSettings(Settings):
    """SDPO with the analytic estimator on price paths: how the allocation policy looks and learns.

    Files name it by the kind `analytic`; `kind = "sdpo"` with `estimator = "analytic"` is read as the same.
    """

    kind: Literal["analytic"] = "analytic"
    hidden: tuple[int, int] = (64, 64)
    """Width of the LSTM and of the layer after it."""
    learning_rate: float = Field(default=1e-3, gt=0)
    anneal: int = Field(default=0, ge=0)
    """Iterations over which the learning rate falls linearly to a tenth of itself; 0 keeps it."""
    smoothing: float = Field(default=0.05, gt=0, le=1)
    """Weight of the newest paths in the running estimate of each risk."""
    betas: tuple[float, float] = (0.5, 0.9)
    """Of Adam. Leaving cash, gradients grow a thousandfold within a few updates: with the usual memory of 10 and 1,000
    updates the policy shoots past the bound and then hardly moves."""
    averaging: float = Field(default=0.98, ge=0, lt=1)
    """Decay, per update, of the running average of the weights that decisions are made with; 0 takes the newest."""

    @property
    def estimator(self) -> str:
        """The estimator of SDPO that this is."""
        return self.kind


class AnalyticLearner(PathLearner):
    """An allocation policy that SDPO improves by gradients through the growth of price paths."""

    def __init__(
        self,
        settings: AnalyticSettings,
        problem: Problem,
        assets: int,
        fee: float = 0.0,
        execution: Execution = "same-close",
        deployment: Deployment | None = None,
    ) -> None:
        self.settings = settings
        self.fee = fee
        self.execution = execution
        self.deployment = deployment
        self.shield: PathShield | None = None
        """What decisions on the paths to come pass; None where it is nothing."""
        policy = Allocation(assets, settings.hidden, sees_held=fee > 0)
        self.algorithm = Sdpo.from_parts(
            settings,
            problem,
            policy,
            estimator=lambda state: AnalyticEstimator(state, problem, policy, self._rewards, settings.smoothing),
            pricing=lambda state: CappedBarrierPricing(problem.constraints),
            ascent=lambda state: GradientAscent(
                state,
                policy,
                learning_rate=settings.learning_rate,
                anneal=settings.anneal,
                betas=settings.betas,
                averaging=settings.averaging,
            ),
        )

    @property
    def policy(self) -> Allocation:
        """The policy that learns."""
        policy: Allocation = self.algorithm.policy
        return policy

    @property
    def averaged(self) -> Allocation:
        """The policy that decides: the running average of the one that learns."""
        averaged: Any = self.algorithm.averaged
        return averaged

    def _rewards(self, policy: Allocation, paths: Paths) -> Tensor:
        gross_returns, listed, start = paths
        if self.deployment is None or start is None:
            return grow_from_cash(policy, gross_returns, listed, self.fee, self.execution)
        return grow_as_deployed(policy, gross_returns, listed, start, self.deployment, self.fee, self.shield)

    def update(self, gross_returns: Tensor, listed: Tensor, generator: torch.Generator) -> LogRow:
        """One step; nothing in it is random but the weights that paths start with, where they start invested."""
        updates: Any = self.algorithm.updates
        start = None
        if self.deployment is not None:
            start = draw_start(listed[:, self.deployment.seen - 1], generator)
        return self.algorithm.update((gross_returns, listed, start), int(updates), generator)

    @torch.no_grad()
    def earn_as_deployed(self, gross_returns: Tensor, listed: Tensor, generator: torch.Generator) -> Tensor | None:
        if self.deployment is None:
            return None
        start = draw_start(listed[:, self.deployment.seen - 1], generator)
        return self._rewards(self.averaged, (gross_returns, listed, start)).sum(1)

    def restart_estimates(self) -> None:
        self.resume(0)

    def resume(self, updates: int) -> None:
        estimator, ascent = self.algorithm.estimator, self.algorithm.ascent
        assert isinstance(estimator, AnalyticEstimator) and isinstance(ascent, GradientAscent)
        estimator.restart(updates)
        ascent.restart(updates)

    @torch.no_grad()
    def weights(self, gross_returns: Tensor, listed: Tensor, held: Tensor) -> Tensor:
        logits = self.averaged.logits(gross_returns.unsqueeze(0), listed.unsqueeze(0))[0, -1]
        return self.averaged.weights(logits, held)

    def state_dict(self) -> dict[str, Any]:
        return self.algorithm.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        return self.algorithm.load_state_dict(state_dict)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return self.algorithm.optimisers()
