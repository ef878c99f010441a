"""Runs a grid in parallel processes, run by run: what is done is skipped, what was interrupted goes on.

A run that fails is recorded and does not stop the others. What a run is, and how it is made, each kind of experiment
says for itself: a subclass of `Run`, and a function that makes one.
"""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from portfolio_sdpo.errors import PortfolioSdpoError, RunError
from portfolio_sdpo.experiments.folders import write_json
from portfolio_sdpo.rl import TrainSettings, metrics
from portfolio_sdpo.rl.algorithms.base import Metrics
from portfolio_sdpo.rl.progress import Board, LineFile
from portfolio_sdpo.rl.threads import single_thread
from portfolio_sdpo.rl.trainer import Watcher, start_digest


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    run: str
    status: Literal["finished", "skipped", "failed"]
    message: str = ""


class Run(ABC):
    """One run of a grid, in a folder of its own; picklable, so that a worker process can make it.

    The folder holds what the trainer writes and `final.json`, which says that the run is done and what came of it, or
    `failure.json`, which says why it failed.
    """

    root: Path
    """The experiment's folder."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Of the run and of its folder."""

    @property
    @abstractmethod
    def total(self) -> int:
        """Iterations."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What tells it from the other runs of its experiment, for its records."""

    @abstractmethod
    def done(self) -> bool:
        """Whether exactly this run is in the folder and complete; a `RunError` if another one is."""

    @property
    def before(self) -> Run | None:
        """A run without which this one cannot begin."""
        return None

    @property
    def folder(self) -> Path:
        return self.root / self.name

    def begun(self, settings: TrainSettings) -> bool:
        """Whether the folder holds a run with these settings; a `RunError` if one with others."""
        config = self.folder / "config.json"
        if not config.exists():
            return False
        if metrics.read_config(config)["fingerprint"] != settings.fingerprint(start_digest(settings, self.folder)):
            raise RunError(
                f"{self.folder} holds a run with other settings: add --restart to replace it, "
                "or set PORTFOLIO_SDPO_HOME to keep both."
            )
        return True

    def mark_done(self, **found: Any) -> None:
        """Write down what came of it, which marks the run as done."""
        write_json(self.folder / "final.json", {**self.identity(), **found})
        (self.folder / "failure.json").unlink(missing_ok=True)

    def record_failure(self, error: PortfolioSdpoError) -> None:
        """Write down why the run failed; where even that is impossible the report has it."""
        with suppress(OSError, RunError):
            self.folder.mkdir(parents=True, exist_ok=True)
            record = {**self.identity(), "error": type(error).__name__, "message": str(error)}
            write_json(self.folder / "failure.json", record)


Make = Callable[[Any, Watcher], None]
"""Makes a run in its folder, from its checkpoint if there is one, and records it; a function that can be sent."""
Task = Callable[[], None]
"""Something else to be done beside the runs; can be sent as well."""


@dataclass(frozen=True)
class Stage:
    """Runs that do not need each other, and what is to be done after them, while the last ones are under way."""

    runs: Sequence[Run]
    further: Sequence[Task] = ()


def run_grid(
    stages: Sequence[Stage], make: Make, board: Board, *, jobs: int = 1, restart: bool = False
) -> list[Outcome]:
    """Make what is not done yet, `jobs` runs at a time, one stage after the other; outcomes in the order of the runs.

    board: shows the runs while they run. restart: replace runs that were made with other settings, instead of
    reporting them as failed.
    """
    board.runs = sum(len(stage.runs) for stage in stages)
    outcomes: list[Outcome] = []
    for stage in stages:
        fallen = {outcome.run: outcome.message for outcome in outcomes if outcome.status == "failed"}
        pending, known = _sort_out(stage.runs, fallen, restart)
        board.finished += sum(outcome.status == "skipped" for outcome in known)
        board.failed += sum(outcome.status == "failed" for outcome in known)
        outcomes += known + _make_all(pending, stage.further, make, jobs, board)
    order = {run.name: place for place, run in enumerate(run for stage in stages for run in stage.runs)}
    return sorted(outcomes, key=lambda outcome: order[outcome.run])


def _sort_out(runs: Sequence[Run], fallen: dict[str, str], restart: bool) -> tuple[list[Run], list[Outcome]]:
    """Runs that are to be made, and what is known of the others already."""
    pending: list[Run] = []
    known: list[Outcome] = []
    for run in runs:
        if run.before is not None and run.before.name in fallen:
            known.append(Outcome(run.name, "failed", f"{run.before.name}: {fallen[run.before.name]}"))
            continue
        try:
            done = run.done()
        except RunError as error:
            if not restart:
                known.append(Outcome(run.name, "failed", str(error)))
                continue
            shutil.rmtree(run.folder)
            done = False
        if done:
            known.append(Outcome(run.name, "skipped"))
        else:
            pending.append(run)
    return pending, known


def _make_all(pending: Sequence[Run], further: Sequence[Task], make: Make, jobs: int, board: Board) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as lines:
        files = {run.name: LineFile(Path(lines) / f"{run.name}.json") for run in pending}
        for name, file in files.items():
            board.follow(name, file)
        tasks = [joblib.delayed(_make)(run, make, files[run.name]) for run in pending]
        tasks += [joblib.delayed(task)() for task in further]
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


def _make(run: Run, make: Make, line: LineFile) -> Outcome:
    """One run, in a worker process or, with one job, in this one."""

    def watch(row: Metrics) -> None:
        line.write(row, run.total)

    try:
        with single_thread():
            make(run, watch)
    except PortfolioSdpoError as error:
        run.record_failure(error)
        return Outcome(run.name, "failed", str(error))
    return Outcome(run.name, "finished")
