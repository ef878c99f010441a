"""The loop: same seed, same bytes, whatever happens in between; and errors that leave the earlier work intact."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
import torch

from portfolio_sdpo.common.files import mark_alive
from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv
from portfolio_sdpo.errors import (
    CheckpointError,
    DivergenceError,
    EnvironmentFault,
    InfeasibleConstraintError,
    RunError,
    SettingsError,
)
from portfolio_sdpo.rl import checkpoint, metrics
from portfolio_sdpo.rl.algorithms import ALGORITHMS
from portfolio_sdpo.rl.trainer import ALIVE, TrainSettings
from tests.rl.training_examples import (
    CMDP,
    EACH,
    ITERATIONS,
    SPECS,
    Stop,
    contents,
    names,
    run_settings,
    stop_after,
    trainer,
)


def test_every_algorithm_is_covered():
    assert {name.partition(", ")[0] for name in SPECS} == set(ALGORITHMS)


@EACH
def test_same_seed_same_bytes_and_a_resumed_run_is_an_uninterrupted_one(name, tmp_path):
    settings = run_settings(name)
    whole = trainer(settings, tmp_path / "whole")
    rows = whole.run()
    assert len(rows) == ITERATIONS and {"return", "risk_0", "kl", "entropy", "steps"} <= rows[0].keys()
    trainer(settings, tmp_path / "again").run()
    assert contents(tmp_path / "again") == contents(tmp_path / "whole")

    for count in (5, 8):
        with pytest.raises(Stop):
            trainer(settings, tmp_path / "resumed").run(stop_after(count))
        torch.manual_seed(count)
    resumed = trainer(settings, tmp_path / "resumed")
    assert resumed.iteration == 6 and len(resumed.rows) == 6
    assert resumed.run() == rows
    assert contents(tmp_path / "resumed") == contents(tmp_path / "whole")
    assert sorted(contents(tmp_path / "whole")) == [*names((6, 9)), "config.json", "metrics.parquet"]


def test_another_seed_is_another_run(tmp_path):
    one, other = (trainer(run_settings("ppo", seed=seed), tmp_path / str(seed)).run() for seed in (0, 1))
    assert [row["return"] for row in one] != [row["return"] for row in other]


def test_a_finished_run_stays_finished(tmp_path):
    settings = run_settings("ppo")
    rows = trainer(settings, tmp_path).run()
    before = contents(tmp_path)
    done = trainer(settings, tmp_path)
    assert done.iteration == ITERATIONS and done.run() == rows
    assert contents(tmp_path) == before


def test_a_folder_with_another_run_is_left_alone(tmp_path):
    trainer(run_settings("ppo"), tmp_path).run()
    before = contents(tmp_path)
    for other in (run_settings("ppo", seed=1), run_settings("ipo"), run_settings("ppo", iterations=10)):
        with pytest.raises(RunError, match="holds a run with other settings: choose another folder"):
            trainer(other, tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"null"])
def test_an_unreadable_config(tmp_path, content):
    trainer(run_settings("ppo"), tmp_path)
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(RunError, match=r"config.json cannot be read .*choose another run folder"):
        trainer(run_settings("ppo"), tmp_path)


def test_a_lost_log(tmp_path):
    settings = run_settings("ppo")
    rows = trainer(settings, tmp_path).run()
    log = tmp_path / "metrics.parquet"
    log.write_bytes(log.read_bytes()[:100])
    with pytest.raises(RunError, match="cannot be read"):
        trainer(settings, tmp_path)
    log.unlink()
    with pytest.raises(RunError, match="cannot be read"):
        trainer(settings, tmp_path)
    metrics.write_rows(log, rows[:4])
    with pytest.raises(CheckpointError, match=r"fewer rows in metrics\.parquet than its checkpoint"):
        trainer(settings, tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot make the run folder .*Not a directory"):
        trainer(run_settings("ppo"), tmp_path / "file" / "run")


@pytest.mark.parametrize("name", ["ipo", "sdpo", "sdpo, pathwise"])
def test_phase_one_that_cannot_succeed(tmp_path, name):
    """Costs are positive, so none is below −1; and no 0.1-CVaR of four such rewards is above 50."""
    spec = "cvar(0.1) of reward >= 50" if "pathwise" in name else "expectation of pain <= -1"
    settings = run_settings(name, spec, algorithm={"phase_one": 6}, iterations=50)
    run = trainer(settings, tmp_path)
    with pytest.raises(
        InfeasibleConstraintError, match=r"did not satisfy '.*' in 6 iterations \(best slack -"
    ) as caught:
        run.run()
    best = max(row["slack_0"] for row in run.rows)
    assert best <= caught.value.best_slack < best + 1  # the iteration in which it gave up counts too
    assert caught.value.best_slack < -1
    assert run.iteration == 6 and all(row["phase"] == 1 for row in run.rows)
    assert json.loads((tmp_path / "config.json").read_text())["start"] == "phase I"
    assert trainer(settings, tmp_path).iteration == 6


@pytest.mark.parametrize("iterations", [4, 6])
def test_a_run_that_ends_in_phase_one_has_failed(tmp_path, iterations):
    """It may have as many iterations as phase I, or fewer: its end is no success, and what it did is kept."""
    settings = run_settings("ipo", "expectation of pain <= -1", algorithm={"phase_one": 6}, iterations=iterations)
    message = rf"did not satisfy 'expectation of pain <= -1' in {iterations} iterations \(best slack -.* safe policy\.$"
    run = trainer(settings, tmp_path)
    for again in (run, trainer(settings, tmp_path)):
        with pytest.raises(InfeasibleConstraintError, match=message) as caught:
            again.run()
        assert caught.value.best_slack == max(row["slack_0"] for row in run.rows)
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == names([3, iterations])
    assert len(metrics.read_rows(tmp_path / "metrics.parquet")) == iterations


def test_a_watcher_can_end_the_run(tmp_path):
    """What it has seen is saved; and who ends phase I knows why, so that is no failure."""
    settings = run_settings("ipo", "expectation of pain <= -1", algorithm={"phase_one": 6})
    rows = trainer(settings, tmp_path).run(lambda row: row["iteration"] == 4)
    assert len(rows) == 5 and metrics.read_rows(tmp_path / "metrics.parquet") == rows
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == names([3, 5])
    assert trainer(settings, tmp_path).iteration == 5


def test_phase_one_ends_when_the_constraint_holds(tmp_path):
    """The uniform policy has an expected pain of 2.23, the best 1.39: phase I leads below 1.9, then reward counts."""
    settings = run_settings(
        "ipo", "expectation of pain <= 1.9", algorithm={"phase_one": 200}, iterations=40, actor={"learning_rate": 0.1}
    )
    rows = trainer(settings, tmp_path).run()
    phases = [row["phase"] for row in rows]
    assert phases[0] == 1 and phases[-1] == 2 and phases == sorted(phases)
    first = phases.index(2.0)
    assert rows[first]["slack_0"] > 0 > rows[0]["slack_0"]
    assert {row["price_0"] for row in rows[:first]} == {1.0}


@pytest.mark.parametrize("name", ["ppo", "sdpo"])
def test_too_fast_a_critic_diverges(tmp_path, name):
    kind = "mean" if name == "ppo" else "quantile"
    settings = run_settings(name, algorithm={"critic": {"kind": kind, "hidden": (4,), "learning_rate": 1e25}})
    with pytest.raises(DivergenceError, match=r"not finite.*: lower the .*learning rate"):
        trainer(settings, tmp_path).run()


def test_a_policy_that_is_not_finite_is_not_saved(tmp_path):
    settings = run_settings("ppo")
    run = trainer(settings, tmp_path / "broken")
    update = run.algorithm.update

    def diverging(rollout, iteration, generator):
        row = update(rollout, iteration, generator)
        if iteration == 4:
            next(run.policy.parameters()).data.fill_(float("inf"))
        return row

    run.algorithm.update = diverging
    with pytest.raises(DivergenceError, match=r"diverged in iteration 4 \(policy weights not finite\)"):
        run.run()
    again = trainer(settings, tmp_path / "broken")
    assert again.iteration == 3
    again.run()
    trainer(settings, tmp_path / "whole").run()
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


class Breaks(RandomCmdpVectorEnv):
    """Its rewards are NaN from the 29th step on."""

    steps = 0

    def step(self, actions):
        self.steps += 1
        observation, reward, *rest = super().step(actions)
        return observation, reward * (float("nan") if self.steps > 28 else 1.0), *rest


def test_an_environment_that_breaks_leaves_the_earlier_checkpoint(tmp_path):
    settings = run_settings("sdpo")
    with pytest.raises(EnvironmentFault, match="a reward that is not finite"):
        trainer(settings, tmp_path / "broken", Breaks(CMDP, 5)).run()
    assert [path.name for path in checkpoint.checkpoints(tmp_path / "broken")] == names([3])
    trainer(settings, tmp_path / "broken").run()
    trainer(settings, tmp_path / "whole").run()
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


def test_starts_from_a_given_policy(tmp_path):
    first = trainer(run_settings("ppo"), tmp_path / "first")
    first.run()
    start = checkpoint.checkpoints(tmp_path / "first")[-1]
    settings = run_settings("sdpo", start=start)
    second = trainer(settings, tmp_path / "second")
    for name, tensor in first.policy.state_dict().items():
        assert second.policy.state_dict()[name].equal(tensor)
    assert json.loads((tmp_path / "second" / "config.json").read_text())["start"] == f"checkpoint {start}"
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        trainer(run_settings("sdpo", start=tmp_path / "none"), tmp_path / "third")
    with pytest.raises(CheckpointError, match="does not fit this run's"):
        trainer(run_settings("sdpo", start=start, actor={"hidden": ()}), tmp_path / "fourth")


def test_the_start_counts_by_its_content(tmp_path):
    """Not by its path: it may be moved; and once the run has a checkpoint of its own, it may be gone."""
    trainer(run_settings("ppo"), tmp_path / "first").run()
    earlier, later = checkpoint.checkpoints(tmp_path / "first")
    trainer(run_settings("sdpo", start=later), tmp_path / "whole").run()
    with pytest.raises(Stop):
        trainer(run_settings("sdpo", start=later), tmp_path / "run").run(stop_after(5))
    with pytest.raises(RunError, match="holds a run with other settings"):
        trainer(run_settings("sdpo", start=earlier), tmp_path / "run")

    moved = tmp_path / "moved.safetensors"
    later.rename(moved)
    assert trainer(run_settings("sdpo", start=moved), tmp_path / "run").iteration == 3
    moved.unlink()
    resumed = trainer(run_settings("sdpo", start=later), tmp_path / "run")
    assert resumed.iteration == 3
    resumed.run()
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    with pytest.raises(RunError, match="holds a run with other settings"):
        trainer(run_settings("sdpo", start=later, seed=1), tmp_path / "run")
    trainer(run_settings("sdpo", start=earlier), tmp_path / "begun")
    earlier.unlink()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        trainer(run_settings("sdpo", start=earlier), tmp_path / "begun")


def test_how_often_is_saved_and_shown_may_change(tmp_path):
    with pytest.raises(Stop):
        trainer(run_settings("ppo"), tmp_path / "run").run(stop_after(5))
    other = run_settings("ppo", checkpoint_every=2, tensorboard=True)
    rows = trainer(other, tmp_path / "run").run()
    assert rows == trainer(run_settings("ppo"), tmp_path / "whole").run()


def test_what_is_recorded(tmp_path):
    """Probe and watcher see every iteration; the log holds no time, so that it is the same on every machine."""
    seen = []

    def probe(policy, iteration):
        return {"probed": float(iteration) + sum(p.sum().item() for p in policy.parameters())}

    run = trainer(run_settings("sdpo", tensorboard=True, environment="little"), tmp_path, probe=probe)
    rows = run.run(seen.append)
    assert [row["iteration"] for row in rows] == list(range(ITERATIONS))
    assert all(row["steps_per_second"] > 0 for row in seen) and len(seen) == ITERATIONS
    table = pq.read_table(tmp_path / "metrics.parquet")
    assert table.num_rows == ITERATIONS and "steps_per_second" not in table.column_names
    assert {"probed", "phase", "regime_0", "slack_0", "price_0", "suboptimality_bound"} <= set(table.column_names)
    assert metrics.read_rows(tmp_path / "metrics.parquet") == rows
    config = metrics.read_config(tmp_path / "config.json")
    assert TrainSettings.model_validate_json(json.dumps(config["settings"])) == run.settings
    assert config["start"] == "initial policy" and config["settings"]["environment"] == "little"
    assert list((tmp_path / "events").glob("events.*"))


def test_rows_may_differ_in_their_columns(tmp_path):
    rows = [{"a": 1.0, "word": "x"}, {"a": 2.0, "b": 3.0}, {"b": float("inf")}]
    metrics.write_rows(tmp_path / "rows", rows)
    assert metrics.read_rows(tmp_path / "rows") == rows


@pytest.mark.parametrize("field, value", [("iterations", 0), ("steps", 0), ("seed", -1), ("checkpoint_every", 0)])
def test_wrong_settings_name_their_field(field, value):
    with pytest.raises(SettingsError, match=f"TrainSettings.{field}"):
        TrainSettings(**{**run_settings("ppo").model_dump(), field: value})


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    """Both would remove each other's checkpoints; the lock is that of any process, this one included."""
    settings, folder = run_settings(), tmp_path / "run"
    with pytest.raises(Stop):
        trainer(settings, folder).run(stop_after(3))
    before = contents(folder)
    second = trainer(settings, folder)
    with mark_alive(folder / ALIVE), pytest.raises(RunError, match=r"another process is training in .*run: wait"):
        second.run()
    assert {name: content for name, content in contents(folder).items() if name != ALIVE} == before
    assert len(trainer(settings, folder).run()) == ITERATIONS
