"""PPO (Schulman et al. 2017): the clipped surrogate, no constraint. The unsafe baseline; IPO and SDPO build on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor

from portfolio_sdpo.errors import DivergenceError, SettingsError
from portfolio_sdpo.nn.trunk import ObservationCodec
from portfolio_sdpo.risk import Constraint, RiskMeasure
from portfolio_sdpo.rl.advantage import Grid
from portfolio_sdpo.rl.algorithms.base import Algorithm, AlgorithmSettings, Metrics, Problem, policy_metrics, set_rate
from portfolio_sdpo.rl.algorithms.trajectory import whole_episodes
from portfolio_sdpo.rl.critics import CriticBank, CriticSettings, Valuation, minibatches
from portfolio_sdpo.rl.risk_advantage import Assessment, assess, empirical
from portfolio_sdpo.rl.rollout import Rollout

Further = Callable[[Tensor, Tensor], Tensor]
"""Indices of a minibatch [m] and the policy's output there [m, P] → a scalar to be maximised as well."""
ATOMS = 32
"""By which laws are represented when advantages are computed from quantile critics."""


class ActorCriticSettings(AlgorithmSettings):
    """What every algorithm with critics has."""

    critic: CriticSettings = CriticSettings(kind="mean")
    gae_lambda: float = Field(default=0.9, ge=0, le=1)
    credit_discount: float | None = Field(default=None, gt=0, le=1)
    """Discount, at most the budget's, by which actions are held to account for what they add to a bounded expectation;
    None takes the budget's. Over a long undiscounted episode nearly all of that is chance. The bound stays on the
    budget, which is then read off whole episodes; like the reward's, this credit looks beyond a time limit."""


class PpoSettings(ActorCriticSettings):
    """The clipped surrogate and how long it is ascended."""

    kind: Literal["ppo"] = "ppo"
    clip: float = Field(default=0.2, gt=0, lt=1)
    epochs: int = Field(default=5, ge=1)
    minibatches: int = Field(default=2, ge=1)
    entropy: float = Field(default=0.0, ge=0)
    """Weight of an entropy bonus."""


class Reading(NamedTuple):
    """What the critics say of a rollout."""

    grid: Grid
    objective: Assessment
    risks: list[Assessment]
    """one per constraint"""
    metrics: Metrics


class ActorCritic(Algorithm):
    """Critics for the reward and for every constraint's signal; advantages from them."""

    settings: ActorCriticSettings

    def __init__(
        self, settings: ActorCriticSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, codec, action_space)
        self.atoms = 1 if settings.critic.kind == "mean" else ATOMS
        self.objective_key = ("reward", problem.discount)
        self.keys = [(constraint.signal, problem.discount_of(constraint)) for constraint in problem.constraints]
        self.critics = CriticBank(
            codec, [self.objective_key, *map(self.credit_key, problem.constraints)], settings.critic
        )

    def credit_key(self, constraint: Constraint) -> tuple[str, float]:
        """Signal and discount of the critic that tells the actions apart by what they do to this constraint."""
        budget = self.problem.discount_of(constraint)
        credit = self.settings.credit_discount if constraint.measure.linear else None
        return constraint.signal, budget if credit is None else min(credit, budget)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [self.critics.optimiser]

    def observe(self, rollout: Rollout, generator: torch.Generator) -> Reading:
        """What an update begins with: fit the critics and read objective and constraints off them."""
        grid, fit_first = Grid(rollout), self.settings.critic.fit_first
        metrics: Metrics = dict(self.critics.fit(rollout, grid, generator)) if fit_first else {}
        objective, risks = self.assess_all(rollout, grid)
        if not fit_first:
            metrics |= self.critics.fit(rollout, grid, generator)
        return Reading(grid, objective, risks, metrics | self.risk_metrics(rollout, objective, risks))

    def assess(
        self, measure: RiskMeasure, key: tuple[str, float], rollout: Rollout, grid: Grid, valuation: Valuation
    ) -> Assessment:
        """ρ of one cumulated signal, and its advantage."""
        if self.atoms == 1 and not measure.linear:
            # One atom knows nothing of a law, so the sampled one is logged, for no algorithm heeds it.
            risk, error = empirical(measure, rollout.whole().returns(*key))
            return Assessment(risk, error, plug_in=risk, advantage=torch.zeros(len(rollout)))
        return assess(measure, rollout.signals[key[0]], key[1], rollout, grid, valuation, self.settings.gae_lambda)

    def assess_all(self, rollout: Rollout, grid: Grid) -> tuple[Assessment, list[Assessment]]:
        """The objective's and every constraint's."""
        valuations = {key: self.critics.value(key, rollout, grid, self.atoms) for key in self.critics.keys}

        def of(measure: RiskMeasure, key: tuple[str, float]) -> Assessment:
            return self.assess(measure, key, rollout, grid, valuations[key])

        risks = []
        for constraint, key in zip(self.problem.constraints, self.keys, strict=True):
            credit = self.credit_key(constraint)
            risk = of(constraint.measure, credit)
            if credit != key:
                budget = whole_episodes(rollout, "credit_discount").returns(*key)
                estimate, error = empirical(constraint.measure, budget)
                risk = replace(risk, estimate=estimate, standard_error=error, plug_in=estimate)
            risks.append(risk)
        return of(self.problem.objective, self.objective_key), risks

    def risk_metrics(self, rollout: Rollout, objective: Assessment, risks: Sequence[Assessment]) -> Metrics:
        """The learner's own view of objective and constraints, each under a column that carries its number."""
        whole = rollout.whole()
        row: Metrics = {
            "return": whole.returns("reward", self.problem.discount).mean().item(),
            "objective": objective.estimate,
        }
        for index, (constraint, key, risk) in enumerate(zip(self.problem.constraints, self.keys, risks, strict=True)):
            row[f"risk_{index}"] = risk.estimate
            row[f"risk_se_{index}"] = risk.standard_error
            row[f"risk_plug_in_{index}"] = risk.plug_in
            row[f"risk_empirical_{index}"] = empirical(constraint.measure, whole.returns(*key))[0]
        return row

    @staticmethod
    def check_finite(risks: Sequence[Assessment]) -> None:
        """Refuse to act on estimates that are not numbers; that a standard error is infinite can happen."""
        if not all(math.isfinite(risk.estimate) for risk in risks):
            raise DivergenceError("the estimate of a risk is not finite: lower the critic's learning rate.")


class Ppo(ActorCritic):
    """Maximise E[min(ω A, clip(ω) A)], ω the ratio of new to old probability."""

    accepts_nonlinear = True  # it logs any constraint and heeds none
    settings: PpoSettings

    def __init__(
        self, settings: PpoSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, codec, action_space)
        self.actor_optimiser = torch.optim.Adam(
            self.policy.parameters(), lr=settings.actor.learning_rate, eps=1e-5, foreach=True
        )
        if settings.critic.kind == "mean" and not problem.objective.linear:
            raise SettingsError(
                f"{settings.kind}: maximises only the expectation with mean critics, not {problem.objective.label}; "
                "use sdpo with quantile critics."
            )

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [self.actor_optimiser, *super().optimisers()]

    def update(self, rollout: Rollout, iteration: int, generator: torch.Generator) -> Metrics:
        set_rate(self.actor_optimiser, self.settings.actor.rate(iteration))
        seen = self.observe(rollout, generator)
        return seen.metrics | self.ascend(rollout, seen.objective.advantage, generator)

    def ascend(
        self, rollout: Rollout, advantage: Tensor, generator: torch.Generator, further: Further | None = None
    ) -> Metrics:
        """Epochs of minibatch ascent on the clipped surrogate of one advantage [n], standardised once.

        further: more terms of the objective, in the advantage's units.
        """
        # Where nothing is told apart (phase I of the pathwise form has no advantage) further terms keep their units.
        scale = advantage.std()
        scale = torch.where(scale > 1e-12, scale, 1.0)
        advantage = (advantage - advantage.mean()) / scale
        clip = self.settings.clip
        for _ in range(self.settings.epochs):
            for batch in minibatches(len(rollout), self.settings.minibatches, generator):
                parameters = self.policy(rollout.observation[batch])
                log_prob = self.policy.head.log_prob(parameters, rollout.action[batch])
                objective = clipped_surrogate(log_prob - rollout.log_prob[batch], advantage[batch], clip)
                if further:
                    objective = objective + further(batch, parameters) / scale
                if self.settings.entropy:
                    objective = objective + self.settings.entropy * self.policy.head.entropy(parameters).mean()
                self.actor_optimiser.zero_grad()
                (-objective).backward()  # type: ignore[no-untyped-call]
                self.actor_optimiser.step()
        return policy_metrics(self.policy, rollout)


def clipped_surrogate(log_ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """mean of min(ω A, clip(ω, 1 ± ε) A) over a batch [m]."""
    ratio = log_ratio.exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
