"""Whether what is trained is what trades: the CVaR of an agent as training counts it, and as it is deployed.

The scenarios that an agent resamples from the past are drawn as one long history, and the agent, which learns no more,
is simulated on it as in any backtest: from cash, at its rhythm and execution, with its fee, and behind the shield if it
is trained through it. Training paths are cut out of the same history, one from each decision of the simulation on: both
risks are those of the same periods, and differ by what training leaves out, not by the luck of the draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from portfolio_sdpo.backtest.shielded import shield_track
from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.analytic import AnalyticLearner
from portfolio_sdpo.portfolio.calibrated_shield import WINDOW
from portfolio_sdpo.portfolio.market import Array, Market, Mask
from portfolio_sdpo.portfolio.path_shield import PathShield
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns
from portfolio_sdpo.portfolio.scenarios import Resample
from portfolio_sdpo.portfolio.shared_policy import SharedPolicySettings

BURN_IN = 50
"""Sessions after which it does not matter any more that a simulation starts in cash."""
CHUNK = 256
"""Paths behind the shield, each with a past of its own, that are held in memory at a time."""


@dataclass(frozen=True)
class DeployedRisk:
    """CVaR over the limit's horizon of one agent on its own scenarios."""

    promised: float
    """What it promises at the last close of the market, on paths of its own."""
    trained: float
    """As training counts it, on paths out of the history that the backtest goes through."""
    deployed: float
    """Of the same periods in that backtest."""


class FrozenAgent:
    """The policy of a trained agent, which learns no more, as a `Strategy`.

    known: [A] the assets that its scenarios hold.
    """

    def __init__(self, agent: Agent, known: Mask) -> None:
        self.agent, self.known = agent, known
        self.name, self.every = agent.name, agent.every

    def decide(self, history: Market, held: Array) -> Array:
        """The policy's weights [A], without training."""
        return self.agent.decide_as_trained(history, held, self.known)


def measure_deployed_risk(agent: Agent, market: Market, sessions: int, seed: int = 0) -> DeployedRisk:
    """What the agent, trained up to the market's last close, risks on so many sessions of its own scenarios.

    What the shield lets through depends on the past that it sees: behind it, every path continues its own.
    """
    scenarios, settings, deployment = _find_scenarios(agent, market), agent.settings, agent.settings.deployment
    shielded = settings.training == "through-shield"
    horizon = settings.limit.horizon
    past = WINDOW + 1 if shielded else horizon
    history = _draw_history(scenarios, market, past + sessions, seed)
    common = {"start": history.dates[past], "fee": settings.fee, "execution": settings.execution}
    track = simulate(history, FrozenAgent(agent, scenarios.listed[-1]), **common)
    if shielded:
        track = simulate(history, shield_track(track, settings.every, settings.limit), **common)
    # The decision, in sessions after the start, whose period is the first that counts.
    decision = settings.every * math.ceil((BURN_IN + horizon) / settings.every)
    first = decision if deployment is None else decision + deployment.lag
    periods = window_returns(track.returns[first:], horizon)
    promised = agent.estimate_promise(market)
    assert promised is not None  # it has scenarios
    trained = _earn_on_paths(agent, history, past + decision, seed)
    if trained is None:
        trained_cvar = promised
    else:
        periods = periods[: len(trained)]
        trained_cvar = float(conditional_value_at_risk(trained, settings.limit.alpha))
    deployed = float(conditional_value_at_risk(periods, settings.limit.alpha))
    return DeployedRisk(promised, trained_cvar, deployed)


def _find_scenarios(agent: Agent, market: Market) -> Resample:
    """What the agent draws its training paths from; an error where that is no distribution."""
    if isinstance(agent.settings.learner, SharedPolicySettings):
        raise SettingsError(
            "preset: a shared policy is trained on no scenarios, so that it has no trained risk to compare with; name "
            "a preset whose agent is trained."
        )
    scenarios = agent.find_scenarios(market)
    if not isinstance(scenarios, Resample):
        raise SettingsError("scenarios: a replay of the last sessions has no distribution to draw from; use bootstrap.")
    return scenarios


def _earn_on_paths(agent: Agent, history: Market, decision: int, seed: int) -> Array | None:
    """[N] returns of periods as training counts them, in order; None for a learner that knows none but its trace's.

    A path begins with every decision of the history, of which the first is at row `decision`.
    """
    settings, learner, deployment = agent.settings, agent.learner, agent.settings.deployment
    if deployment is None or not isinstance(learner, AnalyticLearner):
        return None
    first = decision - deployment.seen + 1
    firsts = np.arange(first, len(history) - deployment.rows + 1, settings.every)
    generator = torch.Generator().manual_seed(seed)
    growth, before = [], learner.shield
    gross_returns = torch.tensor(history.gross_returns, dtype=torch.float32)
    listed = torch.tensor(history.listed)
    for begins in torch.as_tensor(firsts).split(CHUNK):
        rows = begins.unsqueeze(-1) + torch.arange(deployment.rows)
        if settings.training == "through-shield":
            past = begins.unsqueeze(-1) + torch.arange(-WINDOW - 1, 0)
            learner.shield = PathShield(gross_returns[past], settings.limit, history.sessions_per_year)
        earned = learner.earn_as_deployed(gross_returns[rows], listed[rows], generator)
        assert earned is not None
        growth.append(earned)
    learner.shield = before
    return np.asarray(torch.cat(growth).double().expm1().numpy())


def _draw_history(scenarios: Resample, market: Market, sessions: int, seed: int) -> Market:
    """One history of resampled days."""
    rng = np.random.default_rng(seed)
    rows = replace(scenarios, length=sessions - 1).draw(rng, np.zeros(1, dtype=np.int64))[0]
    days = np.datetime64("1000-01-01") + np.arange(sessions)
    return Market(days, market.tickers, scenarios.gross_returns[rows], scenarios.listed[rows])
