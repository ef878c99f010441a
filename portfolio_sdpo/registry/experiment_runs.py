"""Records the runs of experiments in the registry, as they start and end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from portfolio_sdpo.common.files import json_ready
from portfolio_sdpo.errors import PortfolioSdpoError, RegistryError
from portfolio_sdpo.experiments.engine.grid import Observer, Outcome, Run
from portfolio_sdpo.registry.registry import Registry

INTERRUPTED = "The run was interrupted; the same command resumes it."
UNRECORDED = "The run was finished by a command that was killed before it could record the result."


class RunRecorder(Observer):
    """Writes every run into the registry; a registry that fails meanwhile does not stop the runs.

    with RunRecorder(registry, "cmdp-cvar") as observer:
        run_cmdp(experiment, observer=observer)
    """

    def __init__(self, registry: Registry, experiment: str) -> None:
        self.registry, self.experiment = registry, experiment
        self.trouble: PortfolioSdpoError | None = None
        """The first error of the registry, after which its records are incomplete."""
        self._open: dict[str, str] = {}
        self._orphans: dict[str, list[str]] | None = None

    def run_started(self, run: Run) -> None:
        try:
            self._begin(run)
        except RegistryError as error:
            self.trouble = self.trouble or error

    def run_ended(self, run: Run, outcome: Outcome) -> None:
        try:
            if run.name not in self._open:
                self._begin(run)
            self.registry.end_run(
                self._open.pop(run.name),
                "failed" if outcome.status == "failed" else "done",
                outcome=outcome.status,
                reason=outcome.message or None,
                metrics=json_ready(dict(outcome.results)) or None,
            )
        except RegistryError as error:
            self.trouble = self.trouble or error

    def run_skipped(self, run: Run) -> None:
        try:
            for old in self._list_orphans(run):
                metrics = json_ready(run.results()) or None
                self.registry.end_run(old, outcome="finished", reason=UNRECORDED, metrics=metrics)
        except PortfolioSdpoError as error:
            self.trouble = self.trouble or error

    def _list_orphans(self, run: Run) -> list[str]:
        """Records of the run that a killed command left open."""
        if self._orphans is None:
            self._orphans = {}
            for old in self.registry.runs(kind="experiment", status="running"):
                self._orphans.setdefault(old.name, []).append(old.id)
        return self._orphans.pop(f"{self.experiment}/{run.name}", [])

    def _begin(self, run: Run) -> None:
        for old in self._list_orphans(run):
            self.registry.end_run(old, "failed", reason=INTERRUPTED)
        try:
            details = run.details()
        except PortfolioSdpoError:  # the run will fail for the same reason, and report it
            details = {}
        settings = json_ready({"experiment": self.experiment, **run.identity(), "settings": details})
        seed = run.identity().get("seed")
        name = f"{self.experiment}/{run.name}"
        self._open[run.name] = self.registry.start_run("experiment", name, settings=settings, seed=seed).id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for run in self._open.values():
            try:
                self.registry.end_run(run, "failed", reason=INTERRUPTED)
            except RegistryError as failed:
                self.trouble = self.trouble or failed
        self._open.clear()
