"""The stocks experiment as a page for the terminal: outcomes, what they are compared with, and the paper's claims."""

from __future__ import annotations

from collections import Counter
from functools import partial

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.common.numbers import NBSP, Format, number, percent, span
from portfolio_sdpo.experiments.statistics.report import render_statistics
from portfolio_sdpo.experiments.stocks.attribution import LAGS
from portfolio_sdpo.experiments.stocks.declared import StocksExperiment
from portfolio_sdpo.experiments.stocks.summary import StocksSummary, StrategySummary
from portfolio_sdpo.experiments.tables import (
    NONE,
    MeanInterval,
    describe_experiment,
    describe_outdated,
    make_plain_table,
)

_VERDICTS = {"borne out": "green", "not borne out": "red"}
_wealth: Format = partial(number, digits=3)
_difference: Format = partial(number, digits=3, sign=True)
_growth: Format = partial(number, digits=2, sign=True)


def render_stocks(summary: StocksSummary) -> RenderableType:
    """Fits into 80 columns."""
    agents = {name: label for name, label in summary.labels.items() if label.kind == "agent"}
    return Group(
        Text(summary.title, style="bold"),
        Text(f"{summary.first} to {summary.last}", style="dim"),
        Text(""),
        _outcomes(summary),
        Text(""),
        _comparisons(agents),
        Text(""),
        *_start_dates(summary),
        *_parts(agents),
        Text("The paper's claims", style="bold"),
        *_claims(summary),
        *render_statistics(summary.statistics, form=".3f"),
        Text(""),
        Text(_note(summary), style="dim"),
        *_troubles(summary, agents),
    )


def describe_stocks(experiment: StocksExperiment) -> RenderableType:
    """Its question, algorithms and size."""
    others = [label for label in experiment.algorithms if label not in experiment.shown]
    names = ", ".join(experiment.shown) + (f" (and on demand {', '.join(others)})" if others else "")
    days = f"from {experiment.start} to {experiment.end}"
    size = f"{experiment.steps} optimiser steps a day {days}, {len(experiment.seeds)} seeds each"
    return Group(*describe_experiment(experiment.name, experiment.title, experiment.question, f"{names}; {size}"))


def _outcomes(summary: StocksSummary) -> Table:
    table = _table("strategy", "final wealth", "drawdown", "CVaR", "broken", "cash", "turn.")
    for name, label in summary.labels.items():
        agent = label.kind == "agent"
        heading = Text(name, style="bold" if agent else "")
        if agent:
            heading.append(f"\n{len(label.seeds)} seeds", style="not bold dim")
        table.add_row(
            heading,
            _interval(label.final_wealth, _wealth),
            _mean(label.max_drawdown, percent),
            _range(label.realised_cvar, partial(percent, digits=2)),
            _describe_broken(label),
            _mean(label.cash, partial(percent, digits=0)),
            _mean(label.turnover, partial(number, digits=1)),
            style="" if agent else "dim",
        )
    return table


def _comparisons(agents: dict[str, StrategySummary]) -> Table:
    table = _table("agent", "wealth − PPO", "wealth − 1/N", "training CVaR", "beyond")
    for name, label in agents.items():
        table.add_row(
            Text(name, style="bold"),
            _interval(label.to_ppo, _difference, spread=False),
            _interval(label.to_equal_weight, _difference, spread=False),
            _range(label.training_cvar, partial(percent, digits=3)),
            _mean(label.training_breaks, percent),
        )
    return table


def _parts(agents: dict[str, StrategySummary]) -> list[RenderableType]:
    """Where the growth comes from; nothing where there is no 1/N to measure it by."""
    if all(label.timing is None for label in agents.values()):
        return []
    table = _table("log growth by", "exposure", "timing", "choice", *(f"{lag} ago" if lag else "now" for lag in LAGS))
    for name, label in agents.items():
        growth: list[str | Text] = [_mean(label.exposure, _growth)]
        growth += [_interval(each, _growth, spread=False) for each in (label.timing, label.choice)]
        follows = (NONE if each is None else _growth(each) for each in label.follows or (None,) * len(LAGS))
        table.add_row(Text(name, style="bold"), *growth, *follows)
    return [table, Text("")]


def _start_dates(summary: StocksSummary) -> list[RenderableType]:
    """Final wealth by start date of the agents that have several; nothing where there is only one."""
    if len(summary.starts) < 2:
        return []
    several = Counter(name for agents in summary.starts.values() for name in agents)
    names = [name for name, number_of in several.items() if number_of > 1]
    table = _table("final wealth, from", *names)
    for start, agents in summary.starts.items():
        cells = (agents.get(name) for name in names)
        table.add_row(Text(start, style="bold"), *(_interval(each, _wealth, spread=False) for each in cells))
    means = (_interval(summary.over_starts.get(name), _wealth, spread=False) for name in names)
    table.add_row(Text("over start dates", style="bold"), *means)
    return [table, Text("")]


def _table(first: str, *others: str) -> Table:
    table = make_plain_table()
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _claims(summary: StocksSummary) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for claim in summary.claims:
        line = Text(f"{claim.text} ")
        line.append(claim.verdict, style=_VERDICTS.get(claim.verdict, "yellow"))
        evidence = "; ".join(finding.text for finding in claim.findings)
        lines += [line, Padding(Text(evidence, style="dim"), (0, 0, 0, 4))]
    return lines


def _note(summary: StocksSummary) -> str:
    limits = {name: label.limit for name, label in summary.labels.items()}
    horizon = next(iter(limits.values())).horizon
    alphas = ", ".join(
        f"{name} {limits[name].alpha:g}" for name, label in summary.labels.items() if label.kind == "agent"
    )
    return (
        "Means over seeds, [95 % interval of the mean], and lowest to highest seed. All seeds trade through the same "
        "year: an interval reflects the randomness of training and says nothing about other years. "
        f"CVaR: of the year's returns over {horizon} sessions, at each label's own α ({alphas}; benchmarks "
        f"{_benchmark_alpha(summary)}). broken: share of seeds whose CVaR lies below the bound, by however "
        "little. cash: mean weight. "
        "turn.: turnover a year. training CVaR: mean of the learner's own estimate, in log growth; beyond: share of "
        "updates in which it lies below the bound. exposure: the mean invested share of 1/N's growth; timing: being "
        "invested when 1/N grows; choice: which stocks. now, 10 ago, 20 ago: correlation of the invested share with "
        f"1/N's growth over {horizon} sessions that end so many sessions before the decision."
    )


def _benchmark_alpha(summary: StocksSummary) -> str:
    alphas = {f"{label.limit.alpha:g}" for label in summary.labels.values() if label.kind == "benchmark"}
    return ", ".join(sorted(alphas)) or NONE


def _troubles(summary: StocksSummary, agents: dict[str, StrategySummary]) -> list[Text]:
    lines = []
    updates = {name: label.updates for name, label in agents.items()}
    if len(set(updates.values())) > 1:
        spelled = ", ".join(f"{name} {number}" for name, number in updates.items())
        lines.append(Text(f"these were trained for different numbers of updates a day: {spelled}", style="yellow"))
    if len({label.seeds for label in agents.values()}) > 1:
        spelled = ", ".join(f"{name} {len(label.seeds)}" for name, label in agents.items())
        lines.append(Text(f"these have different seeds, and pairs only where both have one: {spelled}", style="yellow"))
    lines += describe_outdated(summary.outdated)
    if len(summary.versions) > 1:
        lines.append(Text(f"made with different versions: {'; '.join(summary.versions)}", style="yellow"))
    return lines


def _describe_broken(label: StrategySummary) -> Text:
    if label.broken is None:
        return Text(NONE)
    if label.kind == "benchmark":
        return Text("✗" if label.broken else "✓", style="red" if label.broken else "green")
    return Text(percent(label.broken, 0), style="red" if label.broken else "green")


def _mean(figure: MeanInterval | None, written: Format) -> str:
    return NONE if figure is None else written(figure.mean)


def _interval(figure: MeanInterval | None, written: Format, spread: bool = True) -> Text:
    """The mean, its interval below, and below that the range."""
    text = Text(_mean(figure, written))
    if figure is not None and figure.low is not None and figure.high is not None:
        text.append(f"\n{span(figure.low, figure.high, written)}", style="dim")
        if spread:
            text.append(f"\n{_describe_range(figure, written)}", style="dim")
    return text


def _range(figure: MeanInterval | None, written: Format) -> Text:
    """The mean, and the range below."""
    text = Text(_mean(figure, written))
    if figure is not None and figure.low is not None:
        text.append(f"\n{_describe_range(figure, written)}", style="dim")
    return text


def _describe_range(figure: MeanInterval, written: Format) -> str:
    """`−8.37 to −5.52 %`."""
    return f"{written(figure.least).partition(NBSP)[0]} to {written(figure.most)}"
