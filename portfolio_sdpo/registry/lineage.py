"""What a model and its ancestors decided day by day, none of them knowing a later day: the record for its evaluation.

A model was trained on the very days that it should be evaluated on, so its own weights cannot be evaluated there. Its
lineage can: at every close, the member decides that had been trained up to that close and no further. Each model
carries these decisions (`config.json`, `record`), and its child adds its own:

    before the record       a stand-in: the same settings, trained from scratch up to the first held-out close, then
                            walk-forward as in a backtest
    in the record           what was decided then
    after the last member   the last member trains on before it decides, as in a backtest

The agent that decides at the last close is the child. In a new lineage the stand-in itself is the child.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.shielded import find_remaining_limits, shield_strategy
from portfolio_sdpo.backtest.simulate import DecisionReplay, Track, simulate
from portfolio_sdpo.portfolio.accounting import Execution
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Array, Market, named_weights
from portfolio_sdpo.portfolio.resume import ResumableAgent
from portfolio_sdpo.portfolio.shield import CvarLimit

Record = Mapping[str, Mapping[str, float]]
"""Weights by asset, before the shield, by the day of their decision."""


class Lineage:
    """A model and its ancestors as a `Strategy` over the held-out days; it holds where no decision is due."""

    every = 1

    def __init__(
        self,
        make_stand_in: Callable[[], ResumableAgent],
        member: Agent | None,
        record: Record,
        days: tuple[np.datetime64, np.datetime64],
        watch: Callable[[int], None] | None = None,
    ) -> None:
        """`watch` is called after every update with the number of updates so far."""
        self.decisions: dict[np.datetime64, Array] = {}
        """Weights before the shield, by the day from which they are held."""
        self.updates = 0
        """Updates made in this simulation."""
        self._make_stand_in, self._member = make_stand_in, member
        self._record = {np.datetime64(day, "D"): dict(weights) for day, weights in sorted(record.items())}
        self._first, self._last = days
        self._watch = watch
        self._current: Agent | ResumableAgent | None = None
        self._decided = 0
        self._stand_in: ResumableAgent | None = None

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def agent(self) -> Agent:
        """The agent that decided last; after the simulation, the child."""
        current = self._current or self._member or self._get_stand_in()
        return current.agent if isinstance(current, ResumableAgent) else current

    def decide(self, history: Market, held: Array) -> Array:
        day = history.dates[-1]
        decision = self._recall(history) if self._is_recorded(day) else self._decide_if_due(history, held)
        if decision is None:
            return held
        self.decisions[day] = decision
        self._decided = len(history)
        return decision

    def record(self, assets: tuple[str, ...]) -> dict[str, dict[str, float]]:
        """The record that the child carries: all decisions that the held-out days depend on."""
        start = max((day for day in self._record if day <= self._first), default=self._first)
        old = {str(day): weights for day, weights in self._record.items() if day >= start}
        new = {str(day): named_weights(assets, w) for day, w in self.decisions.items() if not self._is_recorded(day)}
        return dict(sorted((old | new).items()))

    def close(self, *, done: bool) -> None:
        """Release the stand-in's saved run; if `done`, save its final state first."""
        for agent in (self._member, self._stand_in.agent if self._stand_in else None):
            if agent is not None:
                agent.watch = None
        if self._stand_in is not None:
            if done:
                self._stand_in.close()
            self._stand_in.release()

    def _is_recorded(self, day: np.datetime64) -> bool:
        """Whether the record covers the day, with or without a decision on it."""
        if not self._record or day > max(self._record):
            return False
        return bool(day >= min(self._record))

    def _recall(self, history: Market) -> Array | None:
        """The recorded decision of the day; on the first held-out day, the one that was in force."""
        day = history.dates[-1]
        self._current = self._member
        known = max((each for each in self._record if each <= day), default=day) if day == self._first else day
        weights = self._record.get(known)
        if weights is None:
            return None
        return np.array([weights.get(asset, 0.0) for asset in history.assets])

    def _decide_if_due(self, history: Market, held: Array) -> Array | None:
        day = history.dates[-1]
        member = self._member
        known = member is not None and member.as_of is not None and day >= member.as_of
        agent: Agent | ResumableAgent = member if known and member is not None else self._get_stand_in()
        if agent is self._current and len(history) - self._decided < agent.every and day != self._last:
            return None
        self._current = agent
        inner = agent.agent if isinstance(agent, ResumableAgent) else agent
        before, made = len(inner.trace), self.updates

        def count(number: int) -> None:
            self.updates = made + number - before
            if self._watch is not None:
                self._watch(self.updates)

        inner.watch = count
        return agent.decide(history, held)

    def _get_stand_in(self) -> ResumableAgent:
        if self._stand_in is None:
            self._stand_in = self._make_stand_in()
            self.updates += len(self._stand_in.agent.trace)
        return self._stand_in


def simulate_lineage(
    lineage: Lineage,
    market: Market,
    limit: CvarLimit,
    days: tuple[np.datetime64, np.datetime64],
    fee: float,
    execution: Execution,
    limits: Limits | None = None,
) -> tuple[Track, list[dict[str, Any]]]:
    """The shielded track of a lineage over the days, and what the shield found on each of them, as in a backtest.

    limits: of the lineage's agents.
    """
    limits = limits or Limits()
    common: dict[str, Any] = {"start": days[0], "end": days[1], "fee": fee, "execution": execution}
    simulate(market, lineage, **common, limits=limits)
    replay, form = DecisionReplay(lineage.name, lineage.decisions), lineage.agent.settings.shield_form
    shielded = shield_strategy(replay, limit, form=form, execution=execution, limits=limits)
    return simulate(market, shielded, **common, limits=find_remaining_limits(limits, form)), shielded.days
