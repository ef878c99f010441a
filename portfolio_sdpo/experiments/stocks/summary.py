"""What the stocks experiment has shown, in figures: per track, per label over its seeds, and the paper's claims.

Intervals are Student's at 95 % over seeds. All seeds trade through the same year, so an interval says how far the luck
of training reaches and nothing about other years. How much is the luck of the day on which agents start is told by
those that start on other days, where there are any, each start date a stratum: pairs of agents are compared on the
start dates that both have, and what is said of one agent beside others is of those that all agents have. A track
breaks its bound if the CVaR of its realised returns over windows of the limit's horizon, at the label's own α, lies
below it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.record import split_by_track
from portfolio_sdpo.common.files import json_ready
from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.engine.folders import experiment_folder, write_json
from portfolio_sdpo.experiments.paper.claims import QUESTION_D
from portfolio_sdpo.experiments.paper.verdicts import Judgement, judge
from portfolio_sdpo.experiments.statistics.evidence import SCORE, Evidence, RunEvidence, SeedStatistics
from portfolio_sdpo.experiments.stocks.attribution import Attribution, average_follows
from portfolio_sdpo.experiments.stocks.declared import BENCHMARKS, StocksExperiment, other_starts
from portfolio_sdpo.experiments.stocks.records import BacktestFolder, Tables, read_tables, select_backtests
from portfolio_sdpo.experiments.tables import MeanInterval
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, max_drawdown, window_returns
from portfolio_sdpo.portfolio.shield import CvarLimit

EQUAL_WEIGHT = "equal-weight"
BASELINE = "ppo"


@dataclass(frozen=True)
class TrackSummary:
    """One strategy with one seed."""

    strategy: str
    seed: int | None
    final_wealth: float
    max_drawdown: float
    """≤ 0"""
    realised_cvar: float | None
    """of windows of returns; None if the track is shorter than one"""
    broken: bool | None
    """whether that lies below the bound"""
    cash: float
    """mean weight"""
    turnover: float
    """a year"""
    training_cvar: float | None = None
    """mean of the learner's own estimate over all updates, in log growth; None for benchmarks"""
    training_breaks: float | None = None
    """share of updates in which that estimate lies below the bound"""
    training_worst: float | None = None
    """the lowest estimate"""
    attribution: Attribution | None = None
    """of an agent, where 1/N is there to measure it by"""


@dataclass(frozen=True)
class StrategySummary:
    """A label over its seeds, or a benchmark."""

    kind: Literal["agent", "benchmark"]
    seeds: tuple[int, ...]
    limit: CvarLimit
    updates: int | None
    """a day; None for a benchmark"""
    final_wealth: MeanInterval | None
    max_drawdown: MeanInterval | None
    realised_cvar: MeanInterval | None
    broken: float | None
    """share of seeds that break the bound"""
    cash: MeanInterval | None
    turnover: MeanInterval | None
    training_cvar: MeanInterval | None
    training_breaks: MeanInterval | None
    training_worst: float | None
    to_ppo: MeanInterval | None
    """final wealth less that of PPO with the same seed"""
    to_equal_weight: MeanInterval | None
    """final wealth less that of 1/N"""
    exposure: MeanInterval | None = None
    """log growth by holding its mean share of 1/N, by timing, and by choice of stocks, see `attribution`"""
    timing: MeanInterval | None = None
    choice: MeanInterval | None = None
    follows: tuple[float | None, ...] = ()
    """correlation of the invested share with the market's last window, and with earlier ones"""


@dataclass(frozen=True)
class StocksSummary:
    """The experiment's results, as far as they are there."""

    experiment: str
    title: str
    first: str
    last: str
    labels: dict[str, StrategySummary]
    claims: tuple[Judgement, ...]
    """the paper's, and what these tracks say about them"""
    walks: tuple[TrackSummary, ...]
    statistics: SeedStatistics | None = None
    starts: dict[str, dict[str, MeanInterval]] = field(default_factory=dict)
    """by day of the first decision, final wealth of each agent's seeds; of all start dates that there are"""
    over_starts: dict[str, MeanInterval] = field(default_factory=dict)
    """final wealth of each agent that has all start dates over them, of their means over seeds"""
    outdated: tuple[str, ...] = ()
    """labels made with other settings than the experiment declares now"""
    versions: tuple[str, ...] = ()
    """of the package and the prices that they were made with"""

    def to_json(self) -> dict[str, Any]:
        """Limits as tables, what is not defined as None."""
        plain = asdict(self)
        for label, summary in self.labels.items():
            plain["labels"][label]["limit"] = summary.limit.model_dump(mode="json")
        return json_ready(plain)


def summarise_stocks(
    experiment: StocksExperiment,
    root: Path | None = None,
    labels: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
    *,
    out: Path | None = None,
) -> StocksSummary:
    """What the experiment's folder holds, or of it only these labels and seeds, also written to a `summary.json`.

    out: where that is written, by default to the experiment's folder.
    """
    root = root or experiment_folder(experiment.name)
    found = select_backtests(experiment, root, labels, seeds)
    tables = read_tables(found, seeds)
    limits, updates = _limits(found)
    tracks = summarise_tracks(tables, limits)
    evidence = join_starts(experiment, root, build_evidence(tracks, tables, limits), labels, seeds)
    starts = {
        start: {label: interval for label in evidence.labels() if (interval := _wealth_from(start, label, evidence))}
        for start in sorted({run.stratum for run in evidence.runs})
    }
    days = tables.equity["date"]
    summary = StocksSummary(
        experiment=experiment.name,
        title=experiment.title,
        first=str(days.min().date()),
        last=str(days.max().date()),
        labels=summarise_strategies(tracks, limits, updates),
        claims=tuple(judge(claim, evidence) for claim in QUESTION_D.claims),
        walks=tuple(tracks),
        statistics=SeedStatistics.of(evidence),
        starts=starts,
        over_starts=_average_starts(starts),
        outdated=tuple(dict.fromkeys(each.label for each in found if not each.matches(experiment))),
        versions=tuple(
            sorted({f"{each.config['package_version']}, prices {each.config['data']['sha256'][:12]}" for each in found})
        ),
    )
    write_json((out or root) / "summary.json", summary.to_json())
    return summary


def summarise_tracks(tables: Tables, limits: dict[str, CvarLimit]) -> list[TrackSummary]:
    """Each strategy and seed of the tables, measured by its own limit."""
    weights, traces = split_by_track(tables.weights), split_by_track(tables.trace)
    equities = split_by_track(tables.equity)
    market = _grow(equities[EQUAL_WEIGHT, None]) if (EQUAL_WEIGHT, None) in equities else None
    return [
        _summarise_track(name, seed, equity, weights[name, seed], traces.get((name, seed)), limits[name], market)
        for (name, seed), equity in equities.items()
    ]


def summarise_strategies(
    tracks: Sequence[TrackSummary], limits: dict[str, CvarLimit], updates: dict[str, int]
) -> dict[str, StrategySummary]:
    """The tracks of each label together; agents first."""
    names = dict.fromkeys(track.strategy for track in sorted(tracks, key=lambda track: track.seed is None))
    return {name: _summarise_strategy(name, tracks, limits[name], updates.get(name)) for name in names}


def collect_stocks_evidence(
    experiment: StocksExperiment,
    root: Path | None = None,
    labels: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
) -> Evidence:
    """What the agents' tracks show, from every start date that there is."""
    root = root or experiment_folder(experiment.name)
    found = select_backtests(experiment, root, labels, seeds)
    tables, (limits, _) = read_tables(found, seeds), _limits(found)
    evidence = build_evidence(summarise_tracks(tables, limits), tables, limits)
    return join_starts(experiment, root, evidence, labels, seeds)


def join_starts(
    experiment: StocksExperiment,
    root: Path,
    evidence: Evidence,
    labels: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
) -> Evidence:
    """The evidence with that of the other start dates, as far as their folders beside this one hold the same agents."""
    runs = list(evidence.runs)
    for other in other_starts(experiment):
        try:
            found = select_backtests(other, root.parent / other.name, labels, seeds)
        except RunError:
            continue
        own = [each for each in found if each.label in evidence.labels() and each.matches(other)]
        if not own:
            continue
        tables, (limits, _) = read_tables(own, seeds), _limits(own)
        runs += build_evidence(summarise_tracks(tables, limits), tables, limits).runs
    return replace(evidence, runs=tuple(runs))


def _wealth_from(start: str, label: str, evidence: Evidence) -> MeanInterval | None:
    """Final wealth of an agent's seeds from that start date; None if there are none."""
    found = evidence.scores(label).get(start)
    return MeanInterval.of(found) if found else None


def _average_starts(starts: dict[str, dict[str, MeanInterval]]) -> dict[str, MeanInterval]:
    """Final wealth over start dates of each agent that has all of them, where there are two."""
    found: dict[str, MeanInterval] = {}
    for label in dict.fromkeys(label for agents in starts.values() for label in agents):
        means = [agents[label].mean for agents in starts.values() if label in agents]
        interval = MeanInterval.of(means)
        if interval is not None and len(means) == len(starts) > 1:
            found[label] = interval
    return found


def build_evidence(tracks: Sequence[TrackSummary], tables: Tables, limits: dict[str, CvarLimit]) -> Evidence:
    """The same for tracks that are summarised already."""
    traces = split_by_track(tables.trace)
    start = str(tables.equity["date"].min().date())
    runs = []
    for track in tracks:
        if track.seed is None:
            continue
        figures = {SCORE: track.final_wealth, "drawdown": track.max_drawdown}
        if track.realised_cvar is not None:
            figures["realised"] = track.realised_cvar - limits[track.strategy].bound
        trace = traces.get((track.strategy, track.seed))
        excess = np.zeros(0)
        if trace is not None:
            excess = np.maximum(trace["bound"].to_numpy(dtype=np.float64) - trace["risk"].to_numpy(np.float64), 0.0)
        runs.append(RunEvidence(track.strategy, start, track.seed, figures, (excess,)))
    return Evidence(
        figures={
            SCORE: "final wealth",
            "drawdown": "deepest fall from a peak, less deep is more",
            "realised": "CVaR of the year's returns less the bound",
        },
        constraints=("CVaR estimated in training >= bound",),
        stratum="start date",
        runs=tuple(runs),
        aligned=True,
    )


def _summarise_track(
    name: str,
    seed: int | None,
    equity: pd.DataFrame,
    weights: pd.DataFrame,
    trace: pd.DataFrame | None,
    limit: CvarLimit,
    market: Array | None,
) -> TrackSummary:
    returns = equity["return"].to_numpy(dtype=np.float64)[1:]
    windows = window_returns(returns, limit.horizon)
    realised = float(conditional_value_at_risk(windows, limit.alpha)) if len(windows) else None
    training: dict[str, float] = {}
    if trace is not None:
        risk = trace["risk"].to_numpy(dtype=np.float64)
        training = {
            "training_cvar": float(risk.mean()),
            "training_breaks": float((risk < trace["bound"].to_numpy(dtype=np.float64)).mean()),
            "training_worst": float(risk.min()),
        }
    # On the last date nothing is decided any more.
    cash = weights["CASH"].to_numpy(dtype=np.float64)[:-1]
    parts = None
    if market is not None and seed is not None and len(market) == len(cash):
        parts = Attribution.of(1.0 - cash, _grow(equity), market, limit.horizon)
    return TrackSummary(
        strategy=name,
        seed=seed,
        final_wealth=float(equity["wealth"].iloc[-1]),
        max_drawdown=float(max_drawdown(returns)),
        realised_cvar=realised,
        broken=None if realised is None else realised < limit.bound,
        cash=float(cash.mean()),
        turnover=float(equity["turnover"].iloc[:-1].mean()) * SESSIONS_PER_YEAR,
        attribution=parts,
        **training,
    )


def _grow(equity: pd.DataFrame) -> Array:
    """[T] log growth from each day to the next."""
    growth: Array = np.log1p(equity["return"].to_numpy(dtype=np.float64)[1:])
    return growth


def _summarise_strategy(
    name: str, tracks: Sequence[TrackSummary], limit: CvarLimit, updates: int | None
) -> StrategySummary:
    own = [track for track in tracks if track.strategy == name]
    agent = own[0].seed is not None
    broken = [track.broken for track in own if track.broken is not None]
    worst = [track.training_worst for track in own if track.training_worst is not None]
    one_n = next((track.final_wealth for track in tracks if track.strategy == EQUAL_WEIGHT), None)

    parts = [track.attribution for track in own if track.attribution is not None]

    def over(figure: str) -> MeanInterval | None:
        return _distance(tracks, name, figure)

    return StrategySummary(
        kind="agent" if agent else "benchmark",
        seeds=tuple(track.seed for track in own if track.seed is not None),
        limit=limit,
        updates=updates,
        final_wealth=over("final_wealth"),
        max_drawdown=over("max_drawdown"),
        realised_cvar=over("realised_cvar"),
        broken=sum(broken) / len(broken) if broken else None,
        cash=over("cash"),
        turnover=over("turnover"),
        training_cvar=over("training_cvar"),
        training_breaks=over("training_breaks"),
        training_worst=min(worst, default=None),
        to_ppo=_paired_distance(tracks, name, BASELINE) if agent and name != BASELINE else None,
        to_equal_weight=_distance(tracks, name, "final_wealth", one_n) if agent and one_n is not None else None,
        exposure=MeanInterval.of(each.exposure for each in parts),
        timing=MeanInterval.of(each.timing for each in parts),
        choice=MeanInterval.of(each.choice for each in parts),
        follows=average_follows(parts),
    )


def _distance(tracks: Sequence[TrackSummary], label: str, figure: str, level: float = 0.0) -> MeanInterval | None:
    """A figure of a label over its seeds, as distance from a level."""
    values = [getattr(track, figure) for track in tracks if track.strategy == label]
    return MeanInterval.of(None if value is None else value - level for value in values)


def _paired_distance(tracks: Sequence[TrackSummary], label: str, rival: str) -> MeanInterval | None:
    """Final wealth less that of the rival with the same seed, over the seeds that both have."""
    theirs = {track.seed: track.final_wealth for track in tracks if track.strategy == rival}
    own = [track for track in tracks if track.strategy == label and track.seed in theirs]
    return MeanInterval.of(track.final_wealth - theirs[track.seed] for track in own)


def _limits(found: Sequence[BacktestFolder]) -> tuple[dict[str, CvarLimit], dict[str, int]]:
    """What each strategy is measured by, and the updates a day of each agent."""
    limits: dict[str, CvarLimit] = {}
    updates: dict[str, int] = {}
    for each in found:
        settings = each.config["settings"]
        names = settings["strategies"] if each.label == BENCHMARKS else [each.label]
        limits |= dict.fromkeys(names, CvarLimit.model_validate(settings["limit"]))
        if each.label != BENCHMARKS:
            updates[each.label] = int(settings["agents"][0]["settings"]["further"])
    return limits, updates
