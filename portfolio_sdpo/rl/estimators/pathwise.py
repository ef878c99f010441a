"""The `pathwise` estimator, the paper's own: differentiate through a critic that sees the actor's action (section 5.1).

The critic Ψ(s, a, τ) is regressed on the same λ-targets as the state critic, at the actions that were taken, so it has
seen every action it is asked about and not only the policy's mean output. Then

    ∇ρ = E[Σ_t ∇_θ E_{a ~ π_θ(s_t)} E_τ u(c_t + γ^t Ψ_τ(s_t, a))],

where for discrete actions the expectation over a is a sum, in which θ stands only in the weights π_θ(a | s), and for
continuous ones a = µ_θ + σ_θ · noise carries the gradient into Ψ. Expectations keep their exact advantage: action
critics are built for the non-linear measures only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from portfolio_sdpo.nn.heads import CategoricalHead
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.nn.quantiles import place_levels
from portfolio_sdpo.rl.critics import CriticBank, CriticSettings
from portfolio_sdpo.rl.estimators.base import Assessment, Direction, ObjectiveTerm, ShadowPrices, Valuations
from portfolio_sdpo.rl.estimators.score import LEAST_WEIGHT, ScoreEstimator, Utility, combine_advantages
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.past import own_past
from portfolio_sdpo.rl.rollout import Rollout

if TYPE_CHECKING:
    from portfolio_sdpo.rl.algorithms.base import Problem


class PathwiseEstimator:
    """Estimates of the `score` estimator; the gradient of non-linear measures through critics that see the action.

    clip: the range of the policy's ratio that the sum over discrete actions is clipped to.
    """

    def __init__(
        self, problem: Problem, codec: ObservationCodec, policy: Policy, score: ScoreEstimator, clip: float
    ) -> None:
        self.problem = problem
        self.policy = policy
        self.score = score
        self.clip = clip
        self.critics: CriticBank | None = score.critics
        self.backward_critics = score.backward_critics
        self.constraints = [index for index, item in enumerate(problem.constraints) if not item.measure.linear]
        """The constraints on non-linear measures, by number"""
        keys = [score.budget_keys[index] for index in self.constraints]
        # The actions of earlier rollouts were another policy's: action critics learn from the newest one, all of it.
        settings = CriticSettings(**{**dict(score.critics.settings), "memory": 1, "transitions": None})
        self.action_critics = (
            CriticBank(codec, keys, settings, action_width=policy.head.width, tails=score.tails) if keys else None
        )

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [*self.score.optimisers(), *([self.action_critics.optimiser] if self.action_critics else [])]

    def fit_critics(self, rollout: Rollout, generator: torch.Generator) -> tuple[Valuations, LogRow]:
        return self.score.fit_critics(rollout, generator)

    def assess(self, rollout: Rollout, valuations: Valuations) -> Assessment:
        # To be used again in `combine`: by then the critics of the past have learnt from this very rollout.
        return replace(self.score.assess(rollout, valuations), valuations=valuations)

    def combine(
        self, rollout: Rollout, assessment: Assessment, prices: ShadowPrices, generator: torch.Generator
    ) -> Direction:
        if self.action_critics is None:
            return self.score.combine(rollout, assessment, prices, generator)
        by_score = [0.0 if index in self.constraints else price for index, price in enumerate(prices.values)]
        advantage = combine_advantages(self.problem, rollout, assessment, replace(prices, values=by_score))
        self._fit_action_critics(self.action_critics, rollout, generator)
        terms = [
            self._term(self.action_critics, index, rollout, assessment.valuations, prices.values[index], generator)
            for index in self.constraints
            if prices.values[index]
        ]
        return Direction(
            advantage, lambda batch, parameters: sum((term(batch, parameters) for term in terms), torch.zeros(()))
        )

    def _fit_action_critics(self, critics: CriticBank, rollout: Rollout, generator: torch.Generator) -> None:
        state = self.score.critics
        targets = dict(zip(state.keys, state.targets(rollout, generator), strict=True))
        taken = torch.cat([rollout.observation, self._features(rollout.action)], -1)
        for _ in range(critics.settings.warm_up if critics.fits == 0 else 1):
            critics.regress(taken, [targets[key] for key in critics.keys], generator)

    def _term(
        self,
        critics: CriticBank,
        index: int,
        rollout: Rollout,
        valuations: Valuations,
        price: float,
        generator: torch.Generator,
    ) -> ObjectiveTerm:
        """−price · (±ρ) of one constraint as a function of the policy's output."""
        constraint, key, score = self.problem.constraints[index], self.score.budget_keys[index], self.score
        signal, discount = key
        valuation = valuations[key]
        past = valuation.past or own_past(rollout.signals[signal], discount, rollout)
        first = valuation.here[rollout.starts]
        utility = Utility(constraint.measure, first, discount, rollout, past, valuation.weight)
        weight = (discount**rollout.step).clamp_min(LEAST_WEIGHT)
        worth = -price * constraint.sign / weight
        levels = place_levels(score.atoms, score.tails[key]).tau
        critic = critics[key]
        head = self.policy.head

        if isinstance(head, CategoricalHead):
            with torch.no_grad():
                old = torch.softmax(self.policy(rollout.observation), -1)
                # [n, M]: what each action is worth
                table = torch.stack(
                    [
                        worth * utility(critic(self._with_action(rollout.observation, action), levels))
                        for action in range(head.count)
                    ],
                    -1,
                )
                table -= (old * table).sum(-1, keepdim=True)
            clip = self.clip

            def over_actions(batch: Tensor, parameters: Tensor) -> Tensor:
                ratio = torch.softmax(parameters, -1) / old[batch]
                gain = torch.minimum(ratio * table[batch], ratio.clamp(1 - clip, 1 + clip) * table[batch])
                return (old[batch] * gain).sum(-1).mean()

            return over_actions

        noise = torch.randn(len(rollout), head.size, generator=generator)

        def through_action(batch: Tensor, parameters: Tensor) -> Tensor:
            mean, log_std = parameters.chunk(2, -1)
            action = mean + log_std.exp() * noise[batch]
            # [m, N]: Ψ(s, a)
            distribution = critic(torch.cat([rollout.observation[batch], action], -1), levels)
            return (worth[batch] * utility(distribution, batch)).mean()

        return through_action

    def _features(self, action: Tensor) -> Tensor:
        """Actions as columns that the critic reads: one-hot if discrete."""
        if isinstance(self.policy.head, CategoricalHead):
            return nn.functional.one_hot(action, self.policy.head.count).float()
        return action

    def _with_action(self, observation: Tensor, action: int) -> Tensor:
        return torch.cat([observation, self._features(torch.full((len(observation),), action))], -1)
