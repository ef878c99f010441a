"""What PD-CVaR and PD-VAR share: likelihood-ratio ascent on a Lagrangian, whole trajectories, no critic.

    L(θ, λ) = E[Y] − Σ_i λ_i (ρ_i(Y_i) − d_i)          (signs turned for constraints of the form ρ_i ≥ d_i)

Three time scales: the statistic that ρ_i needs (a quantile, moments) is the fastest, θ follows the gradient of L, the
multipliers λ_i rise as long as their constraints are broken. With u_i the influence function of ρ_i at the current
distribution,

    ∇L = E[Σ_t ∇ln π(a_t | s_t) · (w_t(y) − Σ_i λ_i w_t(u_i))],

w_t(u) being u(Y) less a baseline (`rl.estimators.trajectory`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor, nn

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.risk import Constraint, RiskMeasure
from portfolio_sdpo.rl.algorithms.ascent import adam, describe_policy, set_rate
from portfolio_sdpo.rl.algorithms.base import Algorithm, AlgorithmSettings, Problem, build_policy
from portfolio_sdpo.rl.algorithms.multiplier import MultiplierSettings
from portfolio_sdpo.rl.estimators.base import SignalKey
from portfolio_sdpo.rl.estimators.score import whole_episodes
from portfolio_sdpo.rl.estimators.trajectory import Baseline, InfluenceFunction, score_weights
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout

Follow = Callable[[int, Constraint, Tensor], tuple[float, InfluenceFunction]]
"""Number and constraint i, and its returns [E] → ρ_i as the algorithm estimates it, and u_i; moves the statistic on the
fastest time scale."""


class PrimalDualSettings(MultiplierSettings, AlgorithmSettings):
    """Settings of PD-CVaR and PD-VAR; Adam with `actor.learning_rate` makes one step on θ per rollout."""

    baseline: Baseline = "history"
    """What is taken off each trajectory's weight: a value predicted from the episode's past, or the batch's mean."""
    partners: int = Field(default=32, ge=1)
    """Episodes whose remaining returns make up the `history` baseline."""


class LagrangianAscent:
    """Ascent of θ and λ on whole episodes: those that the batch cuts do not count.

    state: the module whose buffer holds the multipliers, so that checkpoints save them.
    """

    def __init__(self, state: nn.Module, settings: PrimalDualSettings, problem: Problem, policy: Policy) -> None:
        self._state: Any = state
        self.settings = settings
        self.problem = problem
        self.policy = policy
        self.keys = problem.budget_keys()
        state.register_buffer("multiplier", settings.first_multipliers(len(self.keys)))
        self.optimiser = adam(policy, settings.actor.learning_rate)

    def update(self, rollout: Rollout, iteration: int, follow: Follow) -> LogRow:
        """One step of θ and, after it, of λ."""
        set_rate(self.optimiser, self.settings.actor.rate(iteration))
        rollout = whole_episodes(rollout, self.settings.kind)
        discount = self.problem.discount
        objective = rollout.returns("reward", discount).mean().item()
        log: LogRow = {"return": objective, "objective": objective}
        weights = self.score_weights(rollout, ("reward", discount), lambda y: y)
        slacks = []
        for index, (constraint, key) in enumerate(zip(self.problem.constraints, self.keys, strict=True)):
            returns = rollout.returns(*key)
            risk, influence = follow(index, constraint, returns.double())
            sampled, standard_error = constraint.measure.estimate(returns)
            # Without the constraint's confidence: the multiplier integrates the slack, and noise averages out there.
            slacks.append(constraint.slack(risk))
            price = float(self._state.multiplier[index])
            away = self.score_weights(rollout, key, influence)
            weights = weights - price * constraint.sign * away
            log |= {
                f"risk_{index}": risk,
                f"risk_se_{index}": standard_error,
                f"risk_empirical_{index}": sampled,
                f"slack_{index}": slacks[index],
                f"price_{index}": price,
            }
        self.step(rollout, weights)
        self._state.multiplier = self.settings.next_multipliers(self._state.multiplier, slacks)
        return log | describe_policy(self.policy, rollout)

    def score_weights(self, rollout: Rollout, key: SignalKey, influence: InfluenceFunction) -> Tensor:
        """w_t(u) of every transition, [n]."""
        return score_weights(rollout, key, influence, self.settings.baseline, self.settings.partners)

    def step(self, rollout: Rollout, weights: Tensor) -> None:
        """One step along the mean over episodes of Σ_t ∇ln π(a_t | s_t) · weight_t."""
        log_prob = self.policy.head.log_prob(self.policy(rollout.observation), rollout.action)
        loss = -(log_prob * weights).sum() / rollout.episodes
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()


class PrimalDual(Algorithm):
    """An algorithm that ascends a Lagrangian of constraints on one measure; a subclass follows that measure."""

    measure: ClassVar[type[RiskMeasure]]
    """The only measure that its constraints may have."""
    accepts_nonlinear = True

    def __init__(
        self, settings: PrimalDualSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, build_policy(settings.actor, codec, action_space))
        refuse_other_measures(settings.kind, problem, self.measure)
        self.ascent = LagrangianAscent(self, settings, problem, self.policy)

    def update(self, rollout: Rollout, iteration: int, generator: torch.Generator) -> LogRow:
        return self.ascent.update(rollout, iteration, self.follow)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [self.ascent.optimiser]

    @abstractmethod
    def follow(self, index: int, constraint: Constraint, returns: Tensor) -> tuple[float, InfluenceFunction]:
        """ρ_i and its influence function; moves the statistic of constraint i by its returns [E]."""


def refuse_other_measures(kind: str, problem: Problem, measure: type[RiskMeasure]) -> None:
    """A `SettingsError` unless an expectation is maximised and every constraint is on this measure."""
    if not problem.objective.linear:
        raise SettingsError(f"{kind}: maximises only the expectation, not {problem.objective.label}.")
    for constraint in problem.constraints:
        if not isinstance(constraint.measure, measure):
            raise SettingsError(
                f"{kind}: bounds only the {measure.model_fields['kind'].default}, not {constraint.measure.label}; "
                "use sdpo for this measure."
            )
