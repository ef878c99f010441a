"""The paper's own gradient of ρ: connect the actor to the critic and differentiate through it (section 5.1).

The critic Ψ(s, a, τ) is regressed on the same λ-targets as the state critic, at the actions that were taken, so it has
seen every action it is asked about and not only the policy's mean output. Then

    ∇ρ = E[Σ_t ∇_θ E_{a ~ π_θ(s_t)} E_τ u(c_t + γ^t Ψ_τ(s_t, a))],

where for discrete actions the expectation over a is a sum, in which θ stands only in the weights π_θ(a | s), and for
continuous ones a = µ_θ + σ_θ · noise carries the gradient into Ψ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from portfolio_sdpo.nn.critic import midpoints
from portfolio_sdpo.nn.policy import CategoricalHead
from portfolio_sdpo.nn.trunk import ObservationCodec
from portfolio_sdpo.rl.advantage import Grid
from portfolio_sdpo.rl.algorithms.ppo import Further
from portfolio_sdpo.rl.critics import CriticBank, CriticSettings
from portfolio_sdpo.rl.risk_advantage import LEAST_WEIGHT, Utility
from portfolio_sdpo.rl.rollout import Rollout

if TYPE_CHECKING:
    from portfolio_sdpo.rl.algorithms.sdpo import Sdpo


class Pathwise(nn.Module):
    """Action critics for the constraints on non-linear measures, and the barriers' terms of the objective from them."""

    def __init__(
        self, owner: Sdpo, codec: ObservationCodec, constraints: Sequence[int], settings: CriticSettings
    ) -> None:
        super().__init__()
        self.constraints = list(constraints)
        # Not a submodule of this one: the owner holds policy, state critics and settings.
        self._owner = [owner]
        head = owner.policy.head
        self._head = head
        self.keys = [owner.keys[index] for index in self.constraints]
        self.critics = CriticBank(codec, self.keys, settings, action_width=head.width)

    def barriers(self, rollout: Rollout, grid: Grid, prices: Sequence[float], generator: torch.Generator) -> Further:
        """Fit the action critics, then −Σ_i price_i · (±ρ_i) as a function of the policy's output."""
        (owner,) = self._owner
        state = owner.critics
        targets = dict(zip(state.keys, state.targets(rollout, grid, generator), strict=True))
        taken = torch.cat([rollout.observation, self._features(rollout.action)], -1)
        for _ in range(self.critics.settings.warm_up if self.critics.fits == 0 else 1):
            self.critics.regress(taken, [targets[key] for key in self.critics.keys], generator)
        terms = [
            self._term(index, rollout, grid, prices[index], generator) for index in self.constraints if prices[index]
        ]
        return lambda batch, parameters: sum((term(batch, parameters) for term in terms), torch.zeros(()))

    def _term(self, index: int, rollout: Rollout, grid: Grid, price: float, generator: torch.Generator) -> Further:
        (owner,) = self._owner
        constraint, (signal, discount) = owner.problem.constraints[index], owner.keys[index]
        settings = owner.settings
        first = owner.critics.value((signal, discount), rollout, grid, settings.risk_atoms).here[rollout.starts]
        utility = Utility(
            constraint.measure,
            first,
            rollout.signals[signal],
            discount,
            rollout,
            grid,
            settings.partners,
            settings.pooled,
        )
        weight = (discount**rollout.step).clamp_min(LEAST_WEIGHT)
        worth = -price * constraint.sign / weight
        levels = midpoints(settings.risk_atoms)
        critic = self.critics[signal, discount]
        head = self._head

        if isinstance(head, CategoricalHead):
            with torch.no_grad():
                old = torch.softmax(owner.policy(rollout.observation), -1)
                # [n, M]: what each action is worth
                table = torch.stack(
                    [
                        worth * utility(critic(self._with_action(rollout.observation, action), levels))
                        for action in range(head.count)
                    ],
                    -1,
                )
                table -= (old * table).sum(-1, keepdim=True)
            clip = settings.clip

            def over_actions(batch: Tensor, parameters: Tensor) -> Tensor:
                ratio = torch.softmax(parameters, -1) / old[batch]
                gain = torch.minimum(ratio * table[batch], ratio.clamp(1 - clip, 1 + clip) * table[batch])
                return (old[batch] * gain).sum(-1).mean()

            return over_actions

        noise = torch.randn(len(rollout), head.size, generator=generator)

        def through_action(batch: Tensor, parameters: Tensor) -> Tensor:
            mean, log_std = parameters.chunk(2, -1)
            action = mean + log_std.exp() * noise[batch]
            law = critic(torch.cat([rollout.observation[batch], action], -1), levels)
            return (worth[batch] * utility(law, batch)).mean()

        return through_action

    def _features(self, action: Tensor) -> Tensor:
        """Actions as columns that the critic reads: one-hot if discrete."""
        if isinstance(self._head, CategoricalHead):
            return nn.functional.one_hot(action, self._head.count).float()
        return action

    def _with_action(self, observation: Tensor, action: int) -> Tensor:
        return torch.cat([observation, self._features(torch.full((len(observation),), action))], -1)
