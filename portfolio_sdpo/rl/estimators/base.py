"""What every estimator of SDPO answers: how large is each risk, and in which direction does it change?

The gradient of the paper's objective (eq. 14) is ∇J_PPO − Σ_i price_i ∇ρ_i(Y_i). An estimator fits its critics, if it
has any, assesses objective and risks on a batch, and turns them, once the prices are known, into what is ascended.
Estimators are interchangeable; `docs/sdpo.md` has the table of what each one needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from portfolio_sdpo.rl.critics import CriticBank, Valuation
from portfolio_sdpo.rl.metrics import LogRow

SignalKey = tuple[str, float]
"""A signal and its discount: what a critic is about."""
Valuations = dict[SignalKey, Valuation]
"""What the critics say of a batch; empty for an estimator without critics."""
ObjectiveTerm = Callable[[Tensor, Tensor], Tensor]
"""Indices of a minibatch [m] and the policy's output there [m, P] → a scalar that is maximised as well."""


@dataclass(frozen=True)
class RiskEstimate:
    """One risk measure of one cumulated signal under the policy that made the batch."""

    estimate: float
    """ρ, corrected by the batch where critics give it"""
    standard_error: float
    """of `estimate`, from the spread over episodes"""
    plug_in: float
    """ρ of the critic's distribution at s0, mean over the episodes' s0; `estimate` where there is no critic"""
    advantage: Tensor
    """[n] risk advantage, on the footing of the reward advantage; with the analytic estimator ρ itself, a scalar that
    carries its gradient"""


@dataclass(frozen=True)
class Assessment:
    """Objective and constraints as a batch shows them."""

    objective: RiskEstimate
    risks: list[RiskEstimate]
    """one per constraint"""
    log: LogRow = field(default_factory=dict)
    valuations: Valuations = field(default_factory=dict)
    """what it was made from, where the estimator needs that again"""


@dataclass(frozen=True)
class ShadowPrices:
    """What a unit of each risk costs in units of the objective."""

    values: list[float]
    """one per constraint"""
    counts_objective: bool = True
    """False in phase I, which only looks for a feasible policy"""
    log: LogRow = field(default_factory=dict)


@dataclass(frozen=True)
class Direction:
    """What the policy ascends."""

    advantage: Tensor
    """[n] A − Σ_i price_i · (±A_i); with the analytic estimator the objective itself, a scalar"""
    term: ObjectiveTerm | None = None
    """A further term of the objective, in the advantage's units"""


Batch = TypeVar("Batch", contravariant=True)
"""What an estimator learns from: a `Rollout`, or price paths."""


class Estimator(Protocol[Batch]):
    """How SDPO obtains ρ_i and ∇ρ_i."""

    @property
    def critics(self) -> CriticBank | None:
        """None where the estimator has no use for critics: then none are built."""

    def fit_critics(self, batch: Batch, generator: torch.Generator) -> tuple[Valuations, LogRow]:
        """Fit the critics to the batch and read them (Algorithm 1, lines 3 to 9)."""

    def assess(self, batch: Batch, valuations: Valuations) -> Assessment:
        """ρ of the objective and of every constraint, with what its gradient is computed from."""

    def combine(
        self, batch: Batch, assessment: Assessment, prices: ShadowPrices, generator: torch.Generator
    ) -> Direction:
        """∇J − Σ_i price_i ∇ρ_i (eq. 14), in the form that the ascent takes."""

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        """Of the critics, in a fixed order."""


AnyEstimator = Estimator[Any]
