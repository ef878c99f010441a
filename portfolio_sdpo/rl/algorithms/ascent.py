"""How a policy climbs: epochs on PPO's clipped surrogate of an advantage, or one step along a known gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from portfolio_sdpo.nn.networks import Policy
from portfolio_sdpo.rl.critics import minibatches
from portfolio_sdpo.rl.estimators.base import Direction
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout
from portfolio_sdpo.settings import Settings

if TYPE_CHECKING:
    from portfolio_sdpo.rl.algorithms.ppo import PpoSettings


class ActorSettings(Settings):
    """How the policy looks and learns."""

    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers; none makes the policy linear (for a discrete state: a table of logits)."""
    learning_rate: float = Field(default=1e-4, gt=0)
    anneal: int = Field(default=0, ge=0)
    """Iterations over which the learning rate falls linearly to a tenth of itself; 0 keeps it."""
    initial_std: float = Field(default=0.5, gt=0)
    """Standard deviation at the start, continuous actions only."""
    logit_bound: float | None = Field(default=None, gt=0, le=10)
    """Of a policy of weights: the largest size of a mean logit, so that no weight is ever out of reach of its gradient
    (`nn.heads.SimplexHead`); None leaves them free."""

    added_later: ClassVar[frozenset[str]] = frozenset({"logit_bound"})

    def rate(self, iteration: int) -> float:
        """The learning rate of that iteration."""
        return annealed_rate(self.learning_rate, self.anneal, iteration)


class ClippedAscent:
    """Epochs of minibatch ascent on E[min(ω A, clip(ω, 1 ± ε) A)] (eq. 11), ω the ratio of new to old probability."""

    def __init__(self, policy: Policy, settings: PpoSettings, bonus: Callable[[int], float] | None = None) -> None:
        """bonus: weight, by iteration, of an entropy bonus beside that of the settings."""
        self.policy = policy
        self.settings = settings
        self.bonus = bonus
        self.optimiser = adam(policy, settings.actor.learning_rate)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [self.optimiser]

    def ascend(self, rollout: Rollout, direction: Direction, iteration: int, generator: torch.Generator) -> LogRow:
        """Climb along the advantage, standardised once, and along the further term, in the advantage's units."""
        settings = self.settings
        set_rate(self.optimiser, settings.actor.rate(iteration))
        advantage = direction.advantage
        # Where nothing is told apart (phase I of the pathwise form has no advantage) the term keeps its units.
        scale = advantage.std()
        scale = torch.where(scale > 1e-12, scale, 1.0)
        advantage = (advantage - advantage.mean()) / scale
        entropy = settings.entropy + (self.bonus(iteration) if self.bonus else 0.0)
        for _ in range(settings.epochs):
            for batch in minibatches(len(rollout), settings.minibatches, generator):
                # [m, P], [m]
                parameters = self.policy(rollout.observation[batch])
                log_prob = self.policy.head.log_prob(parameters, rollout.action[batch])
                objective = clipped_surrogate(log_prob - rollout.log_prob[batch], advantage[batch], settings.clip)
                if direction.term:
                    objective = objective + direction.term(batch, parameters) / scale
                if entropy:
                    objective = objective + entropy * self.policy.head.entropy(parameters).mean()
                self.optimiser.zero_grad()
                (-objective).backward()  # type: ignore[no-untyped-call]
                self.optimiser.step()
        return describe_policy(self.policy, rollout, settings.clip)


class GradientAscent:
    """One step of Adam along an objective that carries its own gradient, and a running average of the weights.

    The ratio ω of eq. 11 is 1 at the first step of a batch, and there is only one: clipping would change nothing.

    state: the module that holds the averaged policy and counts the updates, so that checkpoints save them.
    averaging: decay, per update, of the running average of the weights.
    weight_decay: share of itself that a weight loses per update, per unit of learning rate (AdamW's).
    """

    def __init__(
        self,
        state: nn.Module,
        policy: nn.Module,
        *,
        learning_rate: float,
        anneal: int,
        betas: tuple[float, float],
        averaging: float,
        weight_decay: float = 0.0,
    ) -> None:
        self._state: Any = state
        self.policy = policy
        self.learning_rate = learning_rate
        self.anneal = anneal
        self.averaging = averaging
        # Far from its goal the policy may move the return by very little: eps is far below the usual one.
        self.optimiser = torch.optim.AdamW(
            policy.parameters(), lr=learning_rate, betas=betas, eps=1e-12, weight_decay=weight_decay
        )
        state.averaged = copy.deepcopy(policy).requires_grad_(False)
        state.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self._averages = 0

    def restart(self, updates: int = 0) -> None:
        """The average of the weights restarts, or, after a checkpoint, is that of so many updates."""
        self._averages = updates

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [self.optimiser]

    def ascend(self, batch: Any, direction: Direction, iteration: int, generator: torch.Generator) -> LogRow:
        """One step; nothing in it is random."""
        set_rate(self.optimiser, annealed_rate(self.learning_rate, self.anneal, iteration))
        self.optimiser.zero_grad()
        (-direction.advantage).backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self._state.updates += 1
        self._average()
        return {}

    @torch.no_grad()
    def _average(self) -> None:
        # A plain mean of the weights so far until the window is full.
        self._averages += 1
        weight = max(1.0 - self.averaging, 1.0 / self._averages)
        torch._foreach_lerp_(list(self._state.averaged.parameters()), list(self.policy.parameters()), weight)


def clipped_surrogate(log_ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """mean of min(ω A, clip(ω, 1 ± ε) A) over a batch [m]."""
    ratio = log_ratio.exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


def describe_policy(policy: Policy, rollout: Rollout, clip: float | None = None) -> LogRow:
    """What an expert looks at after an update: KL to the old policy (estimator k3 of Schulman), entropy, and the share
    of transitions whose ratio ended beyond the clipping range 1 ± clip.
    """
    with torch.no_grad():
        parameters = policy(rollout.observation)
        log_ratio = policy.head.log_prob(parameters, rollout.action) - rollout.log_prob
        ratio = log_ratio.exp()
        log: LogRow = {
            "kl": (ratio - 1 - log_ratio).mean().item(),
            "entropy": policy.head.entropy(parameters).mean().item(),
        }
        if clip is not None:
            log["clip_fraction"] = ((ratio - 1).abs() > clip).float().mean().item()
        return log


def adam(policy: nn.Module, learning_rate: float) -> torch.optim.Adam:
    """The optimiser of a policy that learns from samples."""
    return torch.optim.Adam(policy.parameters(), lr=learning_rate, eps=1e-5, foreach=True)


def annealed_rate(learning_rate: float, anneal: int, iteration: int) -> float:
    """The learning rate of that iteration: linearly down to a tenth over `anneal` iterations, constant if that is 0.

    >>> annealed_rate(1.0, 10, 5)
    0.55
    """
    elapsed = min(iteration / anneal, 1.0) if anneal else 0.0
    return learning_rate * (1 - 0.9 * elapsed)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Give all parameters of an optimiser this learning rate."""
    for group in optimiser.param_groups:
        group["lr"] = rate
