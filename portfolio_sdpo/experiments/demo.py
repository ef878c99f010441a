"""The demonstration: PPO and SDPO on a small CMDP, and what they learned in a few lines."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.cases import experiment_folder
from portfolio_sdpo.experiments.figures import NAMES, make_figures
from portfolio_sdpo.experiments.presets import Experiment
from portfolio_sdpo.experiments.references import References, read_references
from portfolio_sdpo.experiments.runner import run_experiment
from portfolio_sdpo.experiments.summary import RunSummary, summarise
from portfolio_sdpo.rl.progress import Board


@dataclass(frozen=True)
class Story:
    """What the demonstration has shown."""

    experiment: Experiment
    runs: dict[str, RunSummary]
    """by label"""
    references: References
    folder: Path
    picture: Path


def run_demo(experiment: Experiment, *, jobs: int = 2, board: Board | None = None) -> Story:
    """Train from scratch, in the folder of the demonstration, whose former content goes."""
    folder = experiment_folder(experiment.name)
    shutil.rmtree(folder, ignore_errors=True)
    for outcome in run_experiment(experiment, jobs=jobs, root=folder, board=board):
        if outcome.status == "failed":
            raise RunError(f"{outcome.run}: {outcome.message}")
    runs = {run.label: run for run in summarise(experiment, folder).runs}
    picture, *_ = make_figures(experiment, folder)
    return Story(experiment, runs, read_references(folder)[experiment.cmdp_seeds[0]], folder, picture)


def introduce(experiment: Experiment) -> RenderableType:
    """What is about to be done."""
    tables, (constraint,) = experiment.cmdp, experiment.problem.constraints
    names = " and ".join(NAMES[label] for label in experiment.algorithms)
    steps = experiment.episodes * tables.horizon
    return Text.assemble(
        (f"{names} on a random CMDP", "bold"),
        f": {tables.states} states, {tables.actions} actions, {tables.horizon} steps; the higher a reward, the noisier "
        f"it is.\nThe bound: {constraint.name}. {experiment.iterations} iterations of {steps} steps each.",
    )


def tell(story: Story) -> RenderableType:
    """What each policy is worth, exactly, and what that means."""
    (constraint,) = story.experiment.problem.constraints
    known = story.references
    table = Table(box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    table.add_column("return", justify="right")
    table.add_column(f"{constraint.measure.label} {constraint.sense} {constraint.bound:g}", justify="right")
    table.add_column("beyond the bound", justify="right")

    def add(name: str, mean: float, risk: float, beyond: str = "", style: str = "") -> None:
        colour = "green" if constraint.slack(risk) > -1e-6 else "red"
        table.add_row(Text(name, style), f"{mean:.2f}", Text(f"{risk:.2f}", colour), beyond)

    add("uniform policy (the start)", known.uniform.mean, known.uniform.risks[0], style="dim")
    for label, run in story.runs.items():
        add(NAMES[label], run.final_return, _risk(run), f"{_beyond(run)} of {run.iterations} iterations", "bold")
    if known.optimum:
        add("best within the bound", known.optimum.mean, known.optimum.risks[0], style="dim")
    add("best without a bound", known.unconstrained.mean, known.unconstrained.risks[0], style="dim")
    return Group(
        Text(""),
        table,
        Text(""),
        Text(" ".join(_sentence(story, run) for run in story.runs.values())),
        Text("Returns and variances are exact, by dynamic programming on the CMDP's tables.", style="dim"),
    )


def _sentence(story: Story, run: RunSummary) -> str:
    name, beyond = NAMES[run.label], _beyond(run)
    (constraint,) = story.experiment.problem.constraints
    ended = "inside" if constraint.slack(_risk(run)) >= 0 else "outside"
    if beyond == 0:
        kept = f"{name} stayed within the bound in every iteration"
    else:
        kept = f"{name} was beyond the bound in {beyond} of {run.iterations} iterations and ended {ended} it"
    if run.share_of_gain is None or ended == "outside":
        return f"{kept}."
    return f"{kept}, with {100 * run.share_of_gain:.0f} % of what the best policy within it gains over the uniform one."


def _risk(run: RunSummary) -> float:
    risk = run.risks[0]
    return risk.final_sampled if risk.final_sharp is None else risk.final_sharp


def _beyond(run: RunSummary) -> int:
    share = run.risks[0].breaks_sharp
    return round((share or 0.0) * run.iterations)
