"""A safe backup action: episodes begin at rest, and the policy has as large a share of them as the bounds allow.

A robot that stands still costs nothing, one that moves about before it has learnt to avoid costs several times the
bound, and no step size leads from one to the other in between. Its share κ of the episode does: what a policy costs in
κ of an episode is about κ of what it costs in all of it. So a young policy acts in the last tenth of every episode,
where it learns what hazards are at a tenth of their cost, and has more of the episode the more it avoids:

    κ ← min(growth · κ, aim · bound / (ρ̂ + confidence · standard error)),        ρ̂ of a whole episode, at most 1.

It is the shield of a portfolio (κ · w + (1 − κ) · cash) with time in the place of weights. Resting comes first since
it is known to be safe where an episode begins, and nowhere else. What is at rest is cut off a batch before anything is
learnt from it; prices and critics are those of a policy that acts throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.heads import GaussianHead
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.rl.algorithms.ascent import ActorSettings
from portfolio_sdpo.rl.algorithms.base import Problem
from portfolio_sdpo.rl.estimators.base import RiskEstimate, ShadowPrices
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout
from portfolio_sdpo.settings import Settings

REST_STD = 1e-3
"""Standard deviation of the action at rest, around zero: it must be a density, and moves nothing."""
LEAST_SHARE = 0.01


class BackupSettings(Settings):
    """How large the policy's share of an episode is."""

    share: float = Field(gt=0, le=1)
    """κ of the first iteration."""
    aim: float = Field(default=0.8, gt=0, le=1)
    """Share of every bound that a batch may use up."""
    confidence: float = Field(default=1.0, ge=0)
    """How many standard errors are added to a batch's risk."""
    growth: float = Field(default=1.1, ge=1)
    """By which κ grows at most from one iteration to the next; it falls at once."""


class LatePolicy(Policy):
    """Rests until the share `share` of an episode is left, which the last column of an observation tells: the clock."""

    share: Tensor
    rest: Tensor

    def __init__(
        self, codec: ObservationCodec, action_space: spaces.Space[Any], actor: ActorSettings, share: float
    ) -> None:
        super().__init__(codec, action_space, actor.hidden, actor.initial_std, actor.logit_bound)
        if not isinstance(self.head, GaussianHead) or not codec.continuous:
            raise SettingsError(
                "backup: resting needs actions of which zero stands still and a clock as the last column of "
                "observations; leave it out here."
            )
        size = self.head.size
        self.register_buffer("share", torch.tensor(share))
        self.register_buffer(
            "rest", torch.cat([torch.zeros(size), torch.full((size,), math.log(REST_STD))]), persistent=False
        )

    def forward(self, observation: Tensor) -> Tensor:
        """[..., D] → [..., P]"""
        parameters = super().forward(observation)
        return torch.where(observation[..., -1:] < 1 - self.share, self.rest, parameters)

    def acts(self, rollout: Rollout) -> Tensor:
        """[n] bool: whether it acted there, and would do so now.

        The former is read off log-probabilities, so that a batch is understood that had another share.
        """
        rested = torch.isclose(self.head.log_prob(self.rest, rollout.action), rollout.log_prob, atol=1e-3)
        return ~rested & (rollout.observation[:, -1] >= 1 - self.share)


class Backup:
    """Sets the share of a `LatePolicy`, and cuts off a batch what was not its doing."""

    def __init__(self, settings: BackupSettings, policy: LatePolicy, problem: Problem) -> None:
        for constraint in problem.constraints:
            if constraint.sense != "<=" or constraint.bound <= 0:
                raise SettingsError(
                    f"backup: rest keeps a bound '<=' on a cost, not '{constraint.name}'; leave it out here."
                )
        self.settings = settings
        self.policy = policy
        self.problem = problem
        # Of the batch that is being learnt from: nothing that has to survive it.
        self._acted = 1.0
        self._log: LogRow = {}
        self._highest: list[float] = []

    def cut_rest(self, rollout: Rollout) -> Rollout:
        """The transitions in which the policy acted, as episodes that begin with them; all of them if it never did."""
        whole = rollout.whole()
        self._log = {
            f"risk_empirical_{index}": constraint.measure.estimate(whole.returns(*key))[0]
            for index, (constraint, key) in enumerate(
                zip(self.problem.constraints, self.problem.budget_keys(), strict=True)
            )
        }
        acting = self.policy.acts(rollout)
        self._acted = float(acting.float().mean())
        if not 0 < self._acted < 1:
            self._acted = 1.0
            return rollout
        # [m] index of the episode among those that are left, [E] the step at which each of these is taken over.
        left, episode = torch.unique(rollout.episode[acting], return_inverse=True)
        step = rollout.step[acting]
        first = torch.full((len(left),), rollout.grid.length).scatter_reduce(0, episode, step, "amin")
        columns = ("observation", "action", "log_prob", "next_observation", "terminated", "ended", "last")
        return replace(
            rollout,
            **{name: getattr(rollout, name)[acting] for name in columns},
            signals={name: values[acting] for name, values in rollout.signals.items()},
            episode=episode,
            step=step - first[episode],
        )

    def extrapolate(self, risks: Sequence[RiskEstimate]) -> list[RiskEstimate]:
        """What the risks of the batch would be had the policy acted throughout."""
        found = [
            replace(
                risk,
                estimate=risk.estimate / self._acted,
                standard_error=risk.standard_error / self._acted,
                plug_in=risk.plug_in / self._acted,
            )
            for risk in risks
        ]
        errors = [risk.standard_error if math.isfinite(risk.standard_error) else 0.0 for risk in found]
        pairs = zip(found, errors, strict=True)
        self._highest = [risk.estimate + self.settings.confidence * error for risk, error in pairs]
        return found

    def set_share(self) -> LogRow:
        """κ of the next iteration, by what was extrapolated last; for the log, that of the batch."""
        settings = self.settings
        share = min(1.0, settings.growth * float(self.policy.share))
        for constraint, highest in zip(self.problem.constraints, self._highest, strict=True):
            if highest > 0:
                share = min(share, settings.aim * constraint.bound / highest)
        self.policy.share.fill_(max(share, LEAST_SHARE))
        return self._log | {"acting_share": self._acted}


class ExtrapolatedPricing:
    """Prices as of a policy that acts throughout."""

    def __init__(self, pricing: Any, backup: Backup) -> None:
        self.pricing = pricing
        self.backup = backup

    @property
    def monitor(self) -> Any:
        """That of the pricing behind it."""
        return self.pricing.monitor

    def set_prices(self, risks: Sequence[RiskEstimate], iteration: int) -> ShadowPrices:
        """See `BarrierPricing.set_prices`."""
        prices: ShadowPrices = self.pricing.set_prices(self.backup.extrapolate(risks), iteration)
        return prices

    def restart(self) -> None:
        """See `ConstraintMonitor.restart`."""
        self.pricing.restart()

    def finish(self, iterations: int) -> None:
        """See `ConstraintMonitor.finish`."""
        self.pricing.finish(iterations)
