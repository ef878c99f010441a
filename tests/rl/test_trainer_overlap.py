"""Batches that are collected during updates, in lanes and worker processes: the same bytes whatever the number."""

from __future__ import annotations

import copy
import functools

import pytest
import torch

import portfolio_sdpo
from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv
from portfolio_sdpo.errors import (
    RunError,
    SettingsError,
)
from portfolio_sdpo.rl import checkpoint
from portfolio_sdpo.rl.rollout import Collector
from portfolio_sdpo.rl.trainer import worker_collector
from tests.rl.training_examples import (
    CMDP,
    ITERATIONS,
    Stop,
    contents,
    run_settings,
    stop_after,
    trainer,
)

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
    for later in ('"fit_first":true,', '"memory":1,', '"credit_discount":null,', ',"logit_bound":null'):
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
