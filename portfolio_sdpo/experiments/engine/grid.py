"""Runs a grid, run by run, in parallel: finished runs are skipped, interrupted ones are resumed.

A run that fails by its own error is recorded and does not stop the others. A run whose worker died is resumed from its
checkpoint, a few times. Each family of experiments defines its runs: a subclass of `Run`, and a function that makes
one. `parallel` decides where a run is made; the result is the same everywhere.
"""

from __future__ import annotations

import shutil
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import joblib

from portfolio_sdpo.errors import PortfolioSdpoError, RunError, SettingsError, did_you_mean
from portfolio_sdpo.experiments.engine.folders import write_json
from portfolio_sdpo.experiments.engine.parallel import (
    GridCancelledError,
    Local,
    LostWorkerError,
    Parallel,
    Workers,
    hold_lock,
)
from portfolio_sdpo.rl import TrainSettings, metrics
from portfolio_sdpo.rl.checkpoint import single_thread
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.progress import Board, LineFile
from portfolio_sdpo.rl.trainer import Watcher, start_digest


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: str
    status: Literal["finished", "skipped", "failed"]
    message: str = ""
    results: Mapping[str, Any] = field(default_factory=dict)
    """Figures of a run that was finished now; those of other runs are in their folders."""


class Run(ABC):
    """One run of a grid, in a folder of its own; picklable, so that a worker process can make it.

    The folder holds what the trainer writes and `final.json`, which marks the run as done and holds its results, or
    `failure.json`, which says why it failed.
    """

    root: Path
    """The experiment's folder."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the run and of its folder."""

    @property
    @abstractmethod
    def total(self) -> int:
        """Iterations."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What distinguishes the run from the others of its experiment, for its records."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether exactly this run is in the folder and complete; a `RunError` if another one is."""

    @property
    def prerequisites(self) -> Sequence[Run]:
        """Runs that have to be done before this one can start."""
        return ()

    def details(self) -> dict[str, Any]:
        """The settings of the run, for records elsewhere."""
        return {}

    def results(self) -> dict[str, Any]:
        """The figures in the folder of a run that is done."""
        return {}

    @property
    def folder(self) -> Path:
        return self.root / self.name

    def has_started(self, settings: TrainSettings) -> bool:
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
        """Write the results, which marks the run as done."""
        write_json(self.folder / "final.json", {**self.identity(), **found})
        (self.folder / "failure.json").unlink(missing_ok=True)

    def record_failure(self, error: Exception, **more: Any) -> None:
        """Write why the run failed; if even that is impossible, the outcome still says it."""
        with suppress(OSError, RunError):
            self.folder.mkdir(parents=True, exist_ok=True)
            record = {**self.identity(), "error": type(error).__name__, "message": str(error), **more}
            write_json(self.folder / "failure.json", record)

    def clear(self) -> None:
        """Remove a run with other settings from the folder."""
        shutil.rmtree(self.folder)


class Observer:
    """Is notified when a run starts and ends, from any thread but never from two at once."""

    def run_started(self, run: Run) -> None:
        """A worker has started the run."""

    def run_ended(self, run: Run, outcome: Outcome) -> None:
        """The run is finished or has failed; a run that fails before it could start is only reported here."""

    def run_skipped(self, run: Run) -> None:
        """The run was done before."""


Make = Callable[[Any, Watcher], Mapping[str, Any] | None]
"""Makes a run in its folder, from its checkpoint if there is one, and records it; returns figures for the outcome. It
must be picklable."""
Task = Callable[[], None]
"""Further work to be done beside the runs, picklable as well."""


@dataclass(frozen=True)
class Stage:
    """Runs that do not depend on each other, and tasks that are started after the last of them has begun."""

    runs: Sequence[Run]
    tasks: Sequence[Task] = ()


class GridOptions(TypedDict, total=False):
    """The options of `run_grid`; they do not change the results."""

    jobs: int | None
    """Runs at a time, by default 1; None for as many as there are cores."""
    parallel: Parallel
    """Where: `Local()` or `Ray(address)`."""
    retries: int
    """How often a run is resumed whose worker died; by default twice."""
    restart: bool
    """Replace runs that were made with other settings, instead of reporting them as failed."""
    observer: Observer
    """Is notified of every run."""


def run_grid(
    stages: Sequence[Stage], make: Make, board: Board, root: Path, cores: int = 1, **options: Unpack[GridOptions]
) -> list[Outcome]:
    """Make what is not done yet, one stage after the other; outcomes in the order of the runs.

    board: shows the runs while they are made. root: the experiment's folder. cores: number of cores that a run uses.
    """
    parallel, observer = options.get("parallel", Local()), options.get("observer", Observer())
    jobs, retries = options.get("jobs", 1), options.get("retries", 2)
    board.runs = sum(len(stage.runs) for stage in stages)
    order = {run.name: place for place, run in enumerate(run for stage in stages for run in stage.runs)}
    most = max((len(stage.runs) + len(stage.tasks) for stage in stages), default=1)
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        workers: Workers | None = None
        for stage in stages:
            pending, known = _split_runs(stage.runs, outcomes, options.get("restart", False))
            for run, outcome in known:
                board.end(run.name, outcome.status, outcome.message)
                if outcome.status == "failed":
                    observer.run_ended(run, outcome)
                else:
                    observer.run_skipped(run)
            if workers is None and (pending or stage.tasks):
                # Workers are opened only when there is something to do, since connecting to a cluster takes time.
                workers = stack.enter_context(parallel.open(root, jobs and max(1, min(jobs, most)), cores))
            outcomes += [outcome for _, outcome in known]
            if workers is not None:
                outcomes += _Dispatcher(make, board, observer, workers, retries).make_all(pending, stage.tasks)
    return sorted(outcomes, key=lambda outcome: order[outcome.run])


def _split_runs(
    runs: Sequence[Run], earlier: Sequence[Outcome], restart: bool
) -> tuple[list[Run], list[tuple[Run, Outcome]]]:
    """Runs that are to be made, and the outcomes of the others, which are known already."""
    failed = {outcome.run: outcome.message for outcome in earlier if outcome.status == "failed"}
    pending: list[Run] = []
    known: list[tuple[Run, Outcome]] = []
    for run in runs:
        missing = next((each.name for each in run.prerequisites if each.name in failed), None)
        if missing is not None:
            known.append((run, Outcome(run.name, "failed", f"{missing}: {failed[missing]}")))
            continue
        try:
            done = run.is_done()
        except RunError as error:
            if not restart:
                known.append((run, Outcome(run.name, "failed", str(error))))
                continue
            run.clear()
            done = False
        if done:
            known.append((run, Outcome(run.name, "skipped")))
        else:
            pending.append(run)
    return pending, known


class _Dispatcher:
    """Hands the runs of a stage to workers and collects their outcomes; one thread waits for each worker."""

    def __init__(self, make: Make, board: Board, observer: Observer, workers: Workers, retries: int) -> None:
        self._make, self._board, self._observer, self._workers = make, board, observer, workers
        self._retries = retries
        self._lock = threading.Lock()

    def make_all(self, pending: Sequence[Run], tasks: Sequence[Task]) -> list[Outcome]:
        lines = {run.name: LineFile(self._workers.folder / f"{run.name}.json") for run in pending}
        for name, line in lines.items():
            self._board.follow(name, line)
        calls = [joblib.delayed(self._run)(run, lines[run.name]) for run in pending]
        calls += [joblib.delayed(self._do)(task) for task in tasks]
        with joblib.parallel_config("threading", n_jobs=max(1, min(self._workers.jobs, len(calls)))):
            found = joblib.Parallel(batch_size=1, pre_dispatch="n_jobs", return_as="generator_unordered")(calls)
            results = list(found)
        for result in results:
            if isinstance(result, PortfolioSdpoError):
                raise result
        return [result for result in results if isinstance(result, Outcome)]

    def _run(self, run: Run, line: LineFile) -> Outcome:
        """Make one run, retrying if its worker dies."""
        with self._lock:
            self._board.begin(run.name)
            self._observer.run_started(run)
        locks = self._workers.locks
        lock = locks / f"{run.name}.lock" if locks else None
        try:
            outcome: Outcome = self._retry(partial(_make, run, self._make, line, lock), run.name)
        except LostWorkerError as error:
            run.record_failure(error)
            outcome = Outcome(run.name, "failed", str(error))
        with self._lock:
            self._board.end(run.name, outcome.status, outcome.message)
            self._observer.run_ended(run, outcome)
        return outcome

    def _do(self, task: Task) -> PortfolioSdpoError | None:
        """Carry out a task; its error must not interrupt the runs that are being made."""
        try:
            self._retry(task, "references")
        except GridCancelledError:
            raise
        except PortfolioSdpoError as error:
            return error
        return None

    def _retry(self, call: Callable[[], Any], name: str) -> Any:
        """What the call returns; repeated a limited number of times if its worker dies."""
        times = self._retries + 1
        for attempt in range(1, times):
            try:
                return self._workers.execute(call)
            except LostWorkerError as error:
                with self._lock:
                    self._board.again(name, f"{error}, retry {attempt} of {self._retries}")
        try:
            return self._workers.execute(call)
        except LostWorkerError as error:
            often = "once" if times == 1 else f"{times} times"
            raise LostWorkerError(
                f"{error}, {often}: run the same command again with fewer --jobs; it resumes from its checkpoint."
            ) from None


def _make(run: Run, make: Make, line: LineFile, lock: Path | None) -> Outcome:
    """Make one run, in a worker or, with one job, in this process."""

    def watch(row: LogRow) -> None:
        line.write(row, int(row.get("total", run.total)))

    with ExitStack() as stack:
        if lock is not None:
            stack.enter_context(hold_lock(lock))
        line.begin(run.total)
        stack.enter_context(single_thread())
        try:
            return Outcome(run.name, "finished", results=make(run, watch) or {})
        except LostWorkerError:
            raise
        except PortfolioSdpoError as error:
            run.record_failure(error)
            return Outcome(run.name, "failed", str(error))
        except Exception as error:
            # A bug in one run is no reason to lose the others.
            run.record_failure(error, traceback=traceback.format_exc())
            return Outcome(run.name, "failed", f"{type(error).__name__}: {error}")


def select_algorithms(experiment: str, declared: Iterable[str], asked: Iterable[str] | None) -> tuple[str, ...]:
    """The labels that are asked for, in the order in which they are declared; None asks for all of them.

    >>> select_algorithms("cmdp-cvar", ["ppo", "sdpo", "pd-cvar"], ["pd-cvar", "ppo"])
    ('ppo', 'pd-cvar')
    """
    labels = tuple(declared)
    if asked is None:
        return labels
    wanted = list(asked)
    unknown = [label for label in wanted if label not in labels]
    if unknown:
        raise SettingsError(
            f"algorithms: {experiment} has no {unknown[0]!r}{did_you_mean(unknown[0], labels)}; "
            f"it has {', '.join(labels)}."
        )
    return tuple(label for label in labels if label in wanted)
