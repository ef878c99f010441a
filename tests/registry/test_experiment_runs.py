"""Runs of experiments in the book of runs: as they begin and end, and after a command that was killed."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.cmdp.study import list_cmdp_runs, run_cmdp
from portfolio_sdpo.experiments.engine.folders import read_json
from portfolio_sdpo.experiments.engine.grid import Run, Stage, run_grid
from portfolio_sdpo.experiments.paper.smoke import CMDP_CVAR
from portfolio_sdpo.registry import Registry, schema
from portfolio_sdpo.registry.experiment_runs import INTERRUPTED, UNRECORDED, RunRecorder
from portfolio_sdpo.rl.progress import Board

LONG = CMDP_CVAR.with_changes(algorithms=("ppo",), seeds=(0, 1), iterations=40)

_BOTH = (
    "ALTER TABLE api_keys DROP COLUMN expires_at",
    "ALTER TABLE api_keys DROP COLUMN last_used_at",
    "DELETE FROM heads WHERE name = 'audit_archives'",
    "DROP TABLE audit_archives",
    "DROP TABLE identity",
)
UNDONE = {
    "sqlite": (
        "DROP TRIGGER audit_no_delete",
        *_BOTH,
        "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit only grows'); END",
    ),
    "postgresql": (
        "DROP TRIGGER audit_no_truncate ON audit",
        "DROP TRIGGER audit_only_grows ON audit",
        "DROP FUNCTION refuse_unless_archived",
        *_BOTH,
        "CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()",
    ),
}


@dataclass(frozen=True)
class Toy(Run):
    root: Path
    seed: int

    @property
    def name(self) -> str:
        return f"toy-{self.seed}"

    @property
    def total(self) -> int:
        return 1

    def identity(self) -> dict[str, Any]:
        return {"label": "toy", "seed": self.seed}

    def details(self) -> dict[str, Any]:
        return {"steps": 5}

    def results(self) -> dict[str, Any]:
        return {"return": read_json(self.folder / "final.json")["return"]}

    def is_done(self) -> bool:
        return (self.folder / "final.json").exists()


def make_toy(run: Toy, watch: Any) -> dict[str, Any]:
    if run.seed == 2:
        raise RunError("no prices: fetch some.")
    run.mark_done(**{"return": 0.5 * run.seed, "endless": float("inf")})
    return {"return": 0.5 * run.seed, "endless": float("inf")}


def book(registry: Registry, root: Path, make=make_toy, seeds=(0, 1, 2)) -> RunRecorder:
    """Make the toys and write them down."""
    with RunRecorder(registry, "toys") as observer:
        run_grid([Stage([Toy(root, seed) for seed in seeds])], make, Board(()), root, observer=observer)
    return observer


def entries(registry: Registry) -> list[tuple[str, str, str | None]]:
    """Name, status and reason of every entry, the oldest first."""
    return [(run.name, run.status, run.reason) for run in reversed(registry.runs(kind="experiment"))]


def test_every_run_is_there_with_its_settings_and_what_came_of_it(registry, tmp_path):
    assert book(registry, tmp_path).trouble is None
    third, second, first = registry.runs(kind="experiment")
    assert (first.name, first.seed, first.status, first.outcome) == ("toys/toy-0", 0, "done", "finished")
    assert first.settings == {"experiment": "toys", "label": "toy", "seed": 0, "settings": {"steps": 5}}
    assert second.metrics == {"return": 0.5, "endless": None}  # JSON has no infinity
    assert (third.status, third.reason, third.metrics) == ("failed", "no prices: fetch some.", None)
    # A rerun writes down what it makes, and nothing of what was there.
    book(registry, tmp_path)
    assert [run.name for run in registry.runs(kind="experiment")] == [*["toys/toy-2"] * 2, "toys/toy-1", "toys/toy-0"]


def test_results_are_there_as_soon_as_they_are_known(registry, tmp_path):
    seen = []

    def make(run: Toy, watch: Any) -> dict[str, Any]:
        seen.append([status for _, status, _ in entries(registry)])
        return make_toy(run, watch)

    book(registry, tmp_path, make, seeds=(0, 1, 3))
    assert seen == [["running"], ["done", "running"], ["done", "done", "running"]]


COMMAND = """
import sys
from pathlib import Path
from portfolio_sdpo.experiments.cmdp.study import run_cmdp
from portfolio_sdpo.experiments.paper.smoke import CMDP_CVAR
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.experiment_runs import RunRecorder

experiment = CMDP_CVAR.with_changes(algorithms=("ppo",), seeds=(0, 1), iterations=40)
with Registry.open(sys.argv[1]) as registry, RunRecorder(registry, "cmdp") as observer:
    run_cmdp(experiment, root=Path(sys.argv[2]), observer=observer)
"""


def test_a_killed_command_leaves_entries_that_the_next_one_mends(registry, url, tmp_path):
    """A real SIGKILL while the first run has a checkpoint and no end."""
    with subprocess.Popen([sys.executable, "-c", COMMAND, url, str(tmp_path)]) as command:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("*/checkpoint-*")) and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(command.pid, signal.SIGKILL)
    assert entries(registry) == [("cmdp/ppo-11-0", "running", None)]
    assert not list(tmp_path.glob("*/final.json"))
    with RunRecorder(registry, "cmdp") as observer:
        outcomes = run_cmdp(LONG, root=tmp_path, observer=observer)
    assert [outcome.status for outcome in outcomes] == ["finished"] * 2
    assert entries(registry) == [
        ("cmdp/ppo-11-0", "failed", INTERRUPTED),
        ("cmdp/ppo-11-0", "done", None),
        ("cmdp/ppo-11-1", "done", None),
    ]
    for case, run in zip(
        list_cmdp_runs(LONG, tmp_path), reversed(registry.runs(kind="experiment", status="done")), strict=True
    ):
        assert run.metrics == case.results() and run.metrics["true_return"] > 0
        assert run.settings["settings"]["iterations"] == 40


def test_a_run_that_was_finished_and_not_told_is_told_by_the_next_command(registry, tmp_path):
    """Its command was killed between the run's last file and the registry."""
    make_toy(Toy(tmp_path, 1), None)
    RunRecorder(registry, "toys").run_started(Toy(tmp_path, 1))
    RunRecorder(registry, "others").run_started(Toy(tmp_path, 1))
    assert book(registry, tmp_path, seeds=(1,)).trouble is None
    told, other = reversed(registry.runs(kind="experiment"))
    assert (told.status, told.outcome, told.reason, told.metrics) == ("done", "finished", UNRECORDED, {"return": 0.5})
    assert (other.name, other.status) == ("others/toy-1", "running")  # not ours to end


def test_an_interrupted_command_says_so(registry, tmp_path):
    def interrupt(run: Toy, watch: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        book(registry, tmp_path, interrupt)
    assert entries(registry) == [("toys/toy-0", "failed", INTERRUPTED)]


def test_a_registry_that_breaks_stops_no_run(registry, tmp_path, alter):
    def breaks(run: Toy, watch: Any) -> dict[str, Any]:
        if run.seed == 0:
            alter("ALTER TABLE runs RENAME TO walks")
        return make_toy(run, watch)

    observer = book(registry, tmp_path, breaks, seeds=(0, 1, 3))
    assert observer.trouble is not None and str(observer.trouble).endswith(".")
    assert all(Toy(tmp_path, seed).is_done() for seed in (0, 1, 3))
    alter("ALTER TABLE walks RENAME TO runs")
    # The next command tells what this one could not.
    book(registry, tmp_path, seeds=(0, 1, 3))
    assert entries(registry) == [("toys/toy-0", "done", UNRECORDED)]


def test_a_registry_from_before_runs_had_figures_is_brought_up(url):
    with Registry.open(url) as registry:
        old = registry.start_run("experiment", "toys/toy-0")
        with registry.database.writing() as connection:
            connection.exec_driver_sql("ALTER TABLE runs DROP COLUMN metrics")
            for statement in UNDONE[connection.dialect.name]:  # what the revision after that one made
                connection.exec_driver_sql(statement)
            connection.exec_driver_sql(f"UPDATE {schema.VERSION_TABLE} SET version_num = '0001'")
    with Registry.open(url) as registry:
        assert registry.run(old.id) == old and old.metrics is None
        assert registry.end_run(old.id, metrics={"return": 1.5}).metrics == {"return": 1.5}
