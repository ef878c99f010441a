"""Runs a grid in parallel processes, run by run: what is done is skipped, what was interrupted goes on.

Two stages: first the feasible starts, if the experiment has any, then the algorithms. A run that fails is recorded and
does not stop the others.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from portfolio_sdpo.envs import RandomCmdpVectorEnv
from portfolio_sdpo.errors import InfeasibleConstraintError, PortfolioSdpoError, RunError
from portfolio_sdpo.experiments.cases import START, Case, cases, experiment_folder
from portfolio_sdpo.experiments.presets import Experiment
from portfolio_sdpo.experiments.probe import Probe
from portfolio_sdpo.experiments.references import has_references, make_references
from portfolio_sdpo.rl import Trainer
from portfolio_sdpo.rl.algorithms.base import Metrics
from portfolio_sdpo.rl.progress import Board, LineFile
from portfolio_sdpo.rl.rollout import Purpose
from portfolio_sdpo.rl.threads import single_thread
from portfolio_sdpo.rl.trainer import Watcher


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    run: str
    status: Literal["finished", "skipped", "failed"]
    message: str = ""


def run_experiment(
    experiment: Experiment,
    *,
    jobs: int = 1,
    root: Path | None = None,
    board: Board | None = None,
    restart: bool = False,
) -> list[Outcome]:
    """Run what is not done yet, `jobs` runs at a time, and compute what the results are measured against.

    root: the experiment's folder, by default the user's own. board: shows the runs while they run.
    restart: replace runs that were made with other settings, instead of reporting them as failed.
    """
    folder = root or experiment_folder(experiment.name)
    grid = cases(experiment, folder)
    starts = list({case.start.name: case.start for case in grid if case.start is not None}.values())
    board = board or Board(experiment.problem.constraints)
    board.runs = len(starts) + len(grid)
    outcomes: list[Outcome] = []
    for stage in (starts, grid):
        fallen = {outcome.run: outcome.message for outcome in outcomes if outcome.status == "failed"}
        pending, known = _sort_out(stage, fallen, restart)
        board.finished += sum(outcome.status == "skipped" for outcome in known)
        board.failed += sum(outcome.status == "failed" for outcome in known)
        wanted = dict.fromkeys(case.cmdp_seed for case in stage if stage is grid)
        missing = [seed for seed in wanted if not has_references(experiment, seed, folder)]
        outcomes += known + _run_all(experiment, pending, missing, folder, jobs, board)
    order = {case.name: position for position, case in enumerate([*starts, *grid])}
    return sorted(outcomes, key=lambda outcome: order[outcome.run])


def _sort_out(stage: Sequence[Case], fallen: dict[str, str], restart: bool) -> tuple[list[Case], list[Outcome]]:
    """Runs that are to be made, and what is known of the others already."""
    draw = cache(lambda cmdp_seed: stage[0].experiment.cmdp.draw(cmdp_seed))
    pending: list[Case] = []
    known: list[Outcome] = []
    for case in stage:
        if case.start is not None and case.start.name in fallen:
            known.append(Outcome(case.name, "failed", f"{case.start.name}: {fallen[case.start.name]}"))
            continue
        try:
            done = case.done(draw(case.cmdp_seed))
        except RunError as error:
            if not restart:
                known.append(Outcome(case.name, "failed", str(error)))
                continue
            shutil.rmtree(case.folder)
            done = False
        if done:
            known.append(Outcome(case.name, "skipped"))
        else:
            pending.append(case)
    return pending, known


def _run_all(
    experiment: Experiment, pending: Sequence[Case], seeds: Iterable[int], root: Path, jobs: int, board: Board
) -> list[Outcome]:
    """These runs, and after them, while the last ones are still under way, the references of these CMDPs."""
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as lines:
        files = {case.name: LineFile(Path(lines) / f"{case.name}.json") for case in pending}
        for name, file in files.items():
            board.follow(name, file)
        tasks = [joblib.delayed(_run)(case, files[case.name]) for case in pending]
        tasks += [joblib.delayed(make_references)(experiment, seed, root) for seed in seeds]
        for result in _in_parallel(tasks, jobs):
            if isinstance(result, Outcome):
                outcomes.append(result)
                board.drop(result.run)
                board.finished += result.status == "finished"
                board.failed += result.status == "failed"
    return outcomes


def _in_parallel(tasks: Sequence[Any], jobs: int) -> Iterator[Any]:
    """Results as they come, from at most `jobs` processes with one thread each."""
    if not tasks:
        return
    try:
        with joblib.parallel_config("loky", n_jobs=min(jobs, len(tasks)), inner_max_num_threads=1):
            yield from joblib.Parallel(batch_size=1, return_as="generator_unordered")(tasks)
    except TerminatedWorkerError:
        raise RunError(
            "a worker process was killed, perhaps for lack of memory: run the same command again with fewer --jobs; "
            "what was done is kept."
        ) from None


def _run(case: Case, line: LineFile) -> Outcome:
    """One run, in a worker process or, with one job, in this one."""

    def watch(row: Metrics) -> None:
        line.write(row, total)

    total = case.experiment.iterations
    if case.label == START and case.experiment.safe_start is not None:
        total = case.experiment.safe_start.iterations
    try:
        with single_thread():
            train(case, watch)
    except PortfolioSdpoError as error:
        case.record_failure(error)
        return Outcome(case.name, "failed", str(error))
    return Outcome(case.name, "finished")


def train(case: Case, watch: Watcher | None = None) -> None:
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
    case.record(*probe.measure(trainer.policy, trainer.iteration))


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
