"""What the algorithms share: a policy, an optimiser, one update per rollout, and a state that can be saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from pydantic import Field
from torch import nn

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.policy import Policy
from portfolio_sdpo.nn.trunk import ObservationCodec
from portfolio_sdpo.risk import Constraint, Expectation
from portfolio_sdpo.risk.measures import Measure
from portfolio_sdpo.rl.rollout import Rollout
from portfolio_sdpo.settings import Settings

Metrics = dict[str, float | str]
"""One row of the training log: numbers, and the barrier's regimes as words."""


class ActorSettings(Settings):
    """How the policy looks and learns."""

    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers; none makes the policy linear (for a discrete state: a table of logits)."""
    learning_rate: float = Field(default=1e-4, gt=0)
    anneal: int = Field(default=0, ge=0)
    """Iterations over which the learning rate falls linearly to a tenth of itself; 0 keeps it."""
    initial_std: float = Field(default=0.5, gt=0)
    """Standard deviation at the start, continuous actions only."""

    def rate(self, iteration: int) -> float:
        """The learning rate of that iteration."""
        elapsed = min(iteration / self.anneal, 1.0) if self.anneal else 0.0
        return self.learning_rate * (1 - 0.9 * elapsed)


class Problem(Settings):
    """What is to be solved: max objective(Σ γ^t reward) subject to the constraints."""

    discount: float = Field(default=0.99, gt=0, le=1)
    constraints: tuple[Constraint, ...] = ()
    objective: Measure = Field(default_factory=Expectation)
    """The measure of the reward that is maximised; the paper's is the expectation."""

    def discount_of(self, constraint: Constraint) -> float:
        return self.discount if constraint.discount is None else constraint.discount

    def signals(self) -> list[str]:
        """Every signal that the environment has to emit, `reward` first."""
        return list(dict.fromkeys(["reward", *(constraint.signal for constraint in self.constraints)]))


class AlgorithmSettings(Settings):
    """Base of every algorithm's settings; `kind` is its name in files and on the command line."""

    kind: str
    actor: ActorSettings = ActorSettings()


class Algorithm(nn.Module, ABC):
    """A policy and the rule by which a rollout improves it.

    Everything that has to survive a restart is a parameter, a buffer or an optimiser listed in `optimisers`: that is
    what checkpoints save.
    """

    accepts_nonlinear: ClassVar[bool] = False
    """Whether constraints on measures other than the expectation can be handled."""

    settings: AlgorithmSettings
    """Each algorithm declares its own kind of them."""

    def __init__(
        self,
        settings: AlgorithmSettings,
        problem: Problem,
        codec: ObservationCodec,
        action_space: spaces.Space[Any],
    ) -> None:
        super().__init__()
        self.settings = settings
        self.problem = problem
        self.policy = Policy(codec, action_space, settings.actor.hidden, settings.actor.initial_std)
        if not self.accepts_nonlinear:
            refuse_nonlinear(settings.kind, problem, "use sdpo")

    @abstractmethod
    def update(self, rollout: Rollout, iteration: int, generator: torch.Generator) -> Metrics:
        """Improve the policy by one rollout of it; all randomness comes from `generator`."""

    def finish(self, iterations: int) -> None:
        """Called when training is over after so many iterations; an error says that its aim was missed."""

    @abstractmethod
    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        """In a fixed order."""


def refuse_nonlinear(kind: str, problem: Problem, instead: str) -> None:
    """A `SettingsError` if objective or constraints are of a measure other than the expectation."""
    for measure in (problem.objective, *(constraint.measure for constraint in problem.constraints)):
        if not measure.linear:
            raise SettingsError(f"{kind}: bounds only expectations, not {measure.label}; {instead} for this measure.")


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Give all parameters of an optimiser this learning rate."""
    for group in optimiser.param_groups:
        group["lr"] = rate


def policy_metrics(policy: Policy, rollout: Rollout) -> Metrics:
    """What an expert looks at after an update: KL to the old policy (estimator k3 of Schulman), entropy."""
    with torch.no_grad():
        parameters = policy(rollout.observation)
        log_ratio = policy.head.log_prob(parameters, rollout.action) - rollout.log_prob
        kl = (log_ratio.exp() - 1 - log_ratio).mean().item()
        return {"kl": kl, "entropy": policy.head.entropy(parameters).mean().item()}
