"""What an agent decides at the last close of a market, and agents that are kept once they have trained for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.market import Array, Market, all_cash
from portfolio_sdpo.portfolio.shared_policy_agent import SharedPolicyAgent
from portfolio_sdpo.portfolio.store import today
from portfolio_sdpo.registry import Model, Registry

KEPT_AGENTS = 8
"""Trained agents in memory."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What an agent decides at the last close of a market; it does not depend on when the question is asked."""

    assets: tuple[str, ...]
    as_of: date
    today: Mapping[str, Any]
    """Weights before and after the shield with their CVaR, see `portfolio.store.today`."""
    data: Mapping[str, Any]
    """Hash and origin of the prices, see `portfolio.market.load_latest`."""
    waiting: str | None
    """Why the agent holds only cash for now, if it does."""
    remarks: tuple[str, ...] = ()
    """What there is to say about the last prices."""


def decide(
    agent: Agent,
    market: Market,
    data: Mapping[str, Any],
    held: Array | None = None,
    promised: float | None = None,
) -> Decision:
    """Let an agent decide at the last close, and apply the shield.

    Where the prices are newer than the model, the agent trains on them first, as in a backtest.

    Parameters
    ----------
    agent : as loaded from the registry, or trained up to this close already; it is changed by its training
    market : prices up to the close at which the decision is made
    data : hash and origin of the prices, passed on to the decision
    held : weights held now, shape (1 + stocks,), cash first; all cash if None
    promised : what the agent promised at this close before, which takes most of the time; estimated if None
    """
    weights = agent.decide(market, all_cash(len(market.assets)) if held is None else held)
    last: date = market.dates[-1].astype(date)
    return Decision(market.assets, last, today(agent, market, weights, promised, held), data, agent.waiting)


class TrainedAgents:
    """Decisions of registered agents for one account after another; used by one thread at a time.

    What an agent learns from prices, and promises on them, does not depend on what an account holds: it is done once.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._kept: OrderedDict[tuple[Any, ...], tuple[Agent, float]] = OrderedDict()
        """Agents and what they promise, by model, prices and day."""

    def decide(
        self,
        model: Model,
        market: Market,
        data: Mapping[str, Any],
        held: Array | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Decision:
        """What the model decides; see `decide`. watch: called with the number of every update, and may raise."""
        key = model.id, data["sha256"], data.get("cash_sha256"), market.dates[-1]
        agent, promised = self._kept.get(key) or (self.registry.load_agent(model.id), None)
        agent.watch = watch
        try:
            decision = decide(agent, market, data, held, promised)
        finally:
            agent.watch = None
        # A shared policy looks back at its own decisions and costs little, so it begins anew.
        if not isinstance(agent, SharedPolicyAgent) and decision.waiting is None:
            self._kept[key] = agent, decision.today["promised"]
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_AGENTS:
                self._kept.popitem(last=False)
        return decision
