"""PCPO (Yang et al. 2020): a step for the reward, then the nearest point that satisfies the constraints.

    x_½ = √(2δ / gᵀH⁻¹g) H⁻¹g                                 reward improvement, as in TRPO
    x   = argmin ½ (x − x_½)ᵀ L (x − x_½)  s.t.  c + Bx ≤ 0      projection

with L = H (distance in KL divergence) or L = I (distance of parameters). For one constraint its closed form is

    x = x_½ − max(0, (c + bᵀx_½) / (bᵀL⁻¹b)) L⁻¹b.

An infeasible policy needs no recovery step of its own: the projection is one.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from portfolio_sdpo.rl.algorithms.base import AlgorithmSettings
from portfolio_sdpo.rl.algorithms.trust_region import (
    LocalModel,
    Proposal,
    TrustRegionAlgorithm,
    TrustRegionSettings,
    nearest_multipliers,
)

Projection = Literal["kl", "l2"]
"""The distance in which the reward step is projected: L = H or L = I."""


class PcpoSettings(TrustRegionSettings):
    """What every trust-region algorithm has, and the distance of the projection."""

    kind: Literal["pcpo"] = "pcpo"
    projection: Projection = "kl"
    """Distance in which the reward step is projected onto the constraints: `kl` (L = H) or `l2` (L = I)."""


class Pcpo(TrustRegionAlgorithm):
    """Reward step and projection; the line search then shortens their sum until it keeps within the trust region."""

    settings_type: ClassVar[type[AlgorithmSettings]] = PcpoSettings

    def propose(self, model: LocalModel) -> Proposal:
        return project(model, self.settings.projection)


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
