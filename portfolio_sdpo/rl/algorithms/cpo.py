"""CPO (Achiam et al. 2017): the best step inside trust region and linearised constraints, by the dual of that problem.

With q = gᵀH⁻¹g, r_i = b_iᵀH⁻¹g and S_ij = b_iᵀH⁻¹b_j (eq. 12), the step is x = H⁻¹(g − Σ ν_i b_i) / λ (eq. 13). Where
no point of the trust region satisfies the constraints, the step purely decreases them (eq. 14).
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from portfolio_sdpo.rl.algorithms.base import AlgorithmSettings
from portfolio_sdpo.rl.algorithms.trust_region import (
    LocalModel,
    Proposal,
    TrustRegionAlgorithm,
    TrustRegionSettings,
    active_sets,
    nearest_multipliers,
    spd_inverse,
)


class CpoSettings(TrustRegionSettings):
    """CPO needs nothing beyond what every trust-region algorithm has."""

    kind: Literal["cpo"] = "cpo"


class Cpo(TrustRegionAlgorithm):
    """Costs stay below their bounds at every update, as far as the local model is right."""

    settings_type: ClassVar[type[AlgorithmSettings]] = CpoSettings

    def propose(self, model: LocalModel) -> Proposal:
        return propose(model)


def propose(model: LocalModel) -> Proposal:
    """The best step inside trust region and constraints, or where there is none the one that recovers."""
    dual = solve_dual(model)
    if dual is None:
        return Proposal(recovery_step(model), torch.zeros_like(model.c), recovery=True)
    lam, nu = dual
    return Proposal((model.h_g - nu.to(model.h_b) @ model.h_b) / lam, nu)


def solve_dual(model: LocalModel) -> tuple[float, Tensor] | None:
    """λ > 0 and ν ≥ 0 [m] of eq. 12, or None if the constraints leave no point of the trust region.

    For the constraints W that hold with equality, setting x of eq. 13 into c_W + b_Wᵀx = 0 and ½ xᵀHx = δ gives

        λ² = (q − r_Wᵀ S_W⁻¹ r_W) / (2δ − c_Wᵀ S_W⁻¹ c_W),      ν_W = S_W⁻¹ (r_W + λ c_W),

    which for one constraint are the closed forms of its Theorem 2; W = ∅ is the TRPO step. The problem is convex, so
    the W for which ν ≥ 0 and all other constraints hold gives its solution.
    """
    q, r, s, c, delta, reach = model.q, model.r, model.s, model.c, model.delta, model.reach
    for active in active_sets(len(c)):
        inverse = spd_inverse(s, active)
        if inverse is None:
            continue
        r_w, c_w = r[active], c[active]
        room = 2 * delta - float(c_w @ inverse @ c_w)
        if room <= 0:
            continue
        # Where the gradients of costs span that of the objective, nothing is left to gain along the trust region's rim.
        gain = max(q - float(r_w @ inverse @ r_w), 1e-8 * q, 1e-30)
        lam = (gain / room) ** 0.5
        nu = torch.zeros_like(c)
        nu[active] = inverse @ (r_w + lam * c_w)
        left = c + (r - s @ nu) / lam
        left[active] = 0.0
        if (nu >= 0).all() and (left <= 1e-9 * (c.abs() + reach)).all():
            return lam, nu
    return None


def recovery_step(model: LocalModel) -> Tensor:
    """Eq. 14: to the rim of the trust region, x = −√(2δ / bᵀH⁻¹b) H⁻¹b, whatever the objective.

    With several constraints b is their combination that leads to the nearest point at which all of them hold; if there
    is none, the most violated constraint alone.
    """
    multipliers = nearest_multipliers(model.s, model.c)
    if multipliers is None:
        multipliers = torch.zeros_like(model.c)
        multipliers[model.c.argmax()] = 1.0
    length = float(multipliers @ model.s @ multipliers)
    if length <= 0:
        return torch.zeros_like(model.g)
    combined: Tensor = multipliers.to(model.h_b) @ model.h_b
    return combined.mul(-((2 * model.delta / length) ** 0.5))
