"""One backtest from settings to a folder: prices, every strategy through the same walk, figures, record, report.

    result = run_backtest(BacktestSettings(start="2019-01-02", end="2019-12-31", fee_bps=5))
    result.report       # the HTML page

Learning agents are made elsewhere and given in: anything that is a `Strategy`. What is looked at besides is optional:
`seed` (an int), `every`, and after the walk `trace`, rows about the training (see `tables.TRACE`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, field_validator, model_validator

from portfolio_sdpo import __version__
from portfolio_sdpo.backtest import measures
from portfolio_sdpo.backtest.coverage import check_promise, json_ready
from portfolio_sdpo.backtest.load import Cash, load_market
from portfolio_sdpo.backtest.resample import Bootstrap
from portfolio_sdpo.backtest.shield import CvarLimit
from portfolio_sdpo.backtest.shielding import Recorded, Replayed, ShieldedStrategy
from portfolio_sdpo.backtest.simulate import Strategy, simulate
from portfolio_sdpo.backtest.statistics import summarise
from portfolio_sdpo.backtest.strategies import STRATEGIES, make_strategy
from portfolio_sdpo.envs.portfolio.limits import Limits
from portfolio_sdpo.envs.portfolio.market import Market
from portfolio_sdpo.errors import MissingExtraError, SettingsError
from portfolio_sdpo.settings import Settings

if TYPE_CHECKING:
    from portfolio_sdpo.backtest.record import Record
    from portfolio_sdpo.backtest.tables import Walk

Progress = Callable[[str, int, int], None]
"""Called with a strategy's name, its decisions so far and their number."""


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
    """Show every agent a second time, with its decisions shielded."""
    shield_lookback: int = Field(default=504, ge=1)
    """Sessions of history that the shield looks at."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the agents, each of which is there once per seed."""
    bootstrap: Bootstrap | None = Bootstrap()
    """How intervals are drawn; None = no intervals."""

    @field_validator("cash", mode="before")
    @classmethod
    def _a_rate(cls, value: Any) -> Any:
        if value in ("zero", "tbill"):
            return value
        try:
            rate = float(value)
        except (TypeError, ValueError):
            rate = float("nan")
        if not -1.0 <= rate <= 1.0:
            raise ValueError("must be zero, tbill or a yearly rate in decimals such as 0.02")
        return rate

    @model_validator(mode="after")
    def _consistent(self) -> BacktestSettings:
        for name in self.strategies:
            if name not in STRATEGIES:
                raise SettingsError(f"strategies: there is no {name!r}; there are {', '.join(STRATEGIES)}.")
        labels = [agent.label for agent in self.agents]
        names = [*self.strategies, *labels, *(f"{label} + shield" for label in labels if self.shield)]
        if not names:
            raise SettingsError("strategies: name at least one strategy or agent.")
        if len(set(names)) < len(names):
            raise SettingsError(f"strategies: every strategy and agent needs its own name (got {', '.join(names)}).")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise SettingsError("seeds: must be different whole numbers, none of them negative, and at least one.")
        if self.start and self.end and self.start >= self.end:
            raise SettingsError(f"start: must be before end (got {self.start} and {self.end}).")
        if self.shield and self.shield_lookback < self.limit.horizon:
            raise SettingsError("shield_lookback: must reach over the limit's horizon.")
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


def run_backtest(
    settings: BacktestSettings,
    folder: Path | None = None,
    progress: Progress | None = None,
    agents: Sequence[Strategy] = (),
    *,
    jobs: int = 1,
) -> Result:
    """Walk every strategy, measure, and write a folder as a whole: by default `backtests/<id>` in the data directory.

    `agents` are those that the settings declare, one object per label and seed. With `jobs` > 1 strategies are walked
    in that many processes, agents have to be picklable, and `progress` hears of a strategy when it is through.
    """
    from portfolio_sdpo.backtest import record as records
    from portfolio_sdpo.backtest.report import render

    # What can be known to be wrong is said before the work, which may take hours.
    _check_extras(settings)
    if jobs < 1:
        raise SettingsError(f"jobs: must be at least 1 (got {jobs}).")
    records.check_free(folder or records.home() / "new")
    declared = settings.model_dump(mode="json")
    benchmarks = [_benchmark(name, settings) for name in settings.strategies]
    parts = [*_given(settings, agents), *map(_Part, benchmarks)]
    market, days, data = load_market(settings.snapshot, settings.cash, settings.start, settings.end)

    walks = [walk for walks in _walked(market, parts, settings, days, progress, jobs) for walk in walks]
    metrics = measure(walks, settings)
    config = {
        "package_version": __version__,
        "settings": declared,
        "strategies": {each.name: each.model_dump(mode="json") for each in benchmarks if isinstance(each, Settings)},
        "data": data,
    }
    created = datetime.now(UTC).replace(microsecond=0)
    name = records.make_id(created, config, metrics)
    record = make_record({"id": name, "created_at": created.isoformat(), **config}, metrics, walks, settings.fee)
    folder = folder or records.new_folder(name)
    records.write_record(record, render(record), folder)
    return Result(folder, record)


def measure(walks: Sequence[Walk], settings: BacktestSettings) -> list[dict[str, Any]]:
    """One record per strategy and seed: `Statistics`, `Promise`, the shield's doing, final weights and notes.

    Sharpe ratios are deflated by those of all tracks of the backtest.
    """
    limit = settings.limit
    trials = [float(measures.sharpe(walk.track.returns - walk.track.cash_returns)) for walk in walks]
    records = []
    for walk in walks:
        track = walk.track
        figures = summarise(
            track, alpha=limit.alpha, horizon=limit.horizon, trials=trials, bootstrap=settings.bootstrap
        ).to_json()
        held = zip(track.assets, track.held[-1], strict=True)
        records.append(
            {
                "strategy": figures.pop("name"),
                "seed": walk.seed,
                "kind": walk.kind,
                **figures,
                "promise": check_promise(track.returns, limit, settings.bootstrap).to_json(),
                "shield": _shielding(walk),
                "final_weights": {asset: float(weight) for asset, weight in held if weight > 0.0},
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
    return [_Part(found[key], key[1]) for key in wanted]


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
            yield _walk(market, part, settings, days, progress)
        return
    from joblib import Parallel, delayed

    done = Parallel(n_jobs=jobs, return_as="generator")(delayed(_walk)(market, part, settings, days) for part in parts)
    for part, walks in zip(parts, done, strict=True):
        if progress is not None:
            progress(part.strategy.name, 1, 1)
        yield walks


def _walk(
    market: Market,
    part: _Part,
    settings: BacktestSettings,
    days: tuple[date, date],
    progress: Progress | None = None,
) -> list[Walk]:
    """A strategy through the market, and if it is an agent and the shield is on, its decisions once more, shielded."""
    from portfolio_sdpo.backtest.tables import Walk

    strategy = part.strategy
    common: dict[str, Any] = {"start": days[0], "end": days[1], "fee": settings.fee, "limits": settings.limits}
    recorded = Recorded(strategy)
    first, last = market.span(*days)
    decisions = -(-(last - first) // recorded.every)
    if progress is not None:
        report = progress  # bound before the closure, so that it is known not to be None
        report(strategy.name, 0, decisions)
        recorded.decided = lambda number: report(strategy.name, number, decisions)
    track = simulate(market, recorded, **common)
    if part.seed is None:
        return [Walk(track, "benchmark")]
    walks = [Walk(track, "agent", part.seed, trace=list(getattr(strategy, "trace", ())))]
    if settings.shield:
        shielded = ShieldedStrategy(Replayed(recorded), settings.limit, lookback=settings.shield_lookback)
        walks.append(Walk(simulate(market, shielded, **common), "shielded", part.seed, shield=shielded.days))
    return walks


def _shielding(walk: Walk) -> dict[str, Any] | None:
    """What the shield did over a walk."""
    if walk.kind != "shielded":
        return None
    kappas = np.array([day["kappa"] for day in walk.shield])
    return json_ready(
        {
            "decisions": len(kappas),
            "scaled": int((kappas < 1.0).sum()),
            "mean_kappa": float(kappas.mean()),
            "lowest_kappa": float(kappas.min()),
            "unmet": sum(not day["meets"] for day in walk.shield),
        }
    )


def _check_extras(settings: BacktestSettings) -> None:
    for package in ("plotly", *(["arch"] if settings.bootstrap else [])):
        if find_spec(package) is None:
            raise MissingExtraError(f"A backtest needs the package {package}: pip install 'portfolio_sdpo[backtest]'.")
