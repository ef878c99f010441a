"""A grid runs in parallel, goes on where it was, and survives runs that fail."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from portfolio_sdpo.envs import random_cmdp
from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.cmdp import study as runner
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment, SafeStart
from portfolio_sdpo.experiments.cmdp.study import CmdpRun, digest, list_cmdp_runs, run_cmdp
from portfolio_sdpo.experiments.cmdp.summary import summarise_cmdp
from portfolio_sdpo.experiments.engine.folders import read_json
from portfolio_sdpo.experiments.engine.grid import Outcome
from portfolio_sdpo.rl import ActorSettings, IpoSettings, PpoSettings
from portfolio_sdpo.rl.metrics import read_config, read_rows

RUNS = ["ppo-11-0", "sdpo-11-0", "ppo-12-1", "sdpo-12-1"]
REPRODUCIBLE = ("config.json", "metrics.parquet", "final.json", "evaluation.npy", "checkpoint-0000004.safetensors")


def contents(root: Path) -> dict[str, bytes]:
    return {f"{run}/{name}": (root / run / name).read_bytes() for run in RUNS for name in REPRODUCIBLE}


def statuses(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.run: outcome.status for outcome in outcomes}


@pytest.fixture
def finished(tiny_run, tmp_path: Path) -> Path:
    """A copy of the finished run that may be changed."""
    root = tmp_path / "tiny"
    shutil.copytree(tiny_run[0], root)
    return root


def test_every_run_of_the_grid_is_made(tiny: CmdpExperiment, tiny_run):
    root, outcomes = tiny_run
    assert statuses(outcomes) == dict.fromkeys(RUNS, "finished")
    for run in RUNS:
        rows = read_rows(root / run / "metrics.parquet")
        assert [row["iteration"] for row in rows] == [0, 1, 2, 3]
        assert {"true_return", "true_risk_0", "exact_return", "exact_risk_0", "risk_0"} <= rows[0].keys()
    assert (root / "references-11.json").exists() and (root / "references-12.json").exists()


def test_two_jobs_give_the_same_bytes_as_one(tiny: CmdpExperiment, tiny_run, tmp_path: Path):
    outcomes = run_cmdp(tiny, jobs=2, root=tmp_path / "tiny")
    assert statuses(outcomes) == dict.fromkeys(RUNS, "finished")
    assert contents(tmp_path / "tiny") == contents(tiny_run[0])


def test_finished_runs_are_skipped_and_only_the_missing_one_is_made(tiny: CmdpExperiment, tiny_run, finished: Path):
    shutil.rmtree(finished / "sdpo-11-0")
    assert statuses(run_cmdp(tiny, root=finished)) == {
        **dict.fromkeys(RUNS, "skipped"),
        "sdpo-11-0": "finished",
    }
    assert contents(finished) == contents(tiny_run[0])


def test_an_interrupted_run_goes_on(tiny: CmdpExperiment, tiny_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Stopped in its third iteration, it has a checkpoint of two; the rest follows with the next call."""

    def interrupt(self, policy, iteration):
        if iteration == 2:
            raise KeyboardInterrupt
        return measure(self, policy, iteration)

    measure = runner.Probe.__call__
    monkeypatch.setattr(runner.Probe, "__call__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_cmdp(tiny, root=tmp_path / "tiny")
    monkeypatch.undo()
    assert len(read_rows(tmp_path / "tiny" / "ppo-11-0" / "metrics.parquet")) == 2
    assert statuses(run_cmdp(tiny, root=tmp_path / "tiny")) == dict.fromkeys(RUNS, "finished")
    assert contents(tmp_path / "tiny") == contents(tiny_run[0])


def test_a_run_with_other_settings_is_reported_and_kept(tiny: CmdpExperiment, tiny_run, finished: Path):
    longer = tiny.with_changes(iterations=5, algorithms=("ppo",), seeds=(0,))
    (outcome,) = run_cmdp(longer, root=finished)
    assert outcome.status == "failed"
    assert "holds a run with other settings: add --restart to replace it" in outcome.message
    assert contents(finished) == contents(tiny_run[0])


def test_restart_replaces_a_run_with_other_settings(tiny: CmdpExperiment, finished: Path):
    longer = tiny.with_changes(iterations=5, algorithms=("ppo",), seeds=(0,))
    assert statuses(run_cmdp(longer, root=finished, restart=True)) == {"ppo-11-0": "finished"}
    assert len(read_rows(finished / "ppo-11-0" / "metrics.parquet")) == 5
    assert statuses(run_cmdp(longer, root=finished, restart=True)) == {"ppo-11-0": "skipped"}


def test_a_run_that_fails_does_not_stop_the_others(tiny: CmdpExperiment, tmp_path: Path):
    """IPO bounds only expectations."""
    algorithms = {"ipo": IpoSettings(), "ppo": tiny.algorithms["ppo"]}
    grid = CmdpExperiment(**{**dict(tiny), "algorithms": algorithms, "seeds": (0,)})
    outcomes = run_cmdp(grid, root=tmp_path)
    assert statuses(outcomes) == {"ipo-11-0": "failed", "ppo-11-0": "finished"}
    assert "use sdpo for this measure" in outcomes[0].message
    assert read_json(tmp_path / "ipo-11-0" / "failure.json") == {
        "label": "ipo",
        "cmdp_seed": 11,
        "seed": 0,
        "error": "SettingsError",
        "message": outcomes[0].message,
    }
    assert summarise_cmdp(grid, tmp_path).failures == {"ipo-11-0": outcomes[0].message}


def with_start(tiny: CmdpExperiment, bound: float, iterations: int = 8) -> CmdpExperiment:
    start = SafeStart(
        algorithm=tiny.algorithms["ppo"], iterations=iterations, episodes=8, bounds=(bound,), fresh_episodes=50
    )
    return CmdpExperiment(**{**dict(tiny), "safe_start": start, "seeds": (0,)})


def test_all_algorithms_start_from_the_policy_of_phase_one(tiny: CmdpExperiment, tmp_path: Path):
    grid = with_start(tiny, bound=1000.0)
    assert statuses(run_cmdp(grid, root=tmp_path)) == {
        "start-11-0": "finished",
        "ppo-11-0": "finished",
        "sdpo-11-0": "finished",
    }
    # The bound holds from the beginning, so phase I ends at once.
    assert len(read_rows(tmp_path / "start-11-0" / "metrics.parquet")) == 1
    start = tmp_path / "start-11-0" / "checkpoint-0000001.safetensors"
    first = {}
    for run in ("ppo-11-0", "sdpo-11-0"):
        assert read_config(tmp_path / run / "config.json")["start"] == f"checkpoint {start}"
        first[run] = read_rows(tmp_path / run / "metrics.parquet")[0]
    begin = read_json(tmp_path / "start-11-0" / "final.json")["figures"]
    assert first["ppo-11-0"]["exact_return"] == first["sdpo-11-0"]["exact_return"] == begin["exact_return"]
    assert set(statuses(run_cmdp(grid, root=tmp_path)).values()) == {"skipped"}


def test_another_phase_one_makes_other_runs(tiny: CmdpExperiment, tmp_path: Path):
    """Also where it happens to end after as many iterations, in a checkpoint of the same name."""
    run_cmdp(with_start(tiny, bound=1000.0), root=tmp_path)
    other = with_start(tiny, bound=1000.0)
    algorithm = PpoSettings(**{**dict(tiny.algorithms["ppo"]), "actor": ActorSettings(hidden=(), learning_rate=0.1)})
    assert other.safe_start is not None
    start = SafeStart(**{**dict(other.safe_start), "algorithm": algorithm})
    other = CmdpExperiment(**{**dict(other), "safe_start": start})
    assert set(statuses(run_cmdp(other, root=tmp_path)).values()) == {"failed"}
    assert set(statuses(run_cmdp(other, root=tmp_path, restart=True)).values()) == {"finished"}


def test_a_start_that_lost_its_checkpoints_is_made_again(tiny: CmdpExperiment, tmp_path: Path):
    grid = with_start(tiny, bound=1000.0)
    run_cmdp(grid, root=tmp_path)
    before = (tmp_path / "start-11-0" / "checkpoint-0000001.safetensors").read_bytes()
    for path in (tmp_path / "start-11-0").glob("checkpoint-*"):
        path.unlink()
    case = list_cmdp_runs(grid, tmp_path)[0]
    with pytest.raises(RunError, match=r"start-11-0 has no checkpoint: run the experiment again"):
        case.settings(grid.cmdp.draw(11))
    assert statuses(run_cmdp(grid, root=tmp_path)) == {
        "start-11-0": "finished",
        "ppo-11-0": "skipped",
        "sdpo-11-0": "skipped",
    }
    assert (tmp_path / "start-11-0" / "checkpoint-0000001.safetensors").read_bytes() == before


def test_runs_may_move_with_their_start(tiny: CmdpExperiment, tmp_path: Path):
    grid = with_start(tiny, bound=1000.0)
    run_cmdp(grid, root=tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert set(statuses(run_cmdp(grid, root=tmp_path / "there")).values()) == {"skipped"}


@pytest.mark.parametrize("file", ["metrics.parquet", "evaluation.npy", "final.json"])
def test_a_full_disk_is_one_sentence(tiny: CmdpExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str):
    """Also at the end of phase I, and when it is written down what a policy is worth."""
    put = os.replace

    def full(source, target):
        if Path(target).name == file:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        put(source, target)

    monkeypatch.setattr(os, "replace", full)
    start, *_ = run_cmdp(with_start(tiny, bound=1000.0), root=tmp_path)
    assert start.status == "failed" and "No space left on device" in start.message


def test_phase_one_that_finds_nothing_says_how_near_it_came(tiny: CmdpExperiment, tmp_path: Path):
    start, ppo, sdpo = run_cmdp(with_start(tiny, bound=0.001), root=tmp_path)
    assert (start.status, ppo.status, sdpo.status) == ("failed", "failed", "failed")
    assert "in 8 iterations (best slack -" in start.message
    assert ppo.message == f"start-11-0: {start.message}"


def test_cases_are_ordered_seed_by_seed(tiny: CmdpExperiment, tmp_path: Path):
    assert [case.name for case in list_cmdp_runs(tiny, tmp_path)] == RUNS
    assert all(isinstance(case, CmdpRun) and case.start is None for case in list_cmdp_runs(tiny, tmp_path))


def test_the_digest_of_a_cmdp_tells_horizons_and_costs_apart():
    """Their tables are the same: of another horizon, and with the costs in each other's place."""
    cmdp = random_cmdp(6, 2, seed=0, horizon=5, costs=("wear", "tear"))
    named = replace(cmdp, costs={"tear": cmdp.costs["wear"], "wear": cmdp.costs["tear"]})
    others = [cmdp, replace(cmdp, horizon=6), named, replace(cmdp, costs={})]
    assert len({digest(other) for other in others}) == 4
    assert digest(cmdp) == digest(random_cmdp(6, 2, seed=0, horizon=5, costs=("wear", "tear")))
