"""Lanes in worker processes: the same bytes by however many hands, real faults, and nobody left behind."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from dataclasses import fields
from pathlib import Path

import gymnasium
import joblib
import pytest
import torch

from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import EnvironmentFault, SettingsError
from portfolio_sdpo.nn.networks import Policy
from portfolio_sdpo.rl import worker_process
from portfolio_sdpo.rl.rollout import Collector, Purpose, Rollout, stream
from portfolio_sdpo.rl.workers import WorkerCollector

CMDP = random_cmdp(6, 3, seed=0, noise_scale=1.0, horizon=4, costs=("pain",))
MAKE = functools.partial(RandomCmdpVectorEnv, CMDP)
SEED = 3


class Faulty(RandomCmdpVectorEnv):
    """Does something in its third step, whenever a lane is one environment small."""

    def __init__(self, fault, marker, count):
        super().__init__(CMDP, count)
        self.fault, self.marker, self.count = fault, marker, 0

    def step(self, actions):
        self.count += 1
        if self.num_envs == 1 and self.count == 3:
            if self.fault == "killed once" and not Path(self.marker).exists():
                Path(self.marker).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "raises":
                raise ZeroDivisionError("the ice is thin")
        observation, reward, *rest = super().step(actions)
        return observation, reward * (float("nan") if self.fault == "nan" else 1.0), *rest


def make_nothing(count):
    return None


def make_too_many(count):
    return MAKE(count + 1)


def make_raises(count):
    raise KeyError("no such ice rink")


def make_leaves(count):
    os._exit(3)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Workers import this file by its name to find the classes above."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])


def collector(count=7, lane=2, hands=0, make=MAKE, steps=6):
    return WorkerCollector(make, count, lane, hands, ["pain"], steps, SEED)


def policy_for(env, seed=0):
    torch.manual_seed(seed)
    return Policy(env.codec, env.single_action_space, (8, 8))


def assert_same(one, other):
    for name in [item.name for item in fields(Rollout) if item.name != "signals"]:
        left, right = getattr(one, name), getattr(other, name)
        assert left.dtype == right.dtype and left.numpy().tobytes() == right.numpy().tobytes(), name
    assert list(one.signals) == list(other.signals)
    for name, values in one.signals.items():
        assert values.numpy().tobytes() == other.signals[name].numpy().tobytes(), name


def gone(pids, seconds=60.0):
    """Whether these processes end."""
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def by_hand_joined():
    """Iterations 4 and 5, lane by lane in this process."""
    lanes = [Collector(MAKE(size), ["pain"], 6, SEED) for size in (2, 2, 2, 1)]
    policy = policy_for(lanes[0])
    return [Rollout.join([one.collect(policy, k, lane) for lane, one in enumerate(lanes)]) for k in (4, 5)]


@pytest.fixture(scope="module")
def two():
    with collector(hands=2) as shared:
        yield shared


def test_lanes_draw_from_streams_of_their_own():
    states = {stream(0, 1, Purpose.COLLECT, lane).generate_state(2).tobytes() for lane in range(50)}
    assert len(states) == 50
    for seed in (0, 2**40):
        one, other = stream(seed, 7, Purpose.COLLECT), stream(seed, 7, Purpose.COLLECT, 0)
        assert one.generate_state(4).tolist() == other.generate_state(4).tolist()


def test_joined(by_hand):
    parts = [by_hand([[1.0, 2.0], [4.0]], [True, False]), by_hand([[8.0]], [True]), by_hand([[16.0, 32.0]], [False])]
    whole = by_hand([[1.0, 2.0], [4.0], [8.0], [16.0, 32.0]], [True, False, True, False])
    assert_same(Rollout.join(parts), whole)
    assert Rollout.join(parts).starts.tolist() == [0, 2, 3, 4]
    assert Rollout.join(parts[:1]) is parts[0]


@pytest.mark.parametrize("hands", [0, 1, 2, 3, 9])
def test_any_number_of_workers_gives_the_same_bytes(by_hand_joined, hands):
    with collector(hands=hands) as env:
        assert env.sizes == (2, 2, 2, 1)
        policy = policy_for(env)
        one, other = env.collect(policy, 4), env.collect(policy, 5)
        assert len(env.pids) <= min(hands, 4)
        pids = env.pids
    for rollout, expected in zip((one, other), by_hand_joined, strict=True):
        assert_same(rollout, expected)
    assert len(one) == 7 * 6 and not one.observation.equal(other.observation)
    assert gone(pids, 0)


def test_one_lane_is_a_plain_collector():
    plain = Collector(MAKE(3), ["pain"], 6, SEED)
    with collector(3, 3) as env:
        assert_same(env.collect(policy_for(env), 2), plain.collect(policy_for(plain), 2))


def test_environments_of_gymnasium():
    """One by one in a process, episodes of different lengths, and reset in the step after."""
    make = functools.partial(gymnasium.make_vec, "CartPole-v1", vectorization_mode="sync")
    rollouts = []
    for hands in (0, 1):
        with WorkerCollector(make, 3, 2, hands, [], 60, SEED) as env:
            policy = policy_for(env)
            rollouts.append([env.collect(policy, k) for k in (0, 1, 0)])
    for one, other in zip(*rollouts, strict=True):
        assert_same(one, other)
    assert_same(rollouts[0][0], rollouts[0][2])
    assert rollouts[0][0].terminated.any() and len(rollouts[0][0]) < 180


def test_spaces_are_those_of_the_environment(two):
    env = MAKE(1)
    assert two.single_observation_space == env.single_observation_space
    assert two.single_action_space == env.single_action_space and two.codec.width == 2
    assert two.signals == ["reward", "pain"] and two.layout == (7, 2)


@pytest.mark.parametrize("hands", [0, 2])
def test_begin_takes_the_policy_as_it_is(by_hand_joined, two, hands):
    with collector() as here:
        env = two if hands else here
        policy = policy_for(env)
        env.begin(policy, 9)  # dropped
        env.begin(policy, 4)
        for parameter in policy.parameters():
            parameter.data.fill_(float("nan"))
        assert_same(env.finish(), by_hand_joined[0])
        with pytest.raises(RuntimeError, match="after begin"):
            env.finish()


def test_a_plain_collector_begins_and_finishes_too():
    env = Collector(MAKE(3), ["pain"], 6, SEED)
    policy = policy_for(env)
    expected = env.collect(policy, 2)
    env.begin(policy, 2)
    policy.network[1].bias.data.add_(1.0)
    assert_same(env.finish(), expected)
    with pytest.raises(RuntimeError, match="after begin"):
        env.finish()


def test_killed_while_idle_and_while_at_work(by_hand_joined, two):
    policy = policy_for(two)
    two.collect(policy, 0)
    before = two.pids
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert_same(two.collect(policy, 4), by_hand_joined[0])
    two.begin(policy, 5)
    for pid in two.pids:
        os.kill(pid, signal.SIGKILL)
    assert_same(two.finish(), by_hand_joined[1])
    assert not set(two.pids) & set(before) and gone(before)


def test_killed_in_the_middle_of_a_batch(by_hand_joined, tmp_path):
    """The lane is collected again, to the same bytes."""
    marker = tmp_path / "killed"
    with collector(hands=2, make=functools.partial(Faulty, "killed once", str(marker))) as env:
        assert_same(env.collect(policy_for(env), 4), by_hand_joined[0])
        assert marker.exists()
        assert_same(env.collect(policy_for(env), 5), by_hand_joined[1])


def test_killed_again_and_again():
    with collector(hands=2, make=functools.partial(Faulty, "killed", "")) as env:
        with pytest.raises(EnvironmentFault, match="lane 3 ended by SIGKILL in 3 attempts at iteration 4: allow fewer"):
            env.collect(policy_for(env), 4)
        pids = env.pids
    assert gone(pids, 0)


@pytest.mark.parametrize("hands", [0, 2])
def test_an_environment_that_raises(hands):
    with collector(hands=hands, make=functools.partial(Faulty, "raises", "")) as env:
        policy = policy_for(env)
        with pytest.raises(
            EnvironmentFault,
            match=r"lane 3 of iteration 4 failed with ZeroDivisionError in test_workers.py:\d+, 'the ice is thin': cor",
        ) as caught:
            env.collect(policy, 4)
        if hands:
            assert "In the worker process" in caught.value.__notes__[0] and "in step" in caught.value.__notes__[0]
        pids = env.pids
        assert len(pids) <= hands
    assert gone(pids, 0)
    with pytest.raises(RuntimeError, match="was closed"):
        env.collect(policy, 5)
    env.close()


@pytest.mark.parametrize("hands", [0, 1])
def test_an_environment_that_breaks_its_contract(hands):
    with (
        collector(hands=hands, make=functools.partial(Faulty, "nan", "")) as env,
        pytest.raises(EnvironmentFault, match=r"^the environment returned a reward that is not finite"),
    ):
        env.collect(policy_for(env), 4)


@pytest.mark.parametrize("hands", [0, 1])
@pytest.mark.parametrize(
    "make, message",
    [
        (
            make_raises,
            r"2 environments could not be made \(KeyError in test_workers.py:\d+, .*ice rink.*correct make_env",
        ),
        (make_nothing, r"make_env\(2\) returned no vector environment: it must"),
        (make_too_many, r"make_env\(2\) returned 3 of them: it must"),
    ],
)
def test_environments_that_cannot_be_made(hands, make, message):
    with pytest.raises(EnvironmentFault, match=message):
        collector(hands=hands, make=make)


def test_a_factory_that_ends_its_process():
    with pytest.raises(EnvironmentFault, match="lane 0 ended with exit code 3 in 3 attempts"):
        collector(hands=1, make=make_leaves)


def test_a_factory_that_workers_cannot_import(monkeypatch):
    module = type(sys)("only_here")
    exec("def make(count): ...", vars(module))
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(EnvironmentFault, match=r"could not be made \(ModuleNotFoundError.*another process"):
        collector(hands=1, make=module.make)


def test_wrong_settings():
    with pytest.raises(SettingsError, match=r"make_env: cannot be sent to another process .*a function at the top"):
        collector(make=lambda count: None)
    for lane in (0, 8):
        with pytest.raises(SettingsError, match=r"lane: needs at least 1 and at most count = 7 environments"):
            collector(lane=lane)
    with pytest.raises(SettingsError, match="workers: must not be negative"):
        collector(hands=-1)
    with pytest.raises(SettingsError, match="steps: each environment needs at least one step"):
        collector(steps=0, hands=1)


def test_without_a_fork_server(by_hand_joined, monkeypatch):
    """As in a process that was forked off one that has a server."""
    monkeypatch.setattr(worker_process, "_context", lambda: Forked())
    with collector(hands=1) as env:
        assert_same(env.collect(policy_for(env), 4), by_hand_joined[0])


def collected(iteration):
    with collector(hands=2) as env:
        return env.collect(policy_for(env), iteration).log_prob.numpy()


def test_inside_a_process_of_joblib(by_hand_joined):
    """As experiments run; its processes have a start method that others do not know."""
    (found,) = joblib.Parallel(n_jobs=2, backend="loky")([joblib.delayed(collected)(4)])
    assert found.tobytes() == by_hand_joined[0].log_prob.numpy().tobytes()


class Forked:
    def Process(self, **_):  # noqa: N802 — multiprocessing's name
        raise ChildProcessError
