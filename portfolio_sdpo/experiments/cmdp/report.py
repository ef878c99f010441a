"""A summary as a page for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.experiments.cmdp.declared import Experiment
from portfolio_sdpo.experiments.cmdp.figures import NAMES
from portfolio_sdpo.experiments.cmdp.summary import AlgorithmSummary, Spread, Summary
from portfolio_sdpo.experiments.paper.seeds_report import render_statistics


def render(summary: Summary) -> RenderableType:
    """Algorithms and references as one table, with notes below on what does not go without saying."""
    table = Table(
        title=summary.title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column("policy", no_wrap=True)
    other = any(algorithm.final_objective for algorithm in summary.algorithms.values())
    headers = ["runs", "return", *(["objective"] if other else []), "gain"]
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
            Text(NAMES.get(label, label), style="bold"),
            str(algorithm.runs),
            _text(algorithm.final_return),
            *([_text(algorithm.final_objective)] if other else []),
            _percent(algorithm.share_of_gain),
            *cells,
            bound_cell,
        )
    for name, values in summary.references.items():
        cells = []
        for index, sharp in enumerate(summary.sharp):
            cells += [_text(values[f"risk_{index}"]), *([""] * (3 if sharp else 2))]
        objective = [_text(values["objective"])] if other else []
        table.add_row(name, "", _text(values["return"]), *objective, "", *cells, "", style="dim")
    statistics = render_statistics(summary.statistics)
    return Group(table, Text(""), Text(_note(summary), style="dim"), *statistics, *_troubles(summary))


def render_list(experiments: dict[str, Experiment]) -> RenderableType:
    """Every experiment with its question, algorithms and size."""
    blocks = []
    for experiment in experiments.values():
        names = ", ".join(NAMES.get(label, label) for label in experiment.algorithms)
        steps = experiment.episodes * experiment.cmdp.horizon
        size = f"{experiment.iterations} iterations of {steps} steps, {len(experiment.seeds)} runs each"
        blocks += [
            Text.assemble((experiment.name, "bold"), f"  {experiment.title}"),
            Text(f"    {experiment.question}"),
            Text(f"    {names}; {size}", style="dim"),
        ]
    return Group(*blocks)


def _risk(algorithm: AlgorithmSummary, index: int, summary: Summary) -> list[str]:
    risk = algorithm.risks[index]
    sharp = summary.sharp[index]
    cells = [_text(risk["final_sharp" if sharp else "final_sampled"]), _percent(risk["breaks_sampled"])]
    if sharp:
        cells.append(_percent(risk["breaks_sharp"]))
    return [*cells, _text(risk["worst_excess_sharp" if sharp else "worst_excess_sampled"])]


def _note(summary: Summary) -> str:
    kinds = {
        "exact": "by dynamic programming (exact)",
        "integrated": "by simulation with the reward's noise integrated out (integrated)",
    }
    ways = ["on fresh episodes (sampled)", *(kinds[kind] for kind in dict.fromkeys(summary.sharp) if kind)]
    return (
        "Final policies, mean ± sd over runs. gain: share of what the optimum, the best policy within the bound, gains "
        "over the uniform one. breaks: share of iterations after phase I whose policy breaks the bound, "
        f"{' or '.join(ways)}. Σ 1/η: the loss that Theorem 1 allows."
    )


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
    if value is None:
        return "–"
    return f"{value.mean:.2f}" + ("" if value.sd is None else f"\n± {value.sd:.2f}")


def _percent(value: Spread | float | None) -> str:
    if not isinstance(value, Spread):
        return "–"
    return f"{100 * value.mean:.1f} %" + ("" if value.sd is None else f"\n± {100 * value.sd:.1f}  ")
