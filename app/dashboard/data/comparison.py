"""Tracks of several backtests as lines to compare: the sessions that they share, and their returns in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.promise import check_promise, cvar_by_year
from portfolio_sdpo.backtest.record import StrategyGroup
from portfolio_sdpo.backtest.simulate import Track
from portfolio_sdpo.backtest.statistics import summarise
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR
from portfolio_sdpo.portfolio.shield import CvarLimit

from .backtests import OpenBacktest

MIN_SESSIONS = 20
"""Sessions in common that a difference needs."""


@dataclass(frozen=True, eq=False)
class Line:
    """A strategy of a backtest with its seeds, or one seed of it, under a name that is unique on the page."""

    group: StrategyGroup
    tracks: dict[tuple[str, int | None], pd.DataFrame]
    """Rows of the equity table by that name and the seed."""
    bootstrap: dict[str, Any] | None
    """Settings of the bootstrap from which the backtest's intervals come."""

    @property
    def rows(self) -> pd.DataFrame:
        """Rows of the middle seed."""
        return self.tracks[self.group.key]


def make_lines(run: OpenBacktest, letter: str, names: Sequence[str], every_seed: bool) -> list[Line]:
    """The selected strategies of a backtest, which the page calls by a letter."""
    prefix = f"{letter} · " if letter else ""
    bootstrap = run.record.config["settings"]["bootstrap"]
    found = []
    for group in run.groups:
        if group.name not in names:
            continue
        single = every_seed and len(group.records) > 1
        for records in [(record,) for record in group.records] if single else [group.records]:
            # The seed comes before the name: the figures recognise a shielded strategy by the end of its name.
            before = f"{prefix}seed {records[0]['seed']} · " if single else prefix
            name = before + group.name
            tracks = {(name, record["seed"]): run.equity[group.name, record["seed"]] for record in records}
            found.append(Line(StrategyGroup(name, group.kind, tuple(records), before + group.title), tracks, bootstrap))
    return found


def find_common_span(lines: Sequence[Line]) -> tuple[Any, Any] | None:
    """First and last day that all lines have, where they do not have the same days anyway."""
    edges = [(line.rows["date"].iloc[0], line.rows["date"].iloc[-1]) for line in lines]
    first, last = max(edge[0] for edge in edges), min(edge[1] for edge in edges)
    if len(set(edges)) == 1 or first >= last:
        return None
    return first.date(), last.date()


def find_whole_span(lines: Sequence[Line]) -> tuple[Any, Any]:
    """First and last day that any of the lines has."""
    edges = [(line.rows["date"].iloc[0], line.rows["date"].iloc[-1]) for line in lines]
    return min(edge[0] for edge in edges).date(), max(edge[1] for edge in edges).date()


def cut_to_span(lines: Sequence[Line], days: tuple[Any, Any]) -> list[Line]:
    """The lines between two days, each starting at 1, with the figures of these sessions alone.

    A line without two sessions between them is left out.
    """
    low, high = map(pd.Timestamp, days)
    cut = []
    for line in lines:
        if line.rows["date"].between(low, high).sum() < 2:
            continue
        tracks = {key: _cut(rows, low, high) for key, rows in line.tracks.items()}
        records = tuple(_measure(record, tracks[line.group.name, record["seed"]]) for record in line.group.records)
        cut.append(replace(line, group=replace(line.group, records=records), tracks=tracks))
    return cut


def _cut(rows: pd.DataFrame, low: Any, high: Any) -> pd.DataFrame:
    """The rows of these days, as if the track had begun on the first of them."""
    inside = rows[rows["date"].between(low, high)]
    start = inside["wealth"].iloc[0]
    wealth = inside["wealth"] / start
    first = np.arange(len(inside)) == 0
    return inside.assign(
        wealth=wealth,
        cost=inside["cost"] / start,
        drawdown=wealth / wealth.cummax() - 1.0,
        **{name: inside[name].where(~first) for name in ("return", "cash_return")},
    )


def _measure(record: dict[str, Any], rows: pd.DataFrame) -> dict[str, Any]:
    """The record of a track with the figures of these rows, and without intervals, which take too long for a page."""
    limit = CvarLimit(**{field: record["promise"][field] for field in CvarLimit.model_fields})
    days = len(rows) - 1
    track = Track(
        name=record["strategy"],
        assets=(),
        dates=rows["date"].to_numpy().astype("datetime64[D]"),
        wealth=rows["wealth"].to_numpy(),
        weights=np.empty((days, 0)),
        held=np.empty((days + 1, 0)),
        costs=rows["cost"].to_numpy()[:-1],
        turnover=rows["turnover"].to_numpy()[:-1],
        cash_returns=rows["cash_return"].to_numpy()[1:],
        next_weights=np.empty(0),
        sessions_per_year=record.get("sessions_per_year") or SESSIONS_PER_YEAR,
    )
    figures = summarise(track, alpha=limit.alpha, horizon=limit.horizon).to_json()
    del figures["name"]
    by_year = cvar_by_year(track.returns, track.dates[1:], limit)
    return record | figures | {"promise": check_promise(track.returns, limit).to_json(), "cvar_by_year": by_year}


def choose_rival(lines: Sequence[Line]) -> int:
    """The line that the others are compared with at first: 1/N, else another benchmark, else the last line."""
    names = [line.group.name.rpartition(" · ")[2] for line in lines]
    kinds = [line.group.kind for line in lines]
    if "equal-weight" in names:
        return names.index("equal-weight")
    return kinds.index("benchmark") if "benchmark" in kinds else len(lines) - 1


def pair_returns(one: pd.DataFrame, other: pd.DataFrame) -> tuple[Any, Any] | None:
    """Returns [D] of both over the sessions that both have; None where they are few or not the same sessions."""
    first, second = one.iloc[1:], other.iloc[1:]
    low = max(first["date"].iloc[0], second["date"].iloc[0])
    high = min(first["date"].iloc[-1], second["date"].iloc[-1])
    first, second = (rows[rows["date"].between(low, high)] for rows in (first, second))
    if len(first) < MIN_SESSIONS or not np.array_equal(first["date"].to_numpy(), second["date"].to_numpy()):
        return None
    return first["return"].to_numpy(), second["return"].to_numpy()
