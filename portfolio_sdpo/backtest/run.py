"""One backtest from settings to a folder: prices, every strategy through the same walk, figures, record, report.

    result = run_backtest(BacktestSettings(start="2019-01-02", end="2019-12-31", fee_bps=5))
    result.report       # the HTML page

Learning agents are made elsewhere and given in: anything that is a `Strategy`. What is looked at besides is optional:
`seed` (an int), `every`, and after the walk `trace`, rows about the training (see `tables.TRACE`). The walk of an
`Agent` is saved as it goes (see `walks`): a backtest that was killed goes on where it was.
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
from portfolio_sdpo.backtest.coverage import check_promise, cvar_by_year, json_ready
from portfolio_sdpo.backtest.resample import Bootstrap
from portfolio_sdpo.backtest.shielding import Recorded, Replayed, ShieldedStrategy, sessions_between
from portfolio_sdpo.backtest.simulate import Strategy, Track, simulate
from portfolio_sdpo.backtest.statistics import growth_difference, summarise
from portfolio_sdpo.backtest.strategies import STRATEGIES, make_strategy
from portfolio_sdpo.common.extras import require_extra
from portfolio_sdpo.common.files import make_id
from portfolio_sdpo.common.progress import Meter, Tell, follow_meters
from portfolio_sdpo.common.seeds import check_seeds
from portfolio_sdpo.errors import Interruption, SettingsError, did_you_mean
from portfolio_sdpo.portfolio import return_measures as measures
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.load import Cash, checked_cash, load_market
from portfolio_sdpo.portfolio.market import Market, named_weights
from portfolio_sdpo.portfolio.shield import CvarLimit
from portfolio_sdpo.settings import Settings

if TYPE_CHECKING:
    from portfolio_sdpo.backtest.record import Record
    from portfolio_sdpo.backtest.tables import Kind, Walk
    from portfolio_sdpo.portfolio.agent import Agent

SHIELDED_BENCHMARKS = ("maximum-return",)
"""Where the shield is on, these pass it too: whoever keeps the limit is compared with who keeps it in the same way."""
RIVALS = ("maximum-return", "maximum-return + shield", "equal-weight")
"""Benchmarks that an agent's growth is compared with, session by session."""
Progress = Callable[[str, int, int], None]
"""Called with the title of a walk, what is done of it and how much that will be: an agent's updates, decisions of
others."""


class DeclaredAgent(Settings):
    """What is written down about an agent that is given in."""

    label: str = Field(min_length=1)
    """Its `name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """All that it was made with."""


class BacktestSettings(Settings):
    """All that a backtest depends on besides the package and the prices."""

    snapshot: str | None = None
    """NAME or NAME@HASH of a snapshot; None = the bundled sample."""
    strategies: tuple[str, ...] = tuple(STRATEGIES)
    """Benchmarks by name."""
    agents: tuple[DeclaredAgent, ...] = ()
    start: date | None = None
    """Day of the first decision; None = as soon as 252 sessions lie before it."""
    end: date | None = None
    """Last day of the track; None = the last session."""
    fee_bps: float = Field(default=0.0, ge=0, lt=10_000)
    """Fee on what is traded, in hundredths of a percent."""
    cash: Cash = "zero"
    """What cash earns: nothing, the bundled 13-week Treasury bill, or a yearly rate (0.02 = 2 %)."""
    limits: Limits = Limits()
    limit: CvarLimit = CvarLimit()
    """The promise that every track is compared with; the shield and `maximum-return` keep to it."""
    shield: bool = False
    """Show every agent, and the benchmarks `SHIELDED_BENCHMARKS`, a second time with their decisions shielded."""
    shield_lookback: int = Field(default=504, ge=1)
    """Sessions of history that the shield looks at."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the agents, each of which is there once per seed."""
    bootstrap: Bootstrap | None = Bootstrap()
    """How intervals are drawn; None = no intervals."""

    _check_seeds = field_validator("seeds")(check_seeds)

    @field_validator("cash", mode="before")
    @classmethod
    def _a_rate(cls, value: Any) -> Any:
        return checked_cash(value)

    @model_validator(mode="after")
    def _consistent(self) -> BacktestSettings:
        for name in self.strategies:
            if name not in STRATEGIES:
                raise SettingsError(
                    f"strategies: there is no {name!r}{did_you_mean(name, STRATEGIES)}; "
                    f"there are {', '.join(STRATEGIES)}."
                )
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
        if self.shield and self.shield_lookback < least:
            raise SettingsError(
                f"shield_lookback: {self.limit.horizon}-session windows and a tail of {self.limit.alpha:g} need at "
                f"least {least} sessions (got {self.shield_lookback}): lengthen it, take a larger alpha or leave the "
                "shield out."
            )
        return self

    @property
    def fee(self) -> float:
        """The fee as a share of what is traded."""
        return self.fee_bps / 10_000


@dataclass(frozen=True, eq=False)
class Result:
    """Where a backtest was written, and what."""

    folder: Path
    record: Record

    @property
    def report(self) -> Path:
        """The HTML page."""
        from portfolio_sdpo.backtest.record import REPORT

        return self.folder / REPORT


@dataclass(frozen=True, eq=False)
class _Part:
    """A strategy that is to be walked."""

    strategy: Strategy
    seed: int | None = None
    """None for a benchmark."""
    title: str = ""
    """What progress calls it."""
    run: str | None = None
    """Under which its walk is saved; None where there is nothing to continue."""


def run_backtest(
    settings: BacktestSettings,
    folder: Path | None = None,
    progress: Progress | None = None,
    agents: Sequence[Strategy] = (),
    *,
    jobs: int = 1,
    restart: bool = False,
) -> Result:
    """Walk every strategy, measure, and write a folder as a whole: by default `backtests/<id>` in the data directory.

    `agents` are those that the settings declare, one object per label and seed. With `jobs` > 1 strategies are walked
    in that many processes, agents have to be picklable, and `progress` is called from another thread. What was saved of
    the same walks is continued, unless `restart` forgets it first.
    """
    from portfolio_sdpo.backtest import record as records
    from portfolio_sdpo.report.backtest_report import render

    # What can be known to be wrong is said before the work, which may take hours.
    _check_extras(settings)
    if jobs < 1:
        raise SettingsError(f"jobs: must be at least 1 (got {jobs}).")
    records.FOLDERS.check_free(folder or records.FOLDERS.new_folder("new"))
    declared = settings.model_dump(mode="json")
    benchmarks = [_benchmark(name, settings) for name in settings.strategies]
    given = _given(settings, agents)
    market, days, data = load_market(settings.snapshot, settings.cash, settings.start, settings.end)
    parts = [
        *(replace(part, run=_run_of(part.strategy, settings, days, data)) for part in given),
        *(_Part(each, title=each.name) for each in benchmarks),
    ]
    if restart:
        _forget(parts)

    try:
        walks = [walk for walks in _walked(market, parts, settings, days, progress, jobs) for walk in walks]
    except KeyboardInterrupt:
        raise Interruption(_saved(parts)) from None
    metrics = measure(walks, settings)
    config = {
        "package_version": __version__,
        "settings": declared,
        "strategies": {each.name: each.model_dump(mode="json") for each in benchmarks if isinstance(each, Settings)},
        "data": data,
    }
    created = datetime.now(UTC).replace(microsecond=0)
    name = make_id(created, [config, metrics])
    record = make_record({"id": name, "created_at": created.isoformat(), **config}, metrics, walks, settings.fee)
    folder = folder or records.FOLDERS.new_folder(name)
    records.write_record(record, render(record), folder)
    _forget(parts)
    return Result(folder, record)


def walk_ahead(settings: BacktestSettings, agent: Agent, tell: Tell | None = None) -> Track:
    """Walk one of the settings' agents and keep its walk, so that `run_backtest` finds it done; `tell` hears of it.

    So the walks of one backtest can be made anywhere, in processes that may die, and the record of them all at the end.
    """
    market, days, data = load_market(settings.snapshot, settings.cash, settings.start, settings.end)
    part = _Part(agent, agent.seed, agent.name, _run_of(agent, settings, days, data))
    (walk, *_) = _walk(market, part, settings, days, tell)
    return walk.track


def measure(walks: Sequence[Walk], settings: BacktestSettings) -> list[dict[str, Any]]:
    """One record per strategy and seed: `Statistics`, `Promise`, the shield's doing, weights at the end and notes.

    `against` is by how much an agent grew faster a year than each of the `RIVALS`, with an interval.
    `final_weights` are what the last close finds, `next` what is to be held from it on.
    Sharpe ratios are deflated by those of all tracks of the backtest.
    """
    limit = settings.limit
    trials = [float(measures.sharpe(walk.track.returns - walk.track.cash_returns)) for walk in walks]
    rivals = {walk.track.name: walk.track for walk in walks if walk.track.name in RIVALS and walk.kind == "benchmark"}
    records = []
    for walk in walks:
        track = walk.track
        figures = summarise(
            track, alpha=limit.alpha, horizon=limit.horizon, trials=trials, bootstrap=settings.bootstrap
        ).to_json()
        records.append(
            {
                "strategy": figures.pop("name"),
                "seed": walk.seed,
                "kind": walk.kind,
                **figures,
                "promise": check_promise(track.returns, limit, settings.bootstrap).to_json(),
                "cvar_by_year": cvar_by_year(track.returns, track.dates[1:], limit),
                "shield": _shielding(walk),
                "against": {
                    name: growth_difference(track.returns, rival.returns, settings.bootstrap)
                    for name, rival in rivals.items()
                    if walk.kind != "benchmark"
                },
                "final_weights": named_weights(track.assets, track.held[-1]),
                "next": {"as_of": str(track.dates[-1]), "weights": named_weights(track.assets, track.next_weights)},
                "notes": list(track.notes),
            }
        )
    return records


def make_record(config: dict[str, Any], metrics: list[dict[str, Any]], walks: Sequence[Walk], fee: float) -> Record:
    """The tables of the walks beside their figures."""
    from portfolio_sdpo.backtest import tables
    from portfolio_sdpo.backtest.record import Record

    return Record(
        config=config,
        metrics=metrics,
        equity=tables.equity_table(walks),
        weights=tables.weights_table(walks),
        trades=tables.trades_table(walks, fee),
        trace=tables.trace_table(walks),
        shield=tables.shield_table(walks),
    )


def _given(settings: BacktestSettings, agents: Sequence[Strategy]) -> list[_Part]:
    """The agents, exactly one per declared label and seed, in that order."""
    found = {(agent.name, int(getattr(agent, "seed", settings.seeds[0]))): agent for agent in agents}
    wanted = [(agent.label, seed) for agent in settings.agents for seed in settings.seeds]
    if len(found) < len(agents) or set(found) != set(wanted):
        spelled = ", ".join(f"{label} with seed {seed}" for label, seed in wanted) or "none"
        raise SettingsError(
            f"agents: the settings declare {spelled}; give exactly these, each once (got {len(agents)} of them)."
        )
    several = len(settings.seeds) > 1
    return [_Part(found[label, seed], seed, f"{label}, seed {seed}" if several else label) for label, seed in wanted]


def _run_of(
    strategy: Strategy, settings: BacktestSettings, days: tuple[date, date], data: dict[str, Any]
) -> str | None:
    """What an agent's walk is saved under: all that its decisions depend on. None for what cannot be continued."""
    if not hasattr(strategy, "restore"):
        return None
    from portfolio_sdpo.backtest.resume import run_of

    surroundings = {
        "days": days,
        "prices": data["sha256"],
        "cash": data.get("cash_sha256", settings.cash),
        "fee_bps": settings.fee_bps,
        "limits": settings.limits.model_dump(mode="json"),
    }
    return run_of(cast("Agent", strategy), surroundings)


def _forget(parts: Sequence[_Part]) -> None:
    """Drop what was saved of the walks."""
    for part in parts:
        if part.run is not None:
            from portfolio_sdpo.backtest.resume import discard

            discard(part.run)


def _saved(parts: Sequence[_Part]) -> str:
    """What is there to go on with after an interrupt."""
    from portfolio_sdpo.backtest.resume import saved_decisions

    found = [number for part in parts if part.run is not None if (number := saved_decisions(part.run))]
    if not found:
        return "no decision of an agent was made yet, so nothing is saved"
    made = f"{sum(found)} decision{'s' * (sum(found) != 1)}"
    return f"{made} of {len(found)} agent{'s' * (len(found) != 1)} {'is' if sum(found) == 1 else 'are'} saved"


def _benchmark(name: str, settings: BacktestSettings) -> Strategy:
    """A benchmark with what the backtest's limit says about it."""
    match name:
        case "maximum-return":
            return make_strategy(name, limit=settings.limit)
        case "minimum-cvar":
            return make_strategy(name, alpha=settings.limit.alpha)
    return make_strategy(name)


def _walked(
    market: Market,
    parts: Sequence[_Part],
    settings: BacktestSettings,
    days: tuple[date, date],
    progress: Progress | None,
    jobs: int,
) -> Iterator[list[Walk]]:
    """The walks of each part, in order."""
    if jobs == 1:
        for part in parts:
            tell = partial(progress, part.title) if progress is not None else None
            yield _walk(market, part, settings, days, tell)
        return
    from joblib import Parallel, delayed

    with ExitStack() as stack:
        meters: dict[str, Meter] = {}
        if progress is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            meters = {part.title: Meter(folder / str(number)) for number, part in enumerate(parts)}
            stack.enter_context(follow_meters(meters, progress))
        yield from Parallel(n_jobs=jobs, return_as="generator")(
            delayed(_walk)(market, part, settings, days, meters.get(part.title)) for part in parts
        )


def _walk(
    market: Market, part: _Part, settings: BacktestSettings, days: tuple[date, date], tell: Tell | None = None
) -> list[Walk]:
    """A strategy through the market, and if it is an agent and the shield is on, its decisions once more, shielded."""
    from portfolio_sdpo.backtest.tables import Walk

    common: dict[str, Any] = {"start": days[0], "end": days[1], "fee": settings.fee, "limits": settings.limits}
    recorded, track = _recorded(market, part, days, common, tell)
    benchmark = part.seed is None
    trace = _of_track(track, getattr(part.strategy, "trace", ()))
    walks = [Walk(track, "benchmark" if benchmark else "agent", part.seed, trace=trace)]
    if settings.shield and (not benchmark or part.strategy.name in SHIELDED_BENCHMARKS):
        shielded = ShieldedStrategy(Replayed(recorded), settings.limit, lookback=settings.shield_lookback)
        track = simulate(market, shielded, **common)
        kind: Kind = "benchmark" if benchmark else "shielded"
        walks.append(Walk(track, kind, part.seed, shield=_of_track(track, shielded.days)))
    return walks


def _recorded(
    market: Market, part: _Part, days: tuple[date, date], common: dict[str, Any], tell: Tell | None
) -> tuple[Recorded, Track]:
    """The strategy's decisions and its track, continued where it was saved if it was."""
    strategy = part.strategy
    first, last = market.span(*days)
    # One more at the last close.
    decisions = -(-(last - first) // sessions_between(strategy)) + 1
    if part.run is None:
        recorded = Recorded(strategy)
        if tell is not None:
            report = tell  # bound before the closure, so that it is known not to be None
            report(0, decisions)
            recorded.decided = lambda number: report(number, decisions)
        return recorded, simulate(market, recorded, **common)
    from portfolio_sdpo.backtest.resume import Kept

    agent = cast("Agent", strategy)
    kept = Kept(agent, part.run)
    updates = agent.updates_for(decisions)
    if tell is not None:
        report = tell
        report(len(agent.trace), updates)
        agent.watch = lambda number: report(number, updates)
    try:
        recorded = Recorded(kept)
        track = simulate(market, recorded, **common)
        kept.close()
        if tell is not None and len(agent.trace) < updates:
            # It waited in cash, or the last close has no stock to decide on.
            tell(updates, updates)
    finally:
        agent.watch = None
        kept.release()
    return recorded, track


def _of_track(track: Track, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of decisions that the track shows; the one at its last close is yet to be held."""
    return [row for row in rows if np.datetime64(row["date"], "D") < track.dates[-1]]


def _shielding(walk: Walk) -> dict[str, Any] | None:
    """What the shield did over a walk."""
    if not walk.shield:
        return None
    kappas = np.array([day["kappa"] for day in walk.shield])
    decided = np.array([bool(day["decided"]) for day in walk.shield])
    return json_ready(
        {
            "looks": len(kappas),
            "decisions": int(decided.sum()),
            "scaled": int((kappas < 1.0).sum()),
            "removed": sum(bool(day["removed"]) for day in walk.shield),
            # Between decisions κ is a share of what the shield has left already.
            "mean_kappa": float(kappas[decided].mean()) if decided.any() else None,
            "lowest_kappa": float(kappas.min()),
            "unmet": sum(not day["meets"] for day in walk.shield),
        }
    )


def _check_extras(settings: BacktestSettings) -> None:
    for package in ("plotly", *(["arch"] if settings.bootstrap else [])):
        require_extra("A backtest", package, "backtest")
