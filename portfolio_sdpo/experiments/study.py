"""A study: one declared experiment with exactly the runs that are asked for, in one shape whatever its family.

The command line, `reproduce` and other packages speak to `Study` only. To add a family, subclass `Study` and declare an
instance (or a function that returns one) as an entry point of the group `portfolio_sdpo.studies`; see `catalogue`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, Unpack

from portfolio_sdpo.errors import RunError, SettingsError
from portfolio_sdpo.experiments.engine.folders import experiment_folder, read_json
from portfolio_sdpo.experiments.engine.grid import GridOptions, Outcome, Run
from portfolio_sdpo.experiments.statistics.evidence import Evidence
from portfolio_sdpo.rl.progress import Board
from portfolio_sdpo.settings import check_seeds

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Choice:
    """Which runs of an experiment are asked for, and how they are made; None stands for what is declared."""

    seeds: tuple[int, ...] | None = None
    cmdp_seeds: tuple[int, ...] | None = None
    """seeds of the CMDPs, for experiments on random CMDPs"""
    algorithms: tuple[str, ...] | None = None
    iterations: int | None = None
    """of every run; on stocks, updates a day"""
    workers: int | None = None
    """processes that collect for each run, where a run can have some"""
    overlap: bool = False
    """collect while an update is made, where a run can do so"""

    @property
    def selects(self) -> bool:
        """Whether it names particular runs."""
        return self.seeds is not None or self.cmdp_seeds is not None or self.algorithms is not None


@dataclass(frozen=True)
class FinishedRuns:
    """Runs of a study that are finished."""

    names: tuple[str, ...]
    """of the runs that are exactly as declared; on stocks, the labels of their agents"""
    foreign: int = 0
    """number of further runs, with other settings or of another version, which do not count"""

    @classmethod
    def of(cls, runs: Iterable[Run]) -> FinishedRuns:
        """Those of the runs whose folders say so."""
        names, foreign = [], 0
        for run in runs:
            try:
                names += [run.name] if run.is_done() else []
            except RunError:
                foreign += 1
        return cls(tuple(names), foreign)


class Summary(Protocol):
    """The results of a study, as far as they are there."""

    def to_json(self) -> dict[str, Any]:
        """The same for other programs."""


@dataclass(frozen=True)
class Study(ABC):
    """One experiment with exactly the runs that are asked for."""

    experiment: Any
    """as declared, with the seeds and algorithms of these runs"""
    role: str = ""
    """what it is for, in words"""
    home: Path | None = field(default=None, kw_only=True)
    """where its folder is, by default the user's own"""
    choice: Choice = field(default=Choice(), kw_only=True)
    """what was asked for, see `select`"""
    output: Path | None = field(default=None, kw_only=True)
    """where figures go, by default the experiment's folder"""

    domain: ClassVar[str]
    """what the experiment is on, in words"""
    has_cmdps: ClassVar[bool] = False
    """whether runs differ in their CMDP"""
    has_workers: ClassVar[bool] = False
    """whether a run can collect in worker processes and during updates"""

    @property
    def name(self) -> str:
        """Of the experiment."""
        return str(self.experiment.name)

    @property
    def group(self) -> str:
        """The name under which studies are listed together that differ in one word only."""
        return self.name

    @property
    def root(self) -> Path:
        """The experiment's folder."""
        return experiment_folder(self.name) if self.home is None else self.home / self.name

    def select(self, choice: Choice) -> Self:
        """The same study with these seeds, algorithms and lengths; a `SettingsError` for what it does not have."""
        if choice.cmdp_seeds is not None and not self.has_cmdps:
            raise SettingsError(f"--cmdp-seeds: {self.name} is on {self.domain} and has no CMDP; leave it out.")
        if (choice.workers is not None or choice.overlap) and not self.has_workers:
            option = "--overlap" if choice.workers is None else "--workers"
            raise SettingsError(
                f"{option}: {self.name} collects in the run's own process; leave it out and set --jobs instead."
            )
        for option, seeds in {"--seeds": choice.seeds, "--cmdp-seeds": choice.cmdp_seeds}.items():
            if seeds is not None:
                _check_option_seeds(option, seeds)
        if choice.iterations is not None and choice.iterations < 1:
            raise SettingsError(f"--iterations: must be at least 1 (got {choice.iterations}).")
        return replace(self, experiment=self._apply(choice), choice=choice)

    def board(self) -> Board:
        """A board that shows the runs while they are made."""
        problem = getattr(self.experiment, "problem", None)
        return Board(problem.constraints if problem else (), self.experiment.title)

    def successful(self, outcomes: Sequence[Outcome]) -> FinishedRuns:
        """The runs of the study that did not fail just now."""
        failed = {outcome.run for outcome in outcomes if outcome.status == "failed"}
        return FinishedRuns(tuple(run.name for run in self.runs() if run.name not in failed))

    def finished(self) -> FinishedRuns:
        """The runs of the study that are finished."""
        return FinishedRuns.of(self.runs())

    @property
    def planned_runs(self) -> int:
        """Number of runs of all algorithms together."""
        return len(self.runs())

    def versions(self, runs: FinishedRuns) -> list[str]:
        """Versions of the package that the runs were made with."""
        return read_versions([self.root / name for name in runs.names])

    @abstractmethod
    def runs(self) -> Sequence[Run]:
        """Every run of the study."""

    @abstractmethod
    def run(self, board: Board | None = None, **options: Unpack[GridOptions]) -> list[Outcome]:
        """Make the runs that are missing; the board shows them meanwhile."""

    @abstractmethod
    def summarise(self, runs: FinishedRuns | None = None) -> Summary:
        """The results of these runs, or of all that the folder holds and `choice` selects; a `RunError` if none."""

    @abstractmethod
    def render(self, summary: Any) -> RenderableType:
        """A summary as a page for the terminal."""

    @abstractmethod
    def describe(self, members: Sequence[Any]) -> RenderableType:
        """Question, algorithms and size, for a list; `members` are the studies of the same `group`."""

    @abstractmethod
    def evidence(self, runs: FinishedRuns) -> Evidence:
        """What these runs show; a `RunError` if there are none."""

    @abstractmethod
    def draw(self, runs: FinishedRuns | None = None) -> list[Path]:
        """Draw the paper's figures of the runs that `summarise` would take; the files, PNG and SVG."""

    def record(self, out: Path) -> list[Path]:
        """Write a record of each finished run into `out`, from which tables and figures can be made; the files."""
        raise SettingsError(f"{self.name} has no records that stand for its runs; keep its folder {self.root} instead.")

    @abstractmethod
    def size(self) -> dict[str, str]:
        """The size of the study in words, under the same keys as the paper's `Question.size`."""

    @abstractmethod
    def _apply(self, choice: Choice) -> Any:
        """The experiment with what was asked for."""


def _check_option_seeds(option: str, seeds: tuple[int, ...]) -> None:
    try:
        check_seeds(seeds)
    except ValueError as error:
        raise SettingsError(f"{option}: {error} (got {','.join(map(str, seeds))}).") from None


def read_versions(folders: Iterable[Path]) -> list[str]:
    """Versions of the package that runs in these folders were made with."""
    records = [read_json(folder / "config.json") for folder in folders]
    return sorted({str(record.get("version") or record.get("package_version")) for record in records})
