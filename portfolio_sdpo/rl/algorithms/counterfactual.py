"""SDPO's `counterfactual` estimator: each action against the policy's most likely one, all else as it was.

Where what follows does not depend on the action (price paths, traded for free) the return with one step's action
replaced by the mode is known exactly. It does not depend on that step's action, so it is an unbiased baseline, and no
critic is needed: the risk advantage of step t is u(R) − u(R − γ^t (r_t − r_t^mode)), with u the influence function of ρ
at the law of the batch's returns.
"""

from __future__ import annotations

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import RiskMeasure
from portfolio_sdpo.rl.risk_advantage import LEAST_WEIGHT, Assessment, empirical
from portfolio_sdpo.rl.rollout import Rollout


def assess_counterfactual(measure: RiskMeasure, discount: float, rollout: Rollout) -> Assessment:
    """ρ of Σ_t γ^t reward_t over the batch's episodes, and its advantage."""
    if "reward_of_mode" not in rollout.signals:
        raise SettingsError("estimator: counterfactual is for price paths, which tell what other weights had earned.")
    returns = rollout.returns("reward", discount)
    risk, error = empirical(measure, returns)
    gained = rollout.signals["reward"] - rollout.signals["reward_of_mode"]
    advantage = gained
    if not measure.linear:
        weight = discount ** rollout.step.to(gained.dtype)
        utility, total = measure.influence(returns), returns[rollout.episode]
        advantage = (utility(total) - utility(total - weight * gained)) / weight.clamp_min(LEAST_WEIGHT)
    return Assessment(risk, error, plug_in=risk, advantage=advantage)
