"""What the algorithms share: a problem, a policy, one update per batch, and a state that can be saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from pydantic import Field
from torch import nn

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.risk import Constraint, Expectation
from portfolio_sdpo.risk.measures import Measure
from portfolio_sdpo.rl.algorithms.ascent import ActorSettings
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.estimators.base import AnyEstimator, SignalKey
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.settings import Settings


class Problem(Settings):
    """What is to be solved: max objective(Σ γ^t reward) subject to the constraints (eqs. 9 and 10)."""

    discount: float = Field(default=0.99, gt=0, le=1)
    constraints: tuple[Constraint, ...] = ()
    objective: Measure = Field(default_factory=Expectation)
    """The measure of the reward that is maximised; the paper's is the expectation."""

    def discount_of(self, constraint: Constraint) -> float:
        """The discount of a constraint's budget: its own, or the problem's."""
        return self.discount if constraint.discount is None else constraint.discount

    def budget_keys(self) -> list[SignalKey]:
        """Signal and discount of every constraint's budget."""
        return [(constraint.signal, self.discount_of(constraint)) for constraint in self.constraints]

    def signals(self) -> list[str]:
        """Every signal that the environment has to emit, `reward` first."""
        return list(dict.fromkeys(["reward", *(constraint.signal for constraint in self.constraints)]))


class AlgorithmSettings(Settings):
    """Base of every algorithm's settings; `kind` is its name in files and on the command line."""

    kind: str
    actor: ActorSettings = ActorSettings()


class ActorCriticSettings(AlgorithmSettings):
    """What every algorithm with critics has."""

    critic: CriticSettings = CriticSettings(kind="mean")
    gae_lambda: float = Field(default=0.9, ge=0, le=1)
    credit_discount: float | None = Field(default=None, gt=0, le=1)
    """Discount, at most the budget's, by which actions are held to account for what they add to a bounded expectation;
    None takes the budget's. Over a long undiscounted episode nearly all of that is chance. The bound stays on the
    budget, which is then read off whole episodes; like the reward's, this credit looks beyond a time limit."""

    added_later: ClassVar[frozenset[str]] = frozenset({"credit_discount"})


class Algorithm(nn.Module, ABC):
    """A policy and the rule by which a batch improves it.

    Everything that has to survive a restart is a parameter, a buffer or an optimiser listed in `optimisers`: that is
    what checkpoints save. A new algorithm declares its `settings_type`, takes (settings, problem, codec, action_space)
    and implements `update` and `optimisers`; `ALGORITHMS` in this package says how it becomes known.
    """

    settings_type: ClassVar[type[AlgorithmSettings]] = AlgorithmSettings
    """The settings that `kind` stands for in files."""
    accepts_nonlinear: ClassVar[bool] = False
    """Whether constraints on measures other than the expectation can be handled."""

    settings: Any
    """Each algorithm declares its own kind of them."""
    critics: Any
    """Its critics, None if it has none."""
    backward_critics: Any
    """Its critics of the past, None if it has none."""

    def __init__(self, settings: Any, problem: Problem, policy: nn.Module) -> None:
        super().__init__()
        self.settings = settings
        self.problem = problem
        self.policy: Any = policy
        self.critics = None
        self.backward_critics = None
        if not self.accepts_nonlinear:
            refuse_nonlinear(settings.kind, problem, "use sdpo")

    def register_critics(self, estimator: AnyEstimator) -> None:
        """Make the estimator's critics part of the algorithm's state, by the names that checkpoints have for them."""
        self.critics = estimator.critics
        self.backward_critics = getattr(estimator, "backward_critics", None)
        if (action_critics := getattr(estimator, "action_critics", None)) is not None:
            self.pathwise = nn.ModuleDict({"critics": action_critics})
        self.register_load_state_dict_post_hook(_excuse_earlier_versions)  # type: ignore[no-untyped-call]

    @abstractmethod
    def update(self, batch: Any, iteration: int, generator: torch.Generator) -> LogRow:
        """Improve the policy by one batch of it, in general a `Rollout`; all randomness comes from `generator`."""

    def restart_estimates(self) -> None:
        """Batches come from another distribution from now on: running estimates about the old one restart."""

    def finish(self, iterations: int) -> None:
        """Called when training is over after so many iterations; an error says that its aim was missed."""

    @abstractmethod
    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        """In a fixed order."""

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # Earlier versions saved critics with estimators that never used them: these are left out.
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if self.critics is None:
            unexpected_keys[:] = [name for name in unexpected_keys if not name.startswith(f"{prefix}critics.")]


def _excuse_earlier_versions(algorithm: Any, found: Any) -> None:
    """Trust-region methods had no backward critics: theirs restart. Action critics had a memory that nothing read."""
    names = [name for name in found.missing_keys if ".backward_critics." in f".{name}"]
    if algorithm.backward_critics is not None and len(names) == len(algorithm.backward_critics.state_dict()):
        found.missing_keys[:] = [name for name in found.missing_keys if name not in names]
    found.unexpected_keys[:] = [name for name in found.unexpected_keys if ".pathwise.critics.memory." not in f".{name}"]


def build_policy(settings: ActorSettings, codec: ObservationCodec, action_space: spaces.Space[Any]) -> Policy:
    """A freshly initialised policy."""
    return Policy(codec, action_space, settings.hidden, settings.initial_std, settings.logit_bound)


def refuse_nonlinear(kind: str, problem: Problem, instead: str) -> None:
    """A `SettingsError` if objective or constraints are of a measure other than the expectation."""
    for measure in (problem.objective, *(constraint.measure for constraint in problem.constraints)):
        if not measure.linear:
            raise SettingsError(f"{kind}: bounds only expectations, not {measure.label}; {instead} for this measure.")


def refuse_mean_critics(settings: ActorCriticSettings, problem: Problem) -> None:
    """A `SettingsError` if a measure other than the expectation is to be maximised by critics of the mean."""
    if settings.critic.kind == "mean" and not problem.objective.linear:
        raise SettingsError(
            f"{settings.kind}: maximises only the expectation with mean critics, not {problem.objective.label}; "
            "use sdpo with quantile critics."
        )
