"""IPO (Liu et al. 2019): PPO's surrogate plus a log barrier on every expected cost (eq. 8 of the paper).

The barrier's gradient is −∇ρ / (η · slack), so each iteration maximises the clipped surrogate of A − Σ_i price_i · A_i,
where price_i = 1 / (η · slack_i) is the shadow price and A_i the advantage of cost i (its sign turned for constraints
of the form ρ ≥ bound). That is Algorithm 1 with critics of the mean, which is how it is built: see `sdpo`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.rl.algorithms.base import AlgorithmSettings
from portfolio_sdpo.rl.algorithms.sdpo import BarrierSettings, Sdpo
from portfolio_sdpo.rl.estimators.base import AnyEstimator
from portfolio_sdpo.rl.estimators.score import ScoreEstimator


class IpoSettings(BarrierSettings):
    """PPO's, and what the barrier needs."""

    kind: Literal["ipo"] = "ipo"  # type: ignore[assignment]


class Ipo(Sdpo):
    """An interior-point method: it starts inside the constraints and pays ever more for coming near them."""

    settings_type: ClassVar[type[AlgorithmSettings]] = IpoSettings
    accepts_nonlinear = False

    def make_estimator(self, codec: ObservationCodec) -> AnyEstimator:
        settings = self.settings
        return ScoreEstimator(
            self.problem,
            codec,
            settings.critic,
            gae_lambda=settings.gae_lambda,
            credit_discount=settings.credit_discount,
        )
