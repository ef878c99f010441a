"""A summary as a page for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.experiments.figures import NAMES
from portfolio_sdpo.experiments.presets import Experiment
from portfolio_sdpo.experiments.summary import AlgorithmSummary, Spread, Summary

_REFERENCES = {
    "uniform": "uniform policy",
    "optimum": "best within the bound",
    "unconstrained": "best without a bound",
}


def render(summary: Summary) -> RenderableType:
    """Algorithms and references as one table, with notes below on what does not go without saying."""
    table = Table(title=summary.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    table.add_column("runs", justify="right")
    table.add_column("return", justify="right", no_wrap=True)
    table.add_column("gain", justify="right", no_wrap=True)
    for index, name in enumerate(summary.constraints):
        table.add_column(name, justify="right")
        table.add_column("breaks\n(sampled)", justify="right", no_wrap=True)
        if summary.sharp[index]:
            table.add_column(f"breaks\n({summary.sharp[index]})", justify="right", no_wrap=True)
        table.add_column("worst\nexcess", justify="right", no_wrap=True)
    table.add_column("Σ 1/η", justify="right", no_wrap=True)
    for label, algorithm in summary.algorithms.items():
        cells = [cell for index in range(len(summary.constraints)) for cell in _risk(algorithm, index, summary)]
        bound = algorithm.suboptimality_bound
        table.add_row(
            Text(NAMES.get(label, label), style="bold"),
            str(algorithm.runs),
            _text(algorithm.final_return),
            _percent(algorithm.share_of_gain),
            *cells,
            "" if bound is None else f"{bound:.3g}",
        )
    table.add_section()
    for name, values in summary.references.items():
        cells = []
        for index in range(len(summary.constraints)):
            cells += [_text(values[f"risk_{index}"]), *([""] * (3 if summary.sharp[index] else 2))]
        table.add_row(_REFERENCES[name], "", _text(values["return"]), "", *cells, "", style="dim")
    return Group(table, Text(""), *(Text(note, style="dim") for note in _notes(summary)), *_troubles(summary))


def render_list(experiments: dict[str, Experiment]) -> RenderableType:
    """Every experiment with its question, algorithms and size."""
    table = Table(box=None, pad_edge=False)
    for column in ("name", "algorithms", "iterations", "seeds", "question"):
        table.add_column(column, no_wrap=column in ("name", "algorithms"))
    for experiment in experiments.values():
        names = ", ".join(NAMES.get(label, label) for label in experiment.algorithms)
        table.add_row(
            Text(experiment.name, style="bold"),
            names,
            f"{experiment.iterations} × {experiment.episodes * experiment.cmdp.horizon}",
            str(len(experiment.seeds)),
            experiment.question,
        )
    return table


def _risk(algorithm: AlgorithmSummary, index: int, summary: Summary) -> list[str]:
    risk = algorithm.risks[index]
    sharp = summary.sharp[index]
    cells = [_text(risk["final_sharp" if sharp else "final_sampled"]), _percent(risk["breaks_sampled"])]
    if sharp:
        cells.append(_percent(risk["breaks_sharp"]))
    return [*cells, _text(risk["worst_excess_sharp" if sharp else "worst_excess_sampled"])]


def _notes(summary: Summary) -> list[str]:
    notes = [
        "return, risk: final policies, mean ± sd over runs; gain: share of what the best policy within the bound gains "
        "over the uniform one;",
        "breaks: share of iterations after phase I whose policy breaks the bound, measured on fresh episodes (sampled)",
    ]
    sharp = {kind for kind in summary.sharp if kind}
    if "exact" in sharp:
        notes[-1] += " or by dynamic programming (exact)"
    if "integrated" in sharp:
        notes[-1] += " or by simulation with the reward's noise integrated out (integrated)"
    notes[-1] += "; Σ 1/η: Theorem 1."
    return notes


def _troubles(summary: Summary) -> list[Text]:
    lines = [Text(f"{run} failed: {message}", style="red") for run, message in summary.failures.items()]
    if summary.unfinished:
        lines.append(Text(f"unfinished: {', '.join(summary.unfinished)}", style="yellow"))
    lengths = {length for algorithm in summary.algorithms.values() for length in algorithm.iterations}
    if len(lengths) > 1:
        lines.append(Text(f"these runs have different lengths: {sorted(lengths)} iterations", style="yellow"))
    if summary.outdated:
        lines.append(Text(f"made with other settings than declared now: {', '.join(summary.outdated)}", style="yellow"))
    return lines


def _text(value: Spread | float | None) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "–" if value is None else str(value)


def _percent(value: Spread | float | None) -> str:
    if not isinstance(value, Spread):
        return "–"
    spread = "" if value.sd is None else f" ± {100 * value.sd:.1f}"
    return f"{100 * value.mean:.1f}{spread} %"
