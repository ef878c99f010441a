"""The runner of all grids: lost workers, runs that fail, what observers and boards are told."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.study import CmdpRun, list_cmdp_runs, run_cmdp, train_cmdp
from portfolio_sdpo.experiments.engine.folders import read_json
from portfolio_sdpo.experiments.engine.grid import Observer, Outcome, Run, Stage, run_grid
from portfolio_sdpo.experiments.engine.parallel import UNDER_WAY
from portfolio_sdpo.rl.progress import Board

from .grid_files import contents


def statuses(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.run: outcome.status for outcome in outcomes}


class Heard(Observer):
    def __init__(self) -> None:
        self.news: list[tuple[str, str]] = []

    def run_started(self, run: Run) -> None:
        self.news.append(("begun", run.name))

    def run_ended(self, run: Run, outcome: Outcome) -> None:
        self.news.append((outcome.status, run.name))

    def run_skipped(self, run: Run) -> None:
        self.news.append(("skipped", run.name))


def test_a_killed_worker_costs_its_run_a_retry_and_the_other_nothing(tiny: CmdpExperiment, tiny_run, tmp_path: Path):
    """A real SIGKILL, when both runs have a checkpoint and neither is done."""

    def make(case: CmdpRun, watch):
        (case.root / f"{case.label}-by-{os.getpid()}").touch()
        killed = case.root / "killed"

        def act(row) -> None:
            watch(row)
            if row["iteration"] == 2 and not killed.exists():
                (case.root / f"{case.label}-there").touch()
                while not (case.root / "ppo-there").exists() or not (case.root / "sdpo-there").exists():
                    time.sleep(0.01)
                if case.label == "ppo":
                    killed.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        return train_cmdp(case, act)

    lost: list[str] = []

    class Watching(Board):
        def again(self, name: str, why: str) -> None:
            lost.append(f"{name}: {why}")

    grid = list_cmdp_runs(tiny.with_changes(seeds=(0,)), tmp_path)
    outcomes = run_grid([Stage(grid)], make, Watching(()), tmp_path, jobs=2)
    assert statuses(outcomes) == {"ppo-11-0": "finished", "sdpo-11-0": "finished"}
    assert lost == ["ppo-11-0: its worker process was killed, perhaps for lack of memory, retry 1 of 2"]
    # The one that was killed had two workers, and the other's lived on.
    assert [len(list(tmp_path.glob(f"{label}-by-*"))) for label in ("ppo", "sdpo")] == [2, 1]
    whole = {name: content for name, content in contents(tiny_run[0]).items() if "-11-0/" in name}
    assert contents(tmp_path) == whole and len(whole) == 2 * 6
    assert not list(tmp_path.glob("*/failure.json")) and not (tmp_path / UNDER_WAY).exists()


def test_a_run_that_loses_every_worker_is_given_up_and_the_others_are_not(tiny: CmdpExperiment, tmp_path: Path):
    def make(case: CmdpRun, watch):
        if case.label == "ppo":
            Path(case.root, f"tried-{time.time_ns()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return train_cmdp(case, watch)

    grid = list_cmdp_runs(tiny.with_changes(seeds=(0,)), tmp_path)
    heard = Heard()
    outcomes = run_grid([Stage(grid)], make, Board(()), tmp_path, jobs=2, retries=1, observer=heard)
    assert statuses(outcomes) == {"ppo-11-0": "failed", "sdpo-11-0": "finished"}
    assert len(list(tmp_path.glob("tried-*"))) == 2
    message = (
        "its worker process was killed, perhaps for lack of memory, 2 times: run the same command again with fewer "
        "--jobs; it resumes from its checkpoint."
    )
    assert outcomes[0].message == message and outcomes[1].results["true_return"] > 0
    assert read_json(tmp_path / "ppo-11-0" / "failure.json")["message"] == message
    assert sorted(heard.news) == [
        *(("begun", "ppo-11-0"), ("begun", "sdpo-11-0")),
        *(("failed", "ppo-11-0"), ("finished", "sdpo-11-0")),
    ]


def test_a_mistake_in_one_run_is_recorded_with_its_place_and_not_retried(tiny: CmdpExperiment, tmp_path: Path):
    tried = []

    def make(case: CmdpRun, watch):
        tried.append(case.name)
        if case.label == "ppo":
            raise KeyError("quantile")

    heard = Heard()
    grid = list_cmdp_runs(tiny.with_changes(seeds=(0,)), tmp_path)
    failed, finished = run_grid([Stage(grid)], make, Board(()), tmp_path, observer=heard)
    assert (failed.status, failed.message, finished.status) == ("failed", "KeyError: 'quantile'", "finished")
    assert "in make" in read_json(tmp_path / "ppo-11-0" / "failure.json")["traceback"]
    assert tried == ["ppo-11-0", "sdpo-11-0"]
    assert heard.news == [
        (what, run) for run, end in zip(tried, ("failed", "finished"), strict=True) for what in ("begun", end)
    ]


def test_a_rerun_makes_only_what_is_missing_and_says_what_is_not(tiny: CmdpExperiment, tiny_run, tmp_path: Path):
    shutil.copytree(tiny_run[0], tmp_path / "tiny")
    shutil.rmtree(tmp_path / "tiny" / "sdpo-12-1")
    heard = Heard()
    outcomes = run_cmdp(tiny, root=tmp_path / "tiny", observer=heard)
    assert statuses(outcomes) == dict.fromkeys(("ppo-11-0", "sdpo-11-0", "ppo-12-1"), "skipped") | {
        "sdpo-12-1": "finished"
    }
    assert heard.news == [
        *(("skipped", name) for name in ("ppo-11-0", "sdpo-11-0", "ppo-12-1")),
        *(("begun", "sdpo-12-1"), ("finished", "sdpo-12-1")),
    ]
    assert contents(tmp_path / "tiny") == contents(tiny_run[0])


class TestWhatIsDoneBesideRuns:
    """Things like references: a stage's `further`."""

    def test_its_error_does_not_cut_short_the_runs(self, tiny: CmdpExperiment, tmp_path: Path):
        def fail() -> None:
            raise RunError("no optimum: relax the bound.")

        def wait(case: CmdpRun, watch):
            time.sleep(1.0)

        (case, _), heard = list_cmdp_runs(tiny.with_changes(seeds=(0,)), tmp_path), Heard()
        with pytest.raises(RunError, match=r"^no optimum: relax the bound\.$"):
            run_grid([Stage([case], [fail])], wait, Board(()), tmp_path, jobs=2, observer=heard)
        assert heard.news == [("begun", "ppo-11-0"), ("finished", "ppo-11-0")]

    def test_its_worker_may_be_lost_too(self, tiny: CmdpExperiment, tmp_path: Path):
        def die_once() -> None:
            if not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            (tmp_path / "done").touch()

        said: list[str] = []

        class Said(Board):
            def again(self, name: str, why: str) -> None:
                said.append(f"{name}: {why}")

        assert run_grid([Stage([], [die_once, time.time])], train_cmdp, Said(()), tmp_path, jobs=2) == []
        assert (tmp_path / "done").exists()
        assert said == ["references: its worker process was killed, perhaps for lack of memory, retry 1 of 2"]
