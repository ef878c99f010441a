"""The loop: same seed, same bytes, whatever happens in between; and errors that leave the earlier work intact."""

from __future__ import annotations

import copy
import errno
import functools
import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from pydantic import TypeAdapter

import portfolio_sdpo
from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import (
    CheckpointError,
    DivergenceError,
    EnvironmentFault,
    InfeasibleConstraintError,
    RunError,
    SettingsError,
)
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl import checkpoint, metrics
from portfolio_sdpo.rl.algorithms import ALGORITHMS, AnySettings, Problem
from portfolio_sdpo.rl.rollout import Collector
from portfolio_sdpo.rl.trainer import Trainer, TrainSettings, worker_collector

CMDP = random_cmdp(6, 3, seed=0, noise_scale=1.0, horizon=4, costs=("pain",))
ITERATIONS = 9
SPECS = {
    "ppo": "variance of reward <= 9",
    "ipo": "expectation of pain <= 3",
    "sdpo": "variance of reward <= 9 eta=1:20:10",
    "sdpo, pathwise": "cvar(0.1) of reward >= -9",
    "sdpo, phase I": "expectation of pain <= 2.32 eta=1:20:10",  # phase II begins in iteration 4
    "sdpo, memory": "expectation of pain <= 3",
    "sdpo, trajectory": "cvar(0.1) of reward >= -9",
    "cpo": "expectation of pain <= 3",
    "cpo, quantile": "variance of reward <= 9",
    "pcpo": "expectation of pain <= 3",
    "pcpo, quantile": "cvar(0.1) of reward >= -9",
    "pd-cvar": "cvar(0.1) of reward >= -9",
    "pd-var": "variance of reward <= 9",
    "pd-sdpo": "variance of reward <= 0.1 confidence=1",
    "pd-sdpo, trajectory": "cvar(0.1) of reward >= 9",
    "pd-sdpo, phase I": "expectation of pain <= 2.32",
}
EACH = pytest.mark.parametrize("name", SPECS)


def run_settings(name="sdpo", spec="", iterations=ITERATIONS, seed=0, actor=None, **options):
    """A run that takes a fraction of a second; its episodes are cut in the middle."""
    kind, _, form = name.partition(", ")
    algorithm = {"kind": kind, "actor": {"hidden": (4,), "learning_rate": 0.01, "anneal": 20, **(actor or {})}}
    if kind not in ("pd-cvar", "pd-var") and form != "trajectory":
        critic = "quantile" if kind in ("sdpo", "pd-sdpo") or form == "quantile" else "mean"
        algorithm["critic"] = {
            "kind": critic,
            "hidden": (4,),
            "dimension": 8,
            "atoms": 8,
            "warm_up": 2,
            "epochs": 1,
            "minibatches": 2,
        }
    if kind in ("ppo", "ipo", "sdpo", "pd-sdpo"):
        algorithm["epochs"] = 1
    if form in ("pathwise", "trajectory"):
        algorithm["estimator"] = form
    if form == "memory":
        algorithm["critic"] |= {"memory": 3, "transitions": 20}
    if form == "phase I":
        algorithm["phase_one"] = 1000
    return TrainSettings(
        problem=Problem(discount=0.9, constraints=(Constraint.from_spec(spec or SPECS[name]),)),
        algorithm=TypeAdapter(AnySettings).validate_python(algorithm | options.pop("algorithm", {})),
        iterations=iterations,
        steps=6,
        seed=seed,
        checkpoint_every=options.pop("checkpoint_every", 3),
        tensorboard=options.pop("tensorboard", False),
        **options,
    )


def trainer(settings, folder, env=None, probe=None):
    return Trainer(settings, env or RandomCmdpVectorEnv(CMDP, 5), Path(folder), probe)


def contents(folder):
    """Every file of the run by name; what a kill left behind half written is hidden."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if not path.name.startswith(".")}


def names(iterations):
    return [f"checkpoint-{iteration:07d}.safetensors" for iteration in iterations]


class Stop(Exception):
    pass


def stop_after(count):
    def watch(row):
        if row["iteration"] == count - 1:
            raise Stop

    return watch


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


LANES = {"count": 5, "lane": 2}
MAKE = functools.partial(RandomCmdpVectorEnv, CMDP)


@pytest.mark.parametrize("name", ["sdpo", "cpo"])
def test_overlapped_and_resumed_is_overlapped_and_uninterrupted(name, tmp_path):
    settings = run_settings(name, overlap=True)
    rows = trainer(settings, tmp_path / "whole").run()
    for count in (1, 5, 8):
        with pytest.raises(Stop):
            trainer(settings, tmp_path / "resumed").run(stop_after(count))
    assert trainer(settings, tmp_path / "resumed").run() == rows
    assert contents(tmp_path / "resumed") == contents(tmp_path / "whole")


class Recorder(Collector):
    """Keeps the policies that acted and what they collected."""

    def collect(self, policy, iteration, lane=0):
        rollout = super().collect(policy, iteration, lane)
        self.acted[iteration] = copy.deepcopy(policy.state_dict()), rollout
        return rollout


def test_overlapped_batches_are_one_update_behind(tmp_path):
    """Batch k is that of θ_{k−1}, and of the start for k = 0 and 1, also after a restart; and so is kl measured."""
    settings = run_settings("ppo", overlap=True)
    policies, acted = {}, {}
    for stop in (5, ITERATIONS):
        env = Recorder(RandomCmdpVectorEnv(CMDP, 5), settings.problem.signals(), settings.steps, settings.seed)
        env.acted = acted
        run = trainer(settings, tmp_path, env, lambda policy, k: policies.update({k: copy.deepcopy(policy)}) or {})
        rows = run.run(lambda row, stop=stop: row["iteration"] == stop - 1)
    policies[ITERATIONS] = run.policy
    assert sorted(acted) == list(range(ITERATIONS))
    for iteration, (state, rollout) in acted.items():
        before = policies[max(iteration - 1, 0)].state_dict()
        assert all(tensor.equal(before[name]) for name, tensor in state.items())
        new = policies[iteration + 1]
        with torch.no_grad():
            log_ratio = new.head.log_prob(new(rollout.observation), rollout.action) - rollout.log_prob
        assert rows[iteration]["kl"] == pytest.approx((log_ratio.exp() - 1 - log_ratio).mean().item(), abs=1e-9)
    assert not policies[1].network[1].weight.equal(policies[0].network[1].weight)


@pytest.mark.parametrize("overlap", [False, True])
def test_the_number_of_workers_is_no_part_of_the_result(tmp_path, overlap):
    settings = run_settings("ppo", iterations=4, overlap=overlap, **LANES)
    for workers in (0, 2):
        with worker_collector(settings, MAKE, workers) as env:
            run = trainer(settings, tmp_path / str(workers), env)
            run.run()
    assert contents(tmp_path / "0") == contents(tmp_path / "2")
    assert len(run.rows) == 4 and run.rows[0]["steps"] == 30


def test_lanes_and_overlap_are_settings_of_the_run(tmp_path):
    plain = run_settings("ppo")
    others = [run_settings("ppo", overlap=True), run_settings("ppo", **LANES), run_settings("ppo", count=5, lane=1)]
    assert len({settings.fingerprint("") for settings in (plain, *others)}) == 4
    # Runs that have neither go on as if there were no such settings.
    before = plain.model_dump_json(exclude={"start", "checkpoint_every", "tensorboard", "count", "lane", "overlap"})
    for later in ('"fit_first":true,', '"memory":1,', '"credit_discount":null,'):
        before = before.replace(later, "")
    assert plain.fingerprint("") == checkpoint.fingerprint([portfolio_sdpo.__version__, before, ""])

    trainer(others[0], tmp_path)
    with pytest.raises(RunError, match="holds a run with other settings"):
        trainer(plain, tmp_path)


def test_an_overlapped_run_is_a_start(tmp_path):
    first = trainer(run_settings("ppo", overlap=True), tmp_path / "first")
    first.run()
    start = checkpoint.checkpoints(tmp_path / "first")[-1]
    second = trainer(run_settings("ppo", overlap=True, start=start), tmp_path / "second")
    for name, tensor in first.policy.state_dict().items():
        assert second.policy.state_dict()[name].equal(tensor)
    rows = second.run()
    assert rows[0]["kl"] < 0.01  # the start acted, not a policy from before it


def test_a_collector_of_another_run(tmp_path):
    settings = run_settings("ppo", **LANES)
    others = [{"seed": 1}, {"spec": "variance of reward <= 9"}, {"count": 6}, {"lane": 1}]
    for other in others:
        given = run_settings("ppo", **{"spec": "expectation of pain <= 3", **LANES, **other})
        with (
            worker_collector(given, MAKE, 0) as env,
            pytest.raises(SettingsError, match=r"other signals, steps, seed or lanes than the run's settings: make it"),
        ):
            trainer(run_settings("ppo", "expectation of pain <= 3", **LANES), tmp_path, env)
    with pytest.raises(SettingsError, match=r"TrainSettings.count: lanes need a worker_collector\(\)"):
        trainer(settings, tmp_path)
    with pytest.raises(SettingsError, match=r"TrainSettings.count: .* so give count and lane"):
        worker_collector(run_settings("ppo"), MAKE, 0)
    for wrong in ({"count": 5}, {"lane": 5}, {"count": 5, "lane": 6}):
        with pytest.raises(SettingsError, match="count and lane: give both or none, lane at most count"):
            run_settings("ppo", **wrong)
    assert not list(tmp_path.iterdir())


# Real processes, really killed. They are forked: each starts in milliseconds and sees what the test has prepared.
FORK = multiprocessing.get_context("fork")


def in_child(target, *arguments):
    child = FORK.Process(target=target, args=arguments)
    child.start()
    return child


def run_to_the_end(settings, folder):
    trainer(settings, folder).run()


@pytest.fixture(scope="module", params=[False, True], ids=["in turn", "overlapped"])
def undisturbed(request, tmp_path_factory):
    settings = run_settings("sdpo", iterations=30, overlap=request.param)
    trainer(settings, tmp_path_factory.mktemp("warm")).run()  # imports and first calls do not count
    folder = tmp_path_factory.mktemp("undisturbed")
    begun = time.perf_counter()
    trainer(settings, folder).run()
    return settings, contents(folder), time.perf_counter() - begun


@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_random_moments(undisturbed, tmp_path, seed):
    """SIGKILL, restart, SIGKILL, … until it is through: the same bytes."""
    settings, expected, duration = undisturbed
    rng = random.Random(seed)
    kills = 0
    while True:
        child = in_child(run_to_the_end, settings, tmp_path)
        child.join(rng.uniform(0.02, 0.25) * duration if kills < 12 else 60)
        if child.exitcode == 0:
            break
        assert child.exitcode is None, "it ended by itself"
        child.kill()
        child.join()
        if child.exitcode == 0:  # through just before the signal came
            break
        assert child.exitcode == -signal.SIGKILL
        kills += 1
    assert kills >= 3
    assert contents(tmp_path) == expected


def killed_while_saving(settings, folder, call, when):
    """Dies before or after the `call`-th time that a file takes its place, or half way through writing it."""
    count = 0
    replace, fsync = os.replace, os.fsync

    def deadly(*arguments):
        nonlocal count
        count += 1
        if count == call and when in ("before", "written"):
            os.kill(os.getpid(), signal.SIGKILL)
        (replace if when != "written" else fsync)(*arguments)
        if count == call:
            os.kill(os.getpid(), signal.SIGKILL)

    if when == "written":
        os.fsync = deadly
    else:
        os.replace = deadly
    run_to_the_end(settings, folder)


@pytest.mark.parametrize("when", ["written", "before", "after"])
def test_killed_at_every_moment_of_saving(tmp_path, when):
    """config.json, then metrics and checkpoint in turn: five times in a row the run dies one file later."""
    settings = run_settings("pd-var", iterations=30)
    trainer(settings, tmp_path / "whole").run()
    folder = tmp_path / "killed"
    for call in range(1, 6):
        child = in_child(killed_while_saving, settings, folder, call, when)
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
    run_to_the_end(settings, folder)
    assert contents(folder) == contents(tmp_path / "whole")


def interrupted_in_an_update(settings, folder, times):
    """Ctrl-C in the middle of the fifth update, once or twice; the exit code says whether the run was interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = trainer(settings, folder)
    fit = run.algorithm.critics.fit

    def fit_and_interrupt(*arguments):
        fitted = fit(*arguments)
        if run.iteration == 4:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return fitted

    run.algorithm.critics.fit = fit_and_interrupt
    try:
        run.run()
    except KeyboardInterrupt:
        os._exit(7)


@pytest.mark.parametrize("times, reached", [(1, 5), (2, 3)])
def test_an_interrupt_saves_a_whole_iteration(tmp_path, times, reached):
    """The first Ctrl-C waits for the update to be complete and saves; a second one does not wait, nor save."""
    settings = run_settings("sdpo")
    trainer(settings, tmp_path / "whole").run()
    folder = tmp_path / "stopped"
    child = in_child(interrupted_in_an_update, settings, folder, times)
    child.join(60)
    assert child.exitcode == 7
    resumed = trainer(settings, folder)
    assert resumed.iteration == reached
    resumed.run()
    assert contents(folder)["metrics.parquet"] == contents(tmp_path / "whole")["metrics.parquet"]
    assert contents(folder)[names([9])[0]] == contents(tmp_path / "whole")[names([9])[0]]


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_full_disk_leaves_the_earlier_checkpoint(tmp_path, monkeypatch, function):
    settings = run_settings("ppo")
    folder = tmp_path / "run"
    run = trainer(settings, folder)
    original = getattr(os, function)

    def full(*arguments):
        if run.iteration >= 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*arguments)

    monkeypatch.setattr(os, function, full)
    with pytest.raises(RunError, match=r"cannot save to .*No space left on device.*make room and run again"):
        run.run()
    assert [path.name for path in checkpoint.checkpoints(folder)] == names([3])
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    monkeypatch.undo()
    trainer(settings, folder).run()
    trainer(settings, tmp_path / "whole").run()
    assert contents(folder) == contents(tmp_path / "whole")


def test_a_corrupt_checkpoint_can_be_deleted(tmp_path):
    settings = run_settings("sdpo")
    trainer(settings, tmp_path).run()
    expected = contents(tmp_path)
    newest = checkpoint.checkpoints(tmp_path)[-1]
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="delete it to continue from the one before it"):
        trainer(settings, tmp_path)
    newest.unlink()
    again = trainer(settings, tmp_path)
    assert again.iteration == 6
    again.run()
    assert contents(tmp_path) == expected


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
