"""Runs a grid on random CMDPs.

Two stages: first the feasible starts, if the experiment has any, then the algorithms, and after them what their results
are measured against.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Unpack

from portfolio_sdpo.envs import RandomCmdpVectorEnv
from portfolio_sdpo.errors import InfeasibleConstraintError
from portfolio_sdpo.experiments.cmdp.cases import START, Case, cases
from portfolio_sdpo.experiments.cmdp.declared import Experiment
from portfolio_sdpo.experiments.cmdp.probe import Probe
from portfolio_sdpo.experiments.cmdp.references import has_references, make_references
from portfolio_sdpo.experiments.engine.folders import experiment_folder
from portfolio_sdpo.experiments.engine.grid import Means, Outcome, Stage, run_grid
from portfolio_sdpo.rl import Trainer
from portfolio_sdpo.rl.algorithms.base import Metrics
from portfolio_sdpo.rl.progress import Board
from portfolio_sdpo.rl.rollout import Purpose
from portfolio_sdpo.rl.trainer import Watcher


def run_experiment(
    experiment: Experiment,
    *,
    root: Path | None = None,
    board: Board | None = None,
    **means: Unpack[Means],
) -> list[Outcome]:
    """Run what is not done yet, and compute what the results are measured against.

    root: the experiment's folder, by default the user's own. board: shows the runs while they run. Everything else
    is one of the `Means`: `jobs`, `restart`, ...
    """
    folder = root or experiment_folder(experiment.name)
    grid = cases(experiment, folder)
    starts = list({case.start.name: case.start for case in grid if case.start is not None}.values())
    wanted = dict.fromkeys(case.cmdp_seed for case in grid)
    missing = [seed for seed in wanted if not has_references(experiment, seed, folder)]
    references = [partial(make_references, experiment, seed, folder) for seed in missing]
    board = board or Board(experiment.problem.constraints)
    return run_grid([Stage(starts), Stage(grid, references)], train, board, folder, **means)


def train(case: Case, watch: Watcher | None = None) -> dict[str, float]:
    """Train in the case's folder, from its checkpoint if there is one, and record what the policy is worth."""
    experiment = case.experiment
    cmdp = experiment.cmdp.draw(case.cmdp_seed)
    settings, environment = case.settings(cmdp), RandomCmdpVectorEnv(cmdp, case.episodes)
    probe = Probe(cmdp, experiment.problem, case.seed, experiment.fresh_episodes)
    if case.label == START and experiment.safe_start is not None:
        trainer = Trainer(settings, environment, case.folder)
        fresh = Probe(cmdp, settings.problem, case.seed, experiment.safe_start.fresh_episodes, Purpose.PHASE_ONE)
        _phase_one(trainer, fresh, watch)
    else:
        trainer = Trainer(settings, environment, case.folder, probe)
        trainer.run(watch)
    figures, returns = probe.measure(trainer.policy, trainer.iteration)
    case.record(figures, returns)
    return figures


def _phase_one(trainer: Trainer, fresh: Probe, watch: Watcher | None) -> None:
    """Train until the policy is within the (tightened) bounds on fresh episodes."""
    constraints = trainer.settings.problem.constraints

    def worst_slack(figures: Mapping[str, float | str], column: str) -> float:
        return min(constraint.slack(float(figures[f"{column}_{i}"])) for i, constraint in enumerate(constraints))

    def inside() -> bool:
        # Fresh episodes cost time, so only a policy that looks safe on its own few is tried on them.
        looks_safe = bool(trainer.rows) and worst_slack(trainer.rows[-1], "risk_empirical") > 0
        return looks_safe and worst_slack(fresh.sampled(trainer.policy, trainer.iteration), "true_risk") > 0

    reached = inside()  # a run that was interrupted after its last iteration

    def watch_for_end(row: Metrics) -> bool:
        nonlocal reached
        if watch:
            watch(row)
        reached = inside()
        return reached

    if not reached:
        trainer.run(watch_for_end)
    if reached:
        return
    best = max(worst_slack(row, "risk_empirical") for row in trainer.rows)
    raise InfeasibleConstraintError(
        f"phase I did not satisfy {' and '.join(repr(constraint.name) for constraint in constraints)} in "
        f"{trainer.settings.iterations} iterations (best slack {best:.4g}): relax the bound or allow more iterations.",
        best_slack=best,
    )
