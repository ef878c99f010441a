"""What takes part in a backtest, and how it is simulated: bare, behind the shield, in one process or several."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from portfolio_sdpo.backtest.shielded import find_remaining_limits, shield_track
from portfolio_sdpo.backtest.simulate import Strategy, Track, simulate
from portfolio_sdpo.common.progress import Meter, Tell, follow_meters
from portfolio_sdpo.portfolio.market import Market

if TYPE_CHECKING:
    from portfolio_sdpo.backtest.record import StrategyRun, TrackKind
    from portfolio_sdpo.backtest.run import BacktestSettings
    from portfolio_sdpo.portfolio.agent import Agent
    from portfolio_sdpo.portfolio.limits import Limits

STRONGEST = "strongest"
"""Stands for the benchmark of highest final wealth, which is only known afterwards."""
Progress = Callable[[str, int, int], None]
"""Called with the title of an entry, how much of it is done and how much there is: updates of an agent, else
decisions."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A strategy that takes part in a backtest."""

    strategy: Strategy
    kind: TrackKind = "benchmark"
    seed: int | None = None
    """None for what has no randomness."""
    shield: bool = False
    """Whether its decisions are simulated a second time, through the shield."""
    title: str = ""
    """What progress calls it; empty: the strategy's name."""
    benchmark: str = ""
    """The name of the benchmark that it is, where tables call it otherwise; empty: the strategy's name."""
    run: str | None = None
    """Under which its work is saved (`portfolio.resume`); None where there is nothing to resume."""


def simulate_entries(
    market: Market,
    entries: Sequence[Entry],
    settings: BacktestSettings,
    days: tuple[date, date],
    progress: Progress | None,
    jobs: int,
) -> Iterator[list[StrategyRun]]:
    """The runs of each entry, in order."""
    titles = [entry.title or entry.strategy.name for entry in entries]
    if jobs == 1:
        for entry, title in zip(entries, titles, strict=True):
            tell = partial(progress, title) if progress is not None else None
            yield simulate_entry(market, entry, settings, days, tell)
        return
    from joblib import Parallel, delayed

    with ExitStack() as stack:
        meters: dict[str, Meter] = {}
        if progress is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            meters = {title: Meter(folder / str(number)) for number, title in enumerate(titles)}
            stack.enter_context(follow_meters(meters, progress))
        yield from Parallel(n_jobs=jobs, return_as="generator")(
            delayed(simulate_entry)(market, entry, settings, days, meters.get(title))
            for entry, title in zip(entries, titles, strict=True)
        )


def simulate_entry(
    market: Market, entry: Entry, settings: BacktestSettings, days: tuple[date, date], tell: Tell | None = None
) -> list[StrategyRun]:
    """The strategy's own run and, if it passes the shield, the run of the same decisions through it."""
    from portfolio_sdpo.backtest.record import StrategyRun

    common = _describe_simulation(settings, days, entry)
    first, last = market.span(*days)
    # One more at the last close.
    decisions = -(-(last - first) // entry.strategy.every) + 1
    track = (_simulate_strategy if entry.run is None else _simulate_agent)(market, entry, decisions, common, tell)
    trace = _rows_of_track(track, getattr(entry.strategy, "trace", ()))
    runs = [StrategyRun(track, entry.kind, entry.seed, trace=trace, benchmark=entry.benchmark)]
    if entry.shield:
        runs.append(_shield_run(market, entry, track, settings, common))
    return runs


def _describe_simulation(settings: BacktestSettings, days: tuple[date, date], entry: Entry) -> dict[str, Any]:
    """The parameters of `simulate` that all strategies share; an agent keeps its own limits as well."""
    own = getattr(getattr(entry.strategy, "settings", None), "limits", None)
    return {
        "start": days[0],
        "end": days[1],
        "fee": settings.fee,
        "limits": settings.limits if own is None else settings.limits.tighten(own),
        "execution": settings.execution,
    }


def _shield_run(
    market: Market, entry: Entry, track: Track, settings: BacktestSettings, common: dict[str, Any]
) -> StrategyRun:
    """The decisions of an entry's track once more, behind the shield."""
    from portfolio_sdpo.backtest.record import StrategyRun

    every, form, lookback = entry.strategy.every, settings.shield_form, settings.shield_lookback
    limits: Limits = common["limits"]
    shielded = shield_track(track, every, settings.limit, form=form, lookback=lookback, limits=limits)
    track = simulate(market, shielded, **{**common, "limits": find_remaining_limits(limits, form)})
    kind: TrackKind = "benchmark" if entry.kind == "benchmark" else "shielded"
    benchmark = f"{entry.benchmark} + shield" if entry.benchmark else ""
    return StrategyRun(track, kind, entry.seed, shield=_rows_of_track(track, shielded.days), benchmark=benchmark)


def shield_strongest(
    market: Market,
    entries: Sequence[Entry],
    simulated: list[list[StrategyRun]],
    settings: BacktestSettings,
    days: tuple[date, date],
) -> None:
    """Add to the runs of the benchmark of highest final wealth the one behind the shield, unless it is there."""
    benchmarks = [
        number
        for number, entry in enumerate(entries)
        if entry.kind == "benchmark" and simulated[number][0].track.weights[:, 1:].any()
    ]
    if not benchmarks:
        return
    best = max(benchmarks, key=lambda number: simulated[number][0].track.wealth[-1])
    names = [run.track.name for runs in simulated for run in runs]
    if f"{simulated[best][0].track.name} + shield" not in names:
        common = _describe_simulation(settings, days, entries[best])
        simulated[best].append(_shield_run(market, entries[best], simulated[best][0].track, settings, common))


def _simulate_strategy(
    market: Market, entry: Entry, decisions: int, common: dict[str, Any], tell: Tell | None
) -> Track:
    """A strategy that keeps nothing on disk; progress counts its decisions."""
    if tell is None:
        return simulate(market, entry.strategy, **common)
    tell(0, decisions)
    return simulate(market, entry.strategy, on_decision=lambda number: tell(number, decisions), **common)


def _simulate_agent(market: Market, entry: Entry, decisions: int, common: dict[str, Any], tell: Tell | None) -> Track:
    """An agent, resumed where it was saved; progress counts its updates."""
    from portfolio_sdpo.portfolio.resume import ResumableAgent

    agent = cast("Agent", entry.strategy)
    resumable = ResumableAgent(agent, str(entry.run))
    updates = agent.updates_for(decisions)
    if tell is not None:
        tell(len(agent.trace), updates)
        agent.watch = lambda number: tell(number, updates)
    try:
        track = simulate(market, resumable, **common)
        resumable.close()
        if tell is not None and len(agent.trace) < updates:
            # It waited in cash, or the last close has no stock to decide on.
            tell(updates, updates)
    finally:
        agent.watch = None
        resumable.release()
    return track


def _rows_of_track(track: Track, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of decisions that the track shows; the one at its last close is yet to be held."""
    return [row for row in rows if np.datetime64(row["date"], "D") < track.dates[-1]]
