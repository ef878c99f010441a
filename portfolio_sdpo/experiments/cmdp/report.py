"""A summary as a page for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.summary import AlgorithmSummary, CmdpSummary
from portfolio_sdpo.experiments.statistics.report import render_statistics
from portfolio_sdpo.experiments.tables import (
    describe_experiment,
    describe_failures,
    describe_outdated,
    display_name,
    format_percent,
    format_spread,
    make_plain_table,
)


def render_cmdp(summary: CmdpSummary) -> RenderableType:
    """Algorithms and references as one table, with notes below on what does not go without saying."""
    table = make_plain_table(summary.title, bold=True)
    table.add_column("policy", no_wrap=True)
    other = any(algorithm.final_objective for algorithm in summary.algorithms.values())
    started = any(algorithm.share_from_start for algorithm in summary.algorithms.values())
    headers = ["runs", "return", *(["objective"] if other else []), "gain", *(["gain from\nstart"] if started else [])]
    for name, sharp in zip(summary.constraints, summary.sharp, strict=True):
        # `variance of reward <= 12` in lines; the reward goes without saying.
        headers.append(name.replace(" of reward ", "\n").replace(" of ", "\nof ", 1))
        headers += ["breaks\nsampled", *([f"breaks\n{sharp}"] if sharp else []), "worst\nexcess"]
    for header in [*headers, "Σ 1/η"]:
        table.add_column(header, justify="right", no_wrap=True)
    for label, algorithm in summary.algorithms.items():
        cells = [cell for index in range(len(summary.constraints)) for cell in _risk(algorithm, index, summary)]
        bound_cell = "" if algorithm.suboptimality_bound is None else f"{algorithm.suboptimality_bound:.3g}"
        table.add_row(
            Text(display_name(label), style="bold"),
            str(algorithm.runs),
            format_spread(algorithm.final_return, 2),
            *([format_spread(algorithm.final_objective, 2)] if other else []),
            format_percent(algorithm.share_of_gain, 1),
            *([format_percent(algorithm.share_from_start, 1)] if started else []),
            *cells,
            bound_cell,
        )
    gains = [""] * (2 if started else 1)
    for name, values in summary.references.items():
        cells = []
        for index, sharp in enumerate(summary.sharp):
            cells += [format_spread(values[f"risk_{index}"], 2), *([""] * (3 if sharp else 2))]
        objective = [format_spread(values["objective"], 2)] if other else []
        table.add_row(name, "", format_spread(values["return"], 2), *objective, *gains, *cells, "", style="dim")
    statistics = render_statistics(summary.statistics)
    return Group(table, Text(""), Text(_note(summary), style="dim"), *statistics, *_troubles(summary))


def describe_cmdp(experiment: CmdpExperiment) -> RenderableType:
    """The experiment with its question, algorithms and size."""
    names = ", ".join(map(display_name, experiment.algorithms))
    steps = experiment.episodes * experiment.cmdp.horizon
    size = f"{names}; {experiment.iterations} iterations of {steps} steps, {len(experiment.seeds)} runs each"
    return Group(*describe_experiment(experiment.name, experiment.title, experiment.question, size))


def _risk(algorithm: AlgorithmSummary, index: int, summary: CmdpSummary) -> list[str]:
    risk = algorithm.risks[index]
    sharp = summary.sharp[index]
    cells = [
        format_spread(risk["final_sharp" if sharp else "final_sampled"], 2),
        format_percent(risk["breaks_sampled"], 1),
    ]
    if sharp:
        cells.append(format_percent(risk["breaks_sharp"], 1))
    return [*cells, format_spread(risk["worst_excess_sharp" if sharp else "worst_excess_sampled"], 2)]


def _note(summary: CmdpSummary) -> str:
    kinds = {
        "exact": "by dynamic programming (exact)",
        "integrated": "by simulation with the reward's noise integrated out (integrated)",
    }
    ways = ["on fresh episodes (sampled)", *(kinds[kind] for kind in dict.fromkeys(summary.sharp) if kind)]
    return (
        "Final policies, mean ± sd over runs. gain: share of what the optimum, the best policy within the bound, gains "
        "over the uniform one. breaks: share of iterations after phase I whose policy breaks the bound, "
        f"{' or '.join(ways)}. gain from start: the same over the policy that phase I found for all. Σ 1/η: the loss "
        "that Theorem 1 allows, where no barrier ended on its tangent."
    )


def _troubles(summary: CmdpSummary) -> list[Text]:
    lines = describe_failures(summary.failures)
    if summary.unfinished:
        lines.append(Text(f"unfinished: {', '.join(summary.unfinished)}", style="yellow"))
    lengths = {length for algorithm in summary.algorithms.values() for length in algorithm.iterations}
    if len(lengths) > 1:
        lines.append(Text(f"these runs have different lengths: {sorted(lengths)} iterations", style="yellow"))
    return lines + describe_outdated(summary.outdated)
