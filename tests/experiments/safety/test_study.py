"""Every task trains every algorithm; runs are skipped, go on, fail and are replaced like those of any grid."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from portfolio_sdpo.errors import EnvironmentFault, MissingExtraError
from portfolio_sdpo.experiments.engine.folders import read_json
from portfolio_sdpo.experiments.safety import study as module
from portfolio_sdpo.experiments.safety.experiment import TASKS, BarrierSettings, SafetyExperiment, WorldSettings
from portfolio_sdpo.experiments.safety.study import SafetyRun, gauge, list_safety_runs, run_safety, train_safety
from portfolio_sdpo.rl import Rollout
from portfolio_sdpo.rl.metrics import read_config, read_rows

from .safety_toys import TWO, toy

needs_suite = pytest.mark.skipif(
    importlib.util.find_spec("safety_gymnasium") is None, reason="Safety-Gymnasium is not installed"
)
ALGORITHMS = ["ppo", "ipo", "sdpo", "cpo", "pcpo"]
REPRODUCIBLE = ("config.json", "metrics.parquet", "checkpoint-0000002.safetensors")


def statuses(outcomes) -> dict[str, str]:
    return {outcome.run: outcome.status for outcome in outcomes}


def contents(root: Path, runs: list[str]) -> dict[str, bytes]:
    return {f"{run}/{name}": (root / run / name).read_bytes() for run in runs for name in REPRODUCIBLE}


@needs_suite
@pytest.mark.parametrize("task", TASKS)
def test_every_task_trains_every_algorithm(task: str, tmp_path: Path):
    outcomes = run_safety(toy(task, lane=1, checkpoint_every=2), root=tmp_path)
    assert statuses(outcomes) == {f"{label}-0": "finished" for label in ALGORITHMS}, outcomes
    for label in ALGORITHMS:
        rows = read_rows(tmp_path / f"{label}-0" / "metrics.parquet")
        assert [row["total_steps"] for row in rows] == [40, 80]
        assert {"episode_return", "episode_cost", "over_0", "batch_cost", "risk_0", "kl"} <= rows[0].keys()
        assert all(row["episode_cost"] == pytest.approx(row["risk_empirical_0"]) for row in rows)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[SafetyExperiment, Path]:
    """Question (C) as a toy, made in one go; not to be changed."""
    if importlib.util.find_spec("safety_gymnasium") is None:
        pytest.skip("Safety-Gymnasium is not installed")
    experiment = two_constraints()
    root = tmp_path_factory.mktemp("safety")
    assert set(statuses(run_safety(experiment, root=root)).values()) == {"finished"}
    return experiment, root


def two_constraints(**changes) -> SafetyExperiment:
    world = WorldSettings(task="PointGoal2", terminal_hazards=True, horizon=20)
    experiment = toy(
        world=world, problem=TWO, barriers={"ipo": 2 * (BarrierSettings(eta=60, margin=1),)}, lane=1, **changes
    )
    return experiment.with_changes(algorithms=("ipo", "sdpo"))


def test_two_constraints_are_trained_and_logged(finished):
    experiment, root = finished
    for label in experiment.algorithms:
        config = read_config(root / f"{label}-0" / "config.json")["settings"]
        etas = [constraint["eta"] for constraint in config["problem"]["constraints"]]
        assert etas == ([60, 60] if label == "ipo" else [40, 60])
        assert "terminal_hazards" in config["environment"] and "undiscounted" in config["environment"]
        row = read_rows(root / f"{label}-0" / "metrics.parquet")[-1]
        assert {"episode_vases", "episode_hazards", "risk_0", "risk_1", "over_0", "over_1"} <= row.keys()
        final = read_json(root / f"{label}-0" / "final.json")
        assert (final["label"], final["seed"], final["iterations"]) == (label, 0, 2)
        assert final["steps_per_second"] > 0


def test_runs_that_are_done_are_skipped(finished):
    experiment, root = finished
    before = contents(root, ["ipo-0", "sdpo-0"])
    assert set(statuses(run_safety(experiment, root=root)).values()) == {"skipped"}
    assert contents(root, ["ipo-0", "sdpo-0"]) == before


@pytest.mark.parametrize("overlap", [False, True])
def test_an_interrupted_run_goes_on_to_the_same_bytes(finished, tmp_path: Path, monkeypatch, overlap: bool):
    """Stopped in its second iteration, after the first checkpoint."""
    experiment, root = finished
    if overlap:
        experiment, root = experiment.with_changes(overlap=True), tmp_path / "whole"
        assert set(statuses(run_safety(experiment, root=root)).values()) == {"finished"}

    def interrupted(rollout, iteration, **others):
        if iteration == 1:
            raise KeyboardInterrupt
        return read(rollout, iteration, **others)

    read = module._read
    monkeypatch.setattr(module, "_read", interrupted)
    again = tmp_path / "again"
    with pytest.raises(KeyboardInterrupt):
        run_safety(experiment, root=again)
    monkeypatch.undo()
    assert len(read_rows(again / "ipo-0" / "metrics.parquet")) == 1 and not (again / "ipo-0" / "final.json").exists()
    assert set(statuses(run_safety(experiment, root=again)).values()) == {"finished"}
    assert contents(again, ["ipo-0", "sdpo-0"]) == contents(root, ["ipo-0", "sdpo-0"])


def test_worker_processes_change_nothing(finished, tmp_path: Path):
    experiment, root = finished
    only = experiment.with_changes(algorithms=("sdpo",))
    assert statuses(run_safety(only, root=tmp_path, workers=2)) == {"sdpo-0": "finished"}
    assert contents(tmp_path, ["sdpo-0"]) == contents(root, ["sdpo-0"])
    assert read_json(tmp_path / "sdpo-0" / "final.json")["workers"] == 2


def test_other_settings_need_a_restart(finished, tmp_path: Path, monkeypatch):
    made = []
    monkeypatch.setattr(module, "train_safety", lambda run, watch, workers: made.append((run.name, workers)))
    experiment, root = finished
    longer = experiment.with_changes(iterations=3, algorithms=("ipo",))
    (outcome,) = run_safety(longer, root=root)
    assert outcome.status == "failed" and "add --restart to replace it" in outcome.message
    (tmp_path / "ipo-0").mkdir()
    (tmp_path / "ipo-0" / "config.json").write_bytes((root / "ipo-0" / "config.json").read_bytes())
    assert statuses(run_safety(longer, root=tmp_path, restart=True, workers=3)) == {"ipo-0": "finished"}
    assert made == [("ipo-0", 3)] and not (tmp_path / "ipo-0").exists()


def test_a_run_that_fails_is_recorded_and_does_not_stop_the_others(tmp_path: Path, monkeypatch):
    def train(run: SafetyRun, watch, workers):
        if run.label == "ppo":
            raise EnvironmentFault("the robot fell over.")
        run.mark_done(iterations=2, workers=workers, steps_per_second=None)

    monkeypatch.setattr(module, "train_safety", train)
    experiment = toy().with_changes(algorithms=("ppo", "ipo"))
    outcomes = run_safety(experiment, root=tmp_path)
    assert statuses(outcomes) == {"ppo-0": "failed", "ipo-0": "finished"}
    assert json.loads((tmp_path / "ppo-0" / "failure.json").read_text()) == {
        "label": "ppo",
        "seed": 0,
        "error": "EnvironmentFault",
        "message": "the robot fell over.",
    }


def missing(count, world):
    raise MissingExtraError("install it.")


def test_a_suite_that_is_missing_is_one_sentence(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(module, "_make_worlds", missing)
    (run,) = list_safety_runs(toy().with_changes(algorithms=("ppo",)), tmp_path)
    with pytest.raises(MissingExtraError, match=r"^install it\.$"):
        train_safety(run)


def test_runs_are_ordered_seed_by_seed(tmp_path: Path):
    experiment = toy(seeds=(3, 5)).with_changes(algorithms=("ppo", "sdpo"))
    assert [run.name for run in list_safety_runs(experiment, tmp_path)] == ["ppo-3", "sdpo-3", "ppo-5", "sdpo-5"]


def test_the_gauge_reads_plain_sums_off_whole_episodes():
    """Two robots: one whole episode of two steps and one step of the next, which the batch cuts off; one of three."""
    flags = {
        "ended": [False, True, False, False, False, True],
        "last": [False, True, True, False, False, True],
    }
    rollout = Rollout(
        observation=torch.zeros(6, 1),
        action=torch.zeros(6, 1),
        log_prob=torch.zeros(6),
        signals={
            "reward": torch.tensor([1.0, 2.0, 50.0, 4.0, 4.0, 4.0]),
            "vases": torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
            "hazards": torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
        },
        next_observation=torch.zeros(6, 1),
        terminated=torch.tensor([False, True, False, False, False, False]),
        ended=torch.tensor(flags["ended"]),
        last=torch.tensor(flags["last"]),
        episode=torch.tensor([0, 0, 1, 2, 2, 2]),
        step=torch.tensor([0, 1, 0, 0, 1, 2]),
    )
    assert gauge(two_constraints())(rollout, 3) == {
        "episode_return": pytest.approx(7.5),  # 3 and 12
        "episode_vases": pytest.approx(2.0),  # 1 and 3
        "batch_vases": pytest.approx(5.0),
        "episode_hazards": pytest.approx(0.5),
        "batch_hazards": pytest.approx(1.0),
        "over_0": pytest.approx(0.5),
        "over_1": pytest.approx(0.5),
        "episode_length": pytest.approx(2.5),
        "total_steps": 160.0,
    }
