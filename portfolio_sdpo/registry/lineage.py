"""What a model and its ancestors decided day by day, none of them knowing a later day: the record that judges it.

A model was trained on the very days that one would like to judge it on, so its own weights cannot be judged there. What
can be judged is the line of models: at every close the member decides that had been trained up to that close and no
further. Each model carries these decisions (`config.json`, `record`), and its child adds its own:

    before the record       a stand-in: the same settings, trained from scratch up to the first held-out close, then
                            walked as in a backtest
    in the record           what was decided then
    after the last member   the last member trains on before it decides, as in a backtest

The agent that decides at the last close is the child. Of a line that begins, the stand-in itself is the child.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.simulate import DecisionReplay, ShieldedStrategy, Track, simulate
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.market import Array, Market, named_weights
from portfolio_sdpo.portfolio.resume import ResumableAgent
from portfolio_sdpo.portfolio.shield import CvarLimit

Record = Mapping[str, Mapping[str, float]]
"""Weights by asset, before the shield, by the day of their decision."""


class Lineage:
    """A line of models as a `Strategy` over the held-out days; asked every session, holds where no decision is due."""

    every = 1

    def __init__(
        self,
        fresh: Callable[[], ResumableAgent],
        member: Agent | None,
        record: Record,
        days: tuple[np.datetime64, np.datetime64],
        watch: Callable[[int], None] | None = None,
    ) -> None:
        """`fresh` makes the stand-in. `watch` is called after every update with the number of them in this walk."""
        self.decisions: dict[np.datetime64, Array] = {}
        """Before the shield, by the day from which they are held."""
        self.updates = 0
        """Made in this walk."""
        self._fresh, self._member = fresh, member
        self._book = {np.datetime64(day, "D"): dict(weights) for day, weights in sorted(record.items())}
        self._first, self._last = days
        self._watch = watch
        self._current: Agent | ResumableAgent | None = None
        self._decided = 0
        self._kept: ResumableAgent | None = None

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def agent(self) -> Agent:
        """Who decided last; after the walk, the child."""
        current = self._current or self._member or self._stand_in()
        return current.agent if isinstance(current, ResumableAgent) else current

    def decide(self, history: Market, held: Array) -> Array:
        day = history.dates[-1]
        decision = self._noted(history) if self._remembers(day) else self._due(history, held)
        if decision is None:
            return held
        self.decisions[day] = decision
        self._decided = len(history)
        return decision

    def record(self, assets: tuple[str, ...]) -> dict[str, dict[str, float]]:
        """What the child carries: all decisions that the held-out days depend on."""
        start = max((day for day in self._book if day <= self._first), default=self._first)
        old = {str(day): weights for day, weights in self._book.items() if day >= start}
        new = {str(day): named_weights(assets, w) for day, w in self.decisions.items() if not self._remembers(day)}
        return dict(sorted((old | new).items()))

    def close(self, *, done: bool) -> None:
        """Let others have the stand-in's walk; saved as far as it is if it is `done`."""
        for agent in (self._member, self._kept.agent if self._kept else None):
            if agent is not None:
                agent.watch = None
        if self._kept is not None:
            if done:
                self._kept.close()
            self._kept.release()

    def _remembers(self, day: np.datetime64) -> bool:
        """Whether the record says what was done that day, be it nothing."""
        if not self._book or day > max(self._book):
            return False
        return bool(day >= min(self._book))

    def _noted(self, history: Market) -> Array | None:
        """The decision of the record; on the first held-out day, the one that stood then."""
        day = history.dates[-1]
        self._current = self._member
        known = max((each for each in self._book if each <= day), default=day) if day == self._first else day
        weights = self._book.get(known)
        if weights is None:
            return None
        return np.array([weights.get(asset, 0.0) for asset in history.assets])

    def _due(self, history: Market, held: Array) -> Array | None:
        day = history.dates[-1]
        member = self._member
        known = member is not None and member.as_of is not None and day >= member.as_of
        agent: Agent | ResumableAgent = member if known and member is not None else self._stand_in()
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

    def _stand_in(self) -> ResumableAgent:
        if self._kept is None:
            self._kept = self._fresh()
            self.updates += len(self._kept.agent.trace)
        return self._kept


def walk(
    lineage: Lineage, market: Market, limit: CvarLimit, days: tuple[np.datetime64, np.datetime64], fee: float
) -> tuple[Track, list[dict[str, Any]]]:
    """The line through the days and then, as in backtests, its decisions through the shield: track and looks."""
    simulate(market, lineage, start=days[0], end=days[1], fee=fee)
    shielded = ShieldedStrategy(DecisionReplay(lineage.name, lineage.decisions), limit)
    return simulate(market, shielded, start=days[0], end=days[1], fee=fee), shielded.days
