"""PCPO (Yang et al. 2020): a step for the reward, then the nearest point that satisfies the constraints.

    x_½ = √(2δ / gᵀH⁻¹g) H⁻¹g                                 reward improvement, as in TRPO
    x   = argmin ½ (x − x_½)ᵀ L (x − x_½)  s.t.  c + Bx ≤ 0      projection

with L = H (distance in KL divergence) or L = I (distance of parameters). For one constraint its closed form is

    x = x_½ − max(0, (c + bᵀx_½) / (bᵀL⁻¹b)) L⁻¹b.

An infeasible policy needs no recovery step of its own: the projection is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from gymnasium import spaces

from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.rl.algorithms.base import Algorithm, AlgorithmSettings, Problem, build_policy
from portfolio_sdpo.rl.algorithms.trust_region import (
    LocalModel,
    Proposal,
    TrustRegion,
    TrustRegionSettings,
    make_critic_estimator,
    nearest_multipliers,
)
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout

Projection = Literal["kl", "l2"]
"""The distance in which the reward step is projected: L = H or L = I."""


class PcpoSettings(TrustRegionSettings):
    """What every trust-region algorithm has, and the distance of the projection."""

    kind: Literal["pcpo"] = "pcpo"
    projection: Projection = "kl"
    """Distance in which the reward step is projected onto the constraints: `kl` (L = H) or `l2` (L = I)."""


class Pcpo(Algorithm):
    """Reward step and projection; the line search then shortens their sum until it keeps within the trust region."""

    settings_type: ClassVar[type[AlgorithmSettings]] = PcpoSettings
    accepts_nonlinear = True  # with quantile critics

    def __init__(
        self, settings: PcpoSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, build_policy(settings.actor, codec, action_space))
        self.estimator = make_critic_estimator(settings, problem, codec)
        self.register_critics(self.estimator)
        self.trust_region = TrustRegion(settings, problem, self.policy)

    def update(self, rollout: Rollout, iteration: int, generator: torch.Generator) -> LogRow:
        valuations, critic_log = self.estimator.fit_critics(rollout, generator)
        assessment = self.estimator.assess(rollout, valuations)
        slacks = self.trust_region.measure_slacks(assessment.risks)
        surrogate, model = self.trust_region.model(rollout, assessment, slacks)
        proposal = project(model, self.settings.projection)
        step_log = self.trust_region.step(rollout, surrogate, model, proposal, slacks)
        return critic_log | assessment.log | step_log

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return self.estimator.optimisers()


def project(model: LocalModel, projection: Projection) -> Proposal:
    """The reward step, projected; a price is the share of −L⁻¹b_i in the step, relative to that of H⁻¹g."""
    length = (2 * model.delta / max(model.q, 1e-30)) ** 0.5
    step = length * model.h_g
    # L⁻¹Bᵀ, as rows
    towards = model.h_b if projection == "kl" else model.b
    gram = model.s if projection == "kl" else model.b.double() @ model.b.double().T
    violation = model.c + model.b.double() @ step.double()
    multipliers = nearest_multipliers(gram, violation)
    if multipliers is None:
        # No point satisfies all constraints: the one that is missed by most is projected on alone.
        worst = violation.argmax()
        multipliers = torch.zeros_like(violation)
        if gram[worst, worst] > 0:
            multipliers[worst] = violation[worst] / gram[worst, worst]
    return Proposal(step - multipliers.to(towards) @ towards, multipliers / length)
