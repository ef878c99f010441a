"""Whether what is trained is what trades: the CVaR of an agent as training counts it, and as it is deployed.

The scenarios that an agent resamples from the past are drawn as one long history, and the agent, which learns no more,
is simulated on it as in any backtest: from cash, at its rhythm and execution, with its fee.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.market import Array, Market, Mask
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns
from portfolio_sdpo.portfolio.scenarios import Resample

BURN_IN = 50
"""Sessions after which it does not matter any more that a simulation starts in cash."""


@dataclass(frozen=True)
class DeployedRisk:
    """CVaR over the limit's horizon of one agent on its own scenarios."""

    trained: float
    """What it promises, on paths as those of its training."""
    deployed: float
    """Of all periods of a backtest on these scenarios."""


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
    """What the agent, trained up to the market's last close, risks on so many sessions of its own scenarios."""
    scenarios, settings = agent.find_scenarios(market), agent.settings
    if not isinstance(scenarios, Resample):
        raise SettingsError("scenarios: a replay of the last sessions has no distribution to draw from; use bootstrap.")
    history = _draw_history(scenarios, market, sessions, seed)
    track = simulate(
        history,
        FrozenAgent(agent, scenarios.listed[-1]),
        start=history.dates[settings.limit.horizon],
        fee=settings.fee,
        execution=settings.execution,
    )
    periods = window_returns(track.returns[BURN_IN:], settings.limit.horizon)
    deployed = float(conditional_value_at_risk(periods, settings.limit.alpha))
    promised = agent.estimate_promise(market)
    assert promised is not None  # it has scenarios
    return DeployedRisk(promised, deployed)


def _draw_history(scenarios: Resample, market: Market, sessions: int, seed: int) -> Market:
    """One history of resampled days."""
    rng = np.random.default_rng(seed)
    rows = replace(scenarios, length=sessions - 1).draw(rng, np.zeros(1, dtype=np.int64))[0]
    days = np.datetime64("1000-01-01") + np.arange(sessions)
    return Market(days, market.tickers, scenarios.gross_returns[rows], scenarios.listed[rows])
