"""SDPO, the paper's Algorithm 1: PPO's clipped objective, one log barrier per risk constraint, quantile critics.

    for k = 0, 1, …
        B ← run policy π_θ                                    line 2       the trainer
        fit the quantile critics to B by quantile regression  lines 3–9    `estimator.fit_critics`
        ρ_i(Y_i) and its gradient                             section 5    `estimator.assess`
        price_i ← 1 / (η_i · slack_i)                         eq. 14       `pricing.set_prices`
        θ ← ascend  J_PPO(θ) + Σ_i ln(slack_i(θ)) / η_i       line 10      `estimator.combine`, `ascent.ascend`

What makes it SDPO and not IPO: the critics carry whole distributions, so ρ_i may be any risk measure, also as the
objective. How ∇ρ_i is obtained is the estimator's choice (`rl.estimators`); it is SDPO with each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from gymnasium import spaces
from pydantic import Field, model_validator
from torch import nn

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.rl.algorithms.ascent import ClippedAscent
from portfolio_sdpo.rl.algorithms.backup import Backup, BackupSettings, ExtrapolatedPricing, LatePolicy
from portfolio_sdpo.rl.algorithms.base import Algorithm, AlgorithmSettings, Problem, build_policy, refuse_mean_critics
from portfolio_sdpo.rl.algorithms.ppo import PpoSettings
from portfolio_sdpo.rl.algorithms.pricing import BarrierPricing, ConstraintMonitor
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.estimators import EstimatorName
from portfolio_sdpo.rl.estimators.base import AnyEstimator, Direction, RiskEstimate, ShadowPrices
from portfolio_sdpo.rl.estimators.counterfactual import CounterfactualEstimator
from portfolio_sdpo.rl.estimators.pathwise import PathwiseEstimator
from portfolio_sdpo.rl.estimators.score import ScoreEstimator
from portfolio_sdpo.rl.estimators.trajectory import TrajectoryEstimator
from portfolio_sdpo.rl.metrics import LogRow

UNUSED: dict[str, frozenset[str]] = {
    "trajectory": frozenset({"critic", "gae_lambda", "risk_lambda", "risk_atoms", "pooled"}),
    "counterfactual": frozenset({"critic", "gae_lambda", "risk_lambda", "risk_atoms", "pooled", "partners"}),
}
"""Settings that an estimator without critics has no use for."""


class BarrierSettings(PpoSettings):
    """PPO's, and what the barrier needs."""

    smoothing: float = Field(default=0.2, gt=0, le=1)
    """Weight of the newest estimate in the running estimate of each risk that feeds the barrier."""
    phase_one: int = Field(default=0, ge=0)
    """Iterations allowed to drive the worst slack above zero before the objective counts; 0: the start is feasible."""
    phase_one_entropy: float = Field(default=0.2, ge=0)
    """Weight of an entropy bonus in phase I, of policies over finitely many actions; from then on it fades. A policy
    that has made up its mind before the reward counts hardly changes it: actions that it never takes teach nothing."""
    backup: BackupSettings | None = None
    """How episodes begin at rest while the policy is not safe enough for all of them; None: it always acts."""

    added_later: ClassVar[frozenset[str]] = PpoSettings.added_later | {"backup", "phase_one_entropy"}

    def find_unused_additions(self) -> dict[str, Any]:
        found = super().find_unused_additions()
        if self.phase_one and self.phase_one_entropy:
            # Before there was a bonus, phase I was another one.
            found.pop("phase_one_entropy", None)
        elif self.phase_one:
            found["phase_one_entropy"] = True
        return found


class SdpoSettings(BarrierSettings):
    """IPO's, and how distributions become risks and gradients.

    >>> SdpoSettings(clip=0.1).estimator
    'score'
    """

    kind: Literal["sdpo"] = "sdpo"  # type: ignore[assignment]
    critic: CriticSettings = CriticSettings(kind="quantile")
    estimator: EstimatorName = "score"
    """How ∇ρ of a non-linear measure is estimated: by risk advantages, through critics that see the action, (price
    paths only) against what the policy's most likely action would have earned, or from whole trajectories. The last two
    have no critics, and settings that are about critics are refused."""
    risk_lambda: float = Field(default=0.9, ge=0, le=1)
    """λ of the risk advantages."""
    risk_atoms: int = Field(default=32, ge=2)
    """Quantiles by which distributions are represented when risks and advantages are computed."""
    partners: int = Field(default=32, ge=1)
    """Episodes over whose cumulated signal a risk advantage is averaged."""
    pooled: bool | None = None
    """What risk advantages take an episode to have cumulated so far: None what is to be expected in its state, by
    backward critics; True what the batch's episodes have, whatever their states; False what it has."""

    @model_validator(mode="after")
    def _refuse_unused(self) -> Self:
        unused = UNUSED.get(self.estimator, frozenset())
        if unused <= self.model_fields_set:
            # A complete record, read from a file or copied from other settings, names all fields, these as well.
            return self
        for name in sorted(unused & self.model_fields_set):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: does nothing with the estimator {self.estimator}; leave it out")
        return self


class Pricing(Protocol):
    """What sets the prices of the constraints."""

    def set_prices(self, risks: Sequence[RiskEstimate], iteration: int) -> ShadowPrices:
        """Prices of this iteration, after the newest estimates of the risks."""

    def restart(self) -> None:
        """Batches come from another distribution from now on."""

    def finish(self, iterations: int) -> None:
        """An error says that a feasible policy was not found in so many iterations."""


class Ascent(Protocol):
    """What moves the policy."""

    def ascend(self, batch: Any, direction: Direction, iteration: int, generator: torch.Generator) -> LogRow:
        """Climb along the direction."""

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        """In a fixed order."""


class Sdpo(Algorithm):
    """An interior-point method for any risk measure."""

    settings_type: ClassVar[type[AlgorithmSettings]] = SdpoSettings
    accepts_nonlinear = True

    estimator: AnyEstimator
    pricing: Pricing
    ascent: Ascent
    backup: Backup | None = None

    def __init__(
        self, settings: BarrierSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        if settings.backup is None:
            policy = build_policy(settings.actor, codec, action_space)
        else:
            policy = LatePolicy(codec, action_space, settings.actor, settings.backup.share)
        super().__init__(settings, problem, policy)
        self.estimator = self.make_estimator(codec)
        self.register_critics(self.estimator)
        bonus = choose_entropy(settings, action_space)
        monitor = ConstraintMonitor(self, problem.constraints, settings.smoothing, settings.phase_one, bonus)
        self.pricing = self.make_pricing(monitor)
        if settings.backup is not None:
            self.backup = Backup(settings.backup, self.policy, problem)
            self.pricing = ExtrapolatedPricing(self.pricing, self.backup)
        self.ascent = ClippedAscent(self.policy, settings, monitor.entropy_bonus)

    @classmethod
    def from_parts(
        cls,
        settings: Any,
        problem: Problem,
        policy: nn.Module,
        estimator: Callable[[nn.Module], AnyEstimator],
        pricing: Callable[[nn.Module], Pricing],
        ascent: Callable[[nn.Module], Ascent],
    ) -> Self:
        """Algorithm 1 with other parts, such as an analytic estimator, each made for the module with its state."""
        self = cls.__new__(cls)
        Algorithm.__init__(self, settings, problem, policy)
        self.estimator, self.pricing, self.ascent = estimator(self), pricing(self), ascent(self)
        return self

    def update(self, batch: Any, iteration: int, generator: torch.Generator) -> LogRow:
        """One pass of Algorithm 1's loop over a batch that the policy collected."""
        if self.backup is not None:
            batch = self.backup.cut_rest(batch)
        # Lines 3–9: quantile regression of the critics; an estimator without critics has nothing to fit.
        valuations, critic_log = self.estimator.fit_critics(batch, generator)
        # Section 5: ρ_i(Y_i), and what its gradient is computed from.
        assessment = self.estimator.assess(batch, valuations)
        # Eq. 14: what a unit of each risk costs, 1 / (η_i · slack_i).
        prices = self.pricing.set_prices(assessment.risks, iteration)
        # Line 10: θ climbs along ∇J_PPO − Σ_i price_i ∇ρ_i.
        direction = self.estimator.combine(batch, assessment, prices, generator)
        ascent_log = self.ascent.ascend(batch, direction, iteration, generator)
        log = critic_log | assessment.log | prices.log | ascent_log
        return log if self.backup is None else log | self.backup.set_share()

    def make_estimator(self, codec: ObservationCodec) -> AnyEstimator:
        """The estimator that the settings name."""
        return make_estimator(self.settings, self.problem, codec, self.policy)

    def make_pricing(self, monitor: ConstraintMonitor) -> Pricing:
        """The barrier; PD-SDPO has multipliers in its place."""
        return BarrierPricing(monitor)

    def restart_estimates(self) -> None:
        self.pricing.restart()

    def finish(self, iterations: int) -> None:
        self.pricing.finish(iterations)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [*self.ascent.optimisers(), *self.estimator.optimisers()]


def choose_entropy(settings: BarrierSettings, action_space: spaces.Space[Any]) -> float:
    """The weight of phase I's entropy bonus; none for a density, whose entropy has no upper bound."""
    if isinstance(action_space, spaces.Discrete):
        return settings.phase_one_entropy
    if settings.phase_one_entropy not in (0.0, BarrierSettings.model_fields["phase_one_entropy"].default):
        raise SettingsError(
            "phase_one_entropy: only policies over finitely many actions have this bonus; leave it out here."
        )
    return 0.0


def make_estimator(settings: SdpoSettings, problem: Problem, codec: ObservationCodec, policy: Policy) -> AnyEstimator:
    """The estimator that the settings name; a `SettingsError` where it cannot serve the problem."""
    if settings.estimator in UNUSED:
        if settings.credit_discount is not None:
            raise SettingsError(f"credit_discount: {settings.estimator} has no critics to read it; leave it out.")
        if settings.estimator == "counterfactual":
            return CounterfactualEstimator(problem)
        return TrajectoryEstimator(problem, settings.partners)
    refuse_mean_critics(settings, problem)
    for constraint in problem.constraints:
        if settings.critic.kind == "mean" and not constraint.measure.linear:
            label = constraint.measure.label
            raise SettingsError(f"{settings.kind}: mean critics know nothing of {label}; use quantile critics.")
    score = ScoreEstimator(
        problem,
        codec,
        settings.critic,
        gae_lambda=settings.gae_lambda,
        risk_lambda=settings.risk_lambda,
        atoms=settings.risk_atoms,
        partners=settings.partners,
        pooled=settings.pooled,
        credit_discount=settings.credit_discount,
    )
    if settings.estimator == "score":
        return score
    return PathwiseEstimator(problem, codec, policy, score, settings.clip)
