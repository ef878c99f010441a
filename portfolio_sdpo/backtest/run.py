"""One backtest: every strategy through the same simulation, its figures, and the record of it all.

`simulate_strategies` works on any `Market` and writes nothing. `Backtest` is the same for a snapshot's prices, with
agents whose work is saved as it goes (see `portfolio.resume`), so that a backtest that was killed continues where it
was. `report.result.run_backtest` also writes the folder with the report.

    market = Market.from_prices(prices)
    record = simulate_strategies(market, [Entry(make_strategy("equal-weight"))], BacktestSettings(fee_bps=5))

Learning agents are made elsewhere: anything that is a `Strategy`. What is looked at besides is optional: `seed` (an
int), and after the simulation `trace`, rows about the training (see `record.TRACE_COLUMNS`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pydantic import Field, field_validator, model_validator

from portfolio_sdpo import __version__
from portfolio_sdpo.backtest.bootstrap import Bootstrap
from portfolio_sdpo.backtest.shielded import shield_strategy
from portfolio_sdpo.backtest.simulate import DecisionReplay, Strategy, Track, simulate
from portfolio_sdpo.backtest.strategies import BENCHMARKS, check_name, make_benchmark
from portfolio_sdpo.common.files import make_id
from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.common.progress import Meter, Tell, follow_meters
from portfolio_sdpo.errors import Interruption, SettingsError
from portfolio_sdpo.portfolio.accounting import Execution
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Cash, Market, load_market, parse_cash, select_days
from portfolio_sdpo.portfolio.shield import CvarLimit, ShieldForm
from portfolio_sdpo.settings import Settings, check_seeds

if TYPE_CHECKING:
    from portfolio_sdpo.backtest.record import Record, StrategyRun, TrackKind
    from portfolio_sdpo.portfolio.agent import Agent

SHIELDED_BENCHMARKS = ("maximum-return",)
"""Where the shield is on, these pass it too, so that agents are compared with what keeps the limit in the same way."""
Progress = Callable[[str, int, int], None]
"""Called with the title of an entry, how much of it is done and how much there is: updates of an agent, else
decisions."""


class DeclaredAgent(Settings):
    """What is written down about an agent, which is made elsewhere."""

    label: str = Field(min_length=1)
    """Its `name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """All that it was made with."""


class BacktestSettings(Settings):
    """All that a backtest depends on besides the package and the prices."""

    snapshot: str | None = None
    """NAME or NAME@HASH of a snapshot; None = the bundled sample."""
    strategies: tuple[str, ...] = BENCHMARKS
    """Benchmarks by name, this package's own or another's (`strategies.STRATEGIES`)."""
    agents: tuple[DeclaredAgent, ...] = ()
    start: date | None = None
    """Day of the first decision; None = as soon as a year of prices lies before it."""
    end: date | None = None
    """Last day of the track; None = the last session."""
    fee_bps: float = Field(default=0.0, ge=0, lt=10_000)
    """Fee on what is traded, in hundredths of a percent."""
    cash: Cash = "zero"
    """What cash earns: nothing, the bundled 13-week Treasury bill, or a yearly rate (0.02 = 2 %)."""
    execution: Execution = "next-close"
    """When a decision made at a close is traded: at the next close, or at the same, as the paper assumes."""
    limits: Limits = Limits()
    limit: CvarLimit = CvarLimit()
    """The promise that every track is compared with; the shield and `maximum-return` keep to it."""
    shield: bool = False
    """Show every agent, and the benchmarks `SHIELDED_BENCHMARKS`, a second time with their decisions shielded."""
    shield_form: ShieldForm = "calibrated"
    """The form of the shield; `filtered` is the one of reproductions and older runs."""
    shield_lookback: int = Field(default=504, ge=1)
    """Sessions of history that the filtered shield looks at as they were."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the agents, each of which is there once per seed."""
    bootstrap: Bootstrap | None = Bootstrap()
    """How intervals are drawn; None = no intervals."""

    _check_seeds = field_validator("seeds")(check_seeds)

    @field_validator("cash", mode="before")
    @classmethod
    def _a_rate(cls, value: Any) -> Any:
        return parse_cash(value)

    @model_validator(mode="after")
    def _consistent(self) -> BacktestSettings:
        for name in self.strategies:
            check_name(name)
        labels = [agent.label for agent in self.agents]
        passing = [*labels, *(name for name in SHIELDED_BENCHMARKS if name in self.strategies)] if self.shield else []
        names = [*self.strategies, *labels, *(f"{name} + shield" for name in passing)]
        if not names:
            raise SettingsError("strategies: name at least one strategy or agent.")
        if len(set(names)) < len(names):
            raise SettingsError(f"strategies: every strategy and agent needs its own name (got {', '.join(names)}).")
        if self.start and self.end and self.start >= self.end:
            raise SettingsError(f"start: must be before end (got {self.start} and {self.end}).")
        least = self.limit.horizon + self.limit.least_scenarios - 1
        if self.shield and self.shield_form == "filtered" and self.shield_lookback < least:
            raise SettingsError(
                f"shield_lookback: {self.limit.horizon}-session windows and a tail of {self.limit.alpha:g} need at "
                f"least {least} sessions (got {self.shield_lookback}): lengthen it, choose a larger alpha or leave "
                "the shield out."
            )
        return self

    @property
    def fee(self) -> float:
        """The fee as a share of what is traded."""
        return self.fee_bps / 10_000


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
    run: str | None = None
    """Under which its work is saved (`portfolio.resume`); None where there is nothing to resume."""


def simulate_strategies(
    market: Market,
    entries: Sequence[Entry],
    settings: BacktestSettings,
    *,
    days: tuple[date, date] | None = None,
    data: dict[str, Any] | None = None,
    progress: Progress | None = None,
    jobs: int = 1,
) -> Record:
    """Simulate every entry and measure it; nothing is written.

    market: all prices, those before the start included. days: the first and the last day; None takes those of the
    settings, and without a start the first session after a year of prices. data: what the record says about the prices;
    None takes it from the market. With `jobs` > 1 that many processes share the entries, which have to be picklable,
    and `progress` is called from another thread. Of the settings, strategies and agents are only written down.
    """
    from portfolio_sdpo.backtest.record import make_metrics, make_record

    days = days or select_days(market, settings.start, settings.end)
    runs = [run for runs in _simulate_all(market, entries, settings, days, progress, jobs) for run in runs]
    metrics = make_metrics(runs, settings.limit, settings.bootstrap)
    strategies = [entry.strategy for entry in entries if entry.kind == "benchmark"]
    config = {
        "package_version": __version__,
        "settings": settings.model_dump(mode="json"),
        "strategies": {
            each.name: inner.model_dump(mode="json")
            for each in strategies
            if isinstance(inner := getattr(each, "inner", each), Settings)
        },
        "data": data or describe_market(market),
    }
    created = datetime.now(UTC).replace(microsecond=0)
    name = make_id(created, [config, metrics])
    return make_record({"id": name, "created_at": created.isoformat(), **config}, metrics, runs, settings.fee)


def describe_market(market: Market) -> dict[str, Any]:
    """What a record says about prices that come from no snapshot."""
    return {
        "snapshot": None,
        "source": "given",
        "notes": [],
        "tickers": list(market.tickers),
        "first": str(market.dates[0]),
        "last": str(market.dates[-1]),
        "sessions": len(market),
        "sessions_per_year": market.sessions_per_year,
    }


class Backtest:
    """The backtest that settings describe, on a snapshot's prices or the bundled sample, ready to run.

    `agents` are those that the settings declare, one object per label and seed. What was saved of the same agents'
    work is continued, unless `restart` deletes it first.
    """

    def __init__(self, settings: BacktestSettings, agents: Sequence[Strategy] = (), *, restart: bool = False) -> None:
        # What can be known to be wrong is said before the work, which may take hours.
        _check_extras(settings)
        benchmarks = [make_benchmark(name, settings.limit) for name in settings.strategies]
        declared = _match_agents(settings, agents)
        self.settings = settings
        self.market, self.days, self.data = load_market(settings.snapshot, settings.cash, settings.start, settings.end)
        self.entries = [
            *(replace(entry, run=_run_id(entry.strategy, settings, self.days, self.data)) for entry in declared),
            *(
                Entry(each, shield=settings.shield and each.name in SHIELDED_BENCHMARKS, title=each.name)
                for each in benchmarks
            ),
        ]
        if restart:
            self.discard()

    def run(self, progress: Progress | None = None, jobs: int = 1) -> Record:
        """Simulate and measure every strategy; an interrupt says what is saved."""
        if jobs < 1:
            raise SettingsError(f"jobs: must be at least 1 (got {jobs}).")
        try:
            return simulate_strategies(
                self.market, self.entries, self.settings, days=self.days, data=self.data, progress=progress, jobs=jobs
            )
        except KeyboardInterrupt:
            raise Interruption(_describe_saved(self.entries)) from None

    def discard(self) -> None:
        """Delete what is saved of the agents' work."""
        for entry in self.entries:
            if entry.run is not None:
                from portfolio_sdpo.portfolio.resume import discard_run

                discard_run(entry.run)


def simulate_agent(settings: BacktestSettings, agent: Agent, tell: Tell | None = None) -> Track:
    """Simulate one of the settings' agents and save its decisions, so that its `Backtest` finds them made.

    So the agents of one backtest can be simulated anywhere, in processes that may die, and the record of them all is
    made at the end. `tell` is called with the updates made and their number in all.
    """
    market, days, data = load_market(settings.snapshot, settings.cash, settings.start, settings.end)
    entry = Entry(agent, "agent", agent.seed, title=agent.name, run=_run_id(agent, settings, days, data))
    (run, *_) = _simulate_entry(market, entry, settings, days, tell)
    return run.track


def _match_agents(settings: BacktestSettings, agents: Sequence[Strategy]) -> list[Entry]:
    """The agents, exactly one per declared label and seed, in that order."""
    found = {(agent.name, int(getattr(agent, "seed", settings.seeds[0]))): agent for agent in agents}
    wanted = [(agent.label, seed) for agent in settings.agents for seed in settings.seeds]
    if len(found) < len(agents) or set(found) != set(wanted):
        spelled = ", ".join(f"{label} with seed {seed}" for label, seed in wanted) or "none"
        raise SettingsError(
            f"agents: the settings declare {spelled}; give exactly these, each once (got {len(agents)} of them)."
        )
    several = len(settings.seeds) > 1
    return [
        Entry(
            found[label, seed],
            "agent",
            seed,
            shield=settings.shield,
            title=f"{label}, seed {seed}" if several else label,
        )
        for label, seed in wanted
    ]


def _run_id(
    strategy: Strategy, settings: BacktestSettings, days: tuple[date, date], data: dict[str, Any]
) -> str | None:
    """What an agent's work is saved under: all that its decisions depend on. None for what cannot be resumed."""
    if not hasattr(strategy, "restore"):
        return None
    from portfolio_sdpo.portfolio.resume import make_run_id

    surroundings = {
        "days": days,
        "prices": data["sha256"],
        "cash": data.get("cash_sha256", settings.cash),
        "fee_bps": settings.fee_bps,
        "execution": settings.execution,
        "limits": settings.limits.model_dump(mode="json"),
    }
    return make_run_id(cast("Agent", strategy), surroundings)


def _describe_saved(entries: Sequence[Entry]) -> str:
    """The sentence after an interrupt: what is there to continue with."""
    from portfolio_sdpo.portfolio.resume import count_saved_decisions

    found = [number for entry in entries if entry.run is not None if (number := count_saved_decisions(entry.run))]
    if not found:
        return "no decision of an agent was made yet, so nothing is saved"
    made = f"{sum(found)} decision{'s' * (sum(found) != 1)}"
    return f"{made} of {len(found)} agent{'s' * (len(found) != 1)} {'is' if sum(found) == 1 else 'are'} saved"


def _simulate_all(
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
            yield _simulate_entry(market, entry, settings, days, tell)
        return
    from joblib import Parallel, delayed

    with ExitStack() as stack:
        meters: dict[str, Meter] = {}
        if progress is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            meters = {title: Meter(folder / str(number)) for number, title in enumerate(titles)}
            stack.enter_context(follow_meters(meters, progress))
        yield from Parallel(n_jobs=jobs, return_as="generator")(
            delayed(_simulate_entry)(market, entry, settings, days, meters.get(title))
            for entry, title in zip(entries, titles, strict=True)
        )


def _simulate_entry(
    market: Market, entry: Entry, settings: BacktestSettings, days: tuple[date, date], tell: Tell | None = None
) -> list[StrategyRun]:
    """The strategy's own run and, if it passes the shield, the run of the same decisions through it."""
    from portfolio_sdpo.backtest.record import StrategyRun

    common: dict[str, Any] = {"start": days[0], "end": days[1], "fee": settings.fee, "limits": settings.limits}
    common["execution"] = settings.execution
    first, last = market.span(*days)
    # One more at the last close.
    decisions = -(-(last - first) // entry.strategy.every) + 1
    track = (_simulate_strategy if entry.run is None else _simulate_agent)(market, entry, decisions, common, tell)
    trace = _rows_of_track(track, getattr(entry.strategy, "trace", ()))
    runs = [StrategyRun(track, entry.kind, entry.seed, trace=trace)]
    if entry.shield:
        replay = DecisionReplay(track.name, track.decisions, entry.strategy.every)
        how: dict[str, Any] = {"form": settings.shield_form, "lookback": settings.shield_lookback}
        shielded = shield_strategy(replay, settings.limit, **how, execution=settings.execution)
        track = simulate(market, shielded, **common)
        kind: TrackKind = "benchmark" if entry.kind == "benchmark" else "shielded"
        runs.append(StrategyRun(track, kind, entry.seed, shield=_rows_of_track(track, shielded.days)))
    return runs


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


def _check_extras(settings: BacktestSettings) -> None:
    for package in ("plotly", *(["arch"] if settings.bootstrap else [])):
        require_extra("A backtest", package, "backtest")
