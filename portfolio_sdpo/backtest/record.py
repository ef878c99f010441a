"""A backtest as data: its tables and figures in memory, and the folder that keeps them.

config.json       settings, resolved strategies, data with its hash, package version
metrics.json      one record per strategy and seed
equity.parquet    wealth, returns, drawdown, costs
weights.parquet   weights of CASH and every ticker
trades.parquet    every stock bought or sold
trace.parquet     the agents' training, update by update  (only where agents were trained)
shield.parquet    what the shield did                     (only where it was on)
report.html       the page to look at

A folder is there as a whole or not at all, and is never written to again. Every table has one row per strategy, seed
and date, and the row of a date holds what is known at its close: nothing in it depends on a later price.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.simulate import Track
from portfolio_sdpo.common.files import CONFIG, FolderStore, to_json, to_parquet
from portfolio_sdpo.errors import BacktestError
from portfolio_sdpo.portfolio.agent_titles import make_agent_title
from portfolio_sdpo.portfolio.return_measures import drawdowns
from portfolio_sdpo.prices.prices import DATE_UNIT

TrackKind = Literal["agent", "shielded", "benchmark"]
KEYS = ("strategy", "seed", "date")
TRACE_COLUMNS = ("iteration", "objective", "risk", "bound", "slack", "regime")
"""Of an agent's training, beside the date: `slack` is positive inside the bound."""
EVIDENCE_COLUMNS = ("deviation", "growth", "error", "years")
"""Of a shared policy besides: how far each decision deviates from equal weights, and on what evidence."""
MAIN_BENCHMARKS = ("maximum-return", "equal-weight", "minimum-cvar", "minimum-variance", "risk-parity", "cash")
"""Those that a reader wants to see first."""

FOLDERS = FolderStore("backtest", "backtest", "backtests")
REPORT = "report.html"
METRICS = "metrics.json"
TABLES = ("equity", "weights", "trades")
OPTIONAL_TABLES = ("trace", "shield")


@dataclass(frozen=True, eq=False)
class StrategyRun:
    """One strategy, with one seed, simulated through the market."""

    track: Track
    kind: TrackKind
    seed: int | None = None
    """None for what has no randomness."""
    trace: Sequence[dict[str, Any]] = ()
    """Rows with `date` and the columns TRACE_COLUMNS, of a shared policy EVIDENCE_COLUMNS besides."""
    shield: Sequence[dict[str, Any]] = ()
    """Rows of `shielded.ShieldedStrategy.days`."""
    benchmark: str = ""
    """See `Entry.benchmark`."""

    @property
    def known_as(self) -> str:
        """The name by which rivals and references are found, whatever tables call them."""
        return self.benchmark or self.track.name


@dataclass(frozen=True, eq=False)
class Record:
    """Everything that is known of a backtest."""

    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    """One record per strategy and seed: statistics, promise, notes; None for what is not defined."""
    equity: pd.DataFrame
    weights: pd.DataFrame
    trades: pd.DataFrame
    trace: pd.DataFrame | None = None
    shield: pd.DataFrame | None = None
    superiority: dict[str, Any] | None = None
    """`Superiority` of all tracks; None where nothing was tested, and in older records."""


@dataclass(frozen=True)
class StrategyGroup:
    """All records of `metrics.json` with one name: one line in a table, one curve in a figure."""

    name: str
    kind: str
    records: tuple[dict[str, Any], ...]
    """One per seed."""
    label: str | None = None
    """How readers see the name; None: as it is."""

    @property
    def title(self) -> str:
        """What tables and figures call it: of an agent, the algorithm with its estimator, "SDPO (analytic)"."""
        return self.label or self.name

    @property
    def median(self) -> dict[str, Any]:
        """The seed in the middle by final wealth (the lower of two): a real track, so its figures belong together."""
        ordered = sorted(self.records, key=lambda record: (record["final_wealth"], record["seed"] or 0))
        return ordered[(len(ordered) - 1) // 2]

    @property
    def key(self) -> tuple[str, int | None]:
        """Strategy and seed of the median record."""
        return self.name, self.median["seed"]

    def range(self, figure: str) -> tuple[float, float] | None:
        """Lowest and highest of a figure over the seeds; None for a single one, or where one is not defined."""
        values = [record[figure] for record in self.records]
        if len(values) < 2 or None in values:
            return None
        return min(values), max(values)


def group_by_strategy(
    metrics: Sequence[dict[str, Any]], config: Mapping[str, Any] | None = None
) -> list[StrategyGroup]:
    """Records by name: agents, each followed by its shielded self, then benchmarks, in the order they were run.

    config: of the same backtest; with it, agents are titled by their algorithm and estimator.
    """
    named: dict[str, list[dict[str, Any]]] = {}
    for record in metrics:
        named.setdefault(record["strategy"], []).append(record)
    titles = make_titles(config) if config else {}
    groups = [
        StrategyGroup(name, records[0]["kind"], tuple(records), titles.get(name)) for name, records in named.items()
    ]
    return sorted(groups, key=lambda group: group.kind == "benchmark")


def make_titles(config: Mapping[str, Any]) -> dict[str, str]:
    """How readers see the names of a backtest's agents and of their shielded selves.

    >>> learner = {"kind": "analytic"}
    >>> make_titles({"settings": {"agents": [{"label": "sdpo", "settings": {"learner": learner}}]}})
    {'sdpo': 'SDPO (analytic)', 'sdpo + shield': 'SDPO (analytic) + shield'}
    """
    titles: dict[str, str] = {}
    for agent in config.get("settings", {}).get("agents", ()):
        title = make_agent_title(agent["label"], agent["settings"])
        titles |= {agent["label"]: title, f"{agent['label']} + shield": f"{title} + shield"}
    return titles


def select_main(groups: Sequence[StrategyGroup]) -> StrategyGroup:
    """What the reader is told of first: the first agent, shielded if it is, else the strongest benchmark."""
    by_name = {group.name: group for group in groups}
    first = groups[0]
    if first.kind != "benchmark":
        return by_name.get(f"{first.name} + shield", first)
    return next((by_name[name] for name in MAIN_BENCHMARKS if name in by_name), first)


def select_rival(groups: Sequence[StrategyGroup], main: StrategyGroup) -> StrategyGroup | None:
    """What the main one is compared with in a sentence: 1/N, or else the first other benchmark."""
    others = [group for group in groups if group.kind == "benchmark" and group.name != main.name]
    return next((group for group in others if group.name == "equal-weight"), others[0] if others else None)


def make_record(
    config: dict[str, Any],
    metrics: list[dict[str, Any]],
    runs: Sequence[StrategyRun],
    fee: float,
    superiority: dict[str, Any] | None = None,
) -> Record:
    """The tables of the runs beside their figures."""
    return Record(
        config=config,
        metrics=metrics,
        equity=make_equity_table(runs),
        weights=make_weights_table(runs),
        trades=make_trades_table(runs, fee),
        trace=make_trace_table(runs),
        shield=make_shield_table(runs),
        superiority=superiority,
    )


def home() -> Path:
    """Where backtests are kept unless told otherwise."""
    return FOLDERS.home()


def write_record(record: Record, report: str, folder: Path) -> None:
    """Write the record and its report; a failure leaves no folder."""
    contents = {
        CONFIG: to_json(record.config),
        METRICS: to_json({"records": record.metrics, "superiority": record.superiority}),
        REPORT: report.encode(),
    }
    for name in (*TABLES, *OPTIONAL_TABLES):
        table = getattr(record, name)
        if table is not None:
            contents[f"{name}.parquet"] = to_parquet(table)
    FOLDERS.write(folder, contents)


def read_record(folder: Path) -> Record:
    """Everything in the folder of a backtest."""
    config = read_config(folder)
    optional = [name for name in OPTIONAL_TABLES if (folder / f"{name}.parquet").exists()]
    tables: dict[str, Any] = {name: read_table(folder, name) for name in (*TABLES, *optional)}
    return Record(
        config=config,
        metrics=read_metrics(folder),
        superiority=FOLDERS.read_json(folder, METRICS).get("superiority"),
        **tables,
    )


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json`: settings, resolved strategies, data, package version."""
    config: dict[str, Any] = FOLDERS.read_json(folder, CONFIG)
    if isinstance(config.get("settings"), dict):
        # Before there was a choice.
        config["settings"].setdefault("execution", "same-close")
        config["settings"].setdefault("shield_form", "filtered")
    return config


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """`metrics.json`: one record per strategy and seed."""
    records: list[dict[str, Any]] = FOLDERS.read_json(folder, METRICS)["records"]
    return records


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """One of the tables: `equity`, `weights`, `trades`, and if there are any `trace` and `shield`."""
    content = FOLDERS.read(folder, f"{name}.parquet")
    try:
        return pd.read_parquet(io.BytesIO(content))
    except Exception as error:
        raise FOLDERS.make_damage_error(folder, f"{name}.parquet", error) from None


def list_records(root: Path | None = None) -> tuple[Path, ...]:
    """The folders of all backtests below `root` (by default `home`), the newest first as far as names tell."""
    return FOLDERS.list(root)


def make_equity_table(runs: Sequence[StrategyRun]) -> pd.DataFrame:
    """Wealth; the return since the session before and what cash earned in it; drawdown; cost and turnover of the trade.

    On the first date there is no return yet, on the last no trade any more.
    """
    frames = []
    for run in runs:
        track = run.track
        columns = {
            "wealth": track.wealth,
            "return": np.concatenate([[np.nan], track.returns]),
            "cash_return": np.concatenate([[np.nan], track.cash_returns]),
            "drawdown": drawdowns(track.returns),
            "cost": np.concatenate([track.costs, [0.0]]),
            "turnover": np.concatenate([track.turnover, [0.0]]),
        }
        frames.append(_keyed(run, track.dates, columns))
    return pd.concat(frames, ignore_index=True)


def make_weights_table(runs: Sequence[StrategyRun]) -> pd.DataFrame:
    """Weights of CASH and every ticker after the trade of the date; on the last date, without one, the drifted ones."""
    frames = []
    for run in runs:
        track = run.track
        taken = set(KEYS) & set(track.assets)
        if taken:
            raise BacktestError(f"A ticker cannot be called {min(taken)} in a backtest; rename that column.")
        weights = np.concatenate([track.weights, track.held[-1:]])
        frames.append(_keyed(run, track.dates, dict(zip(track.assets, weights.T, strict=True))))
    return pd.concat(frames, ignore_index=True)


def make_trades_table(runs: Sequence[StrategyRun], fee: float) -> pd.DataFrame:
    """Every stock bought or sold: the day of the decision, weight before and after, amount (a sale is negative), fee.

    `date` is the day of the trade; amount and fee are in units of wealth.
    """
    frames = []
    for run in runs:
        track = run.track
        wealth = track.wealth[:-1]
        left = wealth - track.costs
        amounts = left[:, None] * track.weights[:, 1:] - wealth[:, None] * track.held[:-1, 1:]
        # What differs by rounding alone was not traded.
        days, stocks = np.nonzero(np.abs(amounts) > 1e-12 * wealth[:, None])
        amount = amounts[days, stocks]
        columns = {
            "decided": pd.DatetimeIndex([track.decided_on[date] for date in track.dates[days]]).as_unit(DATE_UNIT),
            "ticker": np.array(track.assets[1:], dtype=object)[stocks],
            "weight_before": track.held[days, stocks + 1],
            "weight_after": track.weights[days, stocks + 1],
            "amount": amount,
            "cost": fee * np.abs(amount),
        }
        frames.append(_keyed(run, track.dates[days], columns))
    return pd.concat(frames, ignore_index=True).astype({"ticker": "str"})


def make_trace_table(runs: Sequence[StrategyRun]) -> pd.DataFrame | None:
    """The agents' training, one row per update, or None where no agent was trained."""
    frames = []
    for run in runs:
        if not run.trace:
            continue
        more = [name for name in EVIDENCE_COLUMNS if name in run.trace[0]]
        rows = pd.DataFrame(list(run.trace), columns=["date", *TRACE_COLUMNS, *more])
        try:
            dates = rows.pop("date").to_numpy().astype("datetime64[D]")
            numbers = rows.astype(dict.fromkeys([*TRACE_COLUMNS[:-1], *more], "float64"))
        except (TypeError, ValueError) as error:
            raise BacktestError(f"The training trace of {run.track.name} cannot be read ({error}).") from None
        frames.append(_keyed(run, dates, {name: numbers[name].to_numpy() for name in numbers}))
    return pd.concat(frames, ignore_index=True).astype({"regime": "str"}) if frames else None


def make_shield_table(runs: Sequence[StrategyRun]) -> pd.DataFrame | None:
    """What the shield did at every decision, or None without a shield."""
    frames = []
    for run in runs:
        if run.shield:
            rows = pd.DataFrame(list(run.shield))
            dates = rows.pop("date").to_numpy().astype("datetime64[D]")
            frames.append(_keyed(run, dates, {str(name): rows[name].to_numpy() for name in rows}))
    return pd.concat(frames, ignore_index=True).astype({"removed": "str"}) if frames else None


def split_by_track(table: pd.DataFrame) -> dict[tuple[str, int | None], pd.DataFrame]:
    """The rows of each strategy and seed, in the order of the table."""
    groups = table.groupby(["strategy", "seed"], sort=False, dropna=False)
    return {(str(name), None if pd.isna(seed) else int(seed)): rows for (name, seed), rows in groups}


def _keyed(run: StrategyRun, dates: Any, columns: dict[str, Any]) -> pd.DataFrame:
    days = pd.DatetimeIndex(dates).as_unit(DATE_UNIT)
    seeds = pd.array([run.seed] * len(days), dtype="Int64")
    keys = {"strategy": pd.array([run.track.name] * len(days), dtype="str"), "seed": seeds, "date": days}
    return pd.DataFrame({**keys, **columns})
