"""Batched collection against a loop over one environment, in every reset mode of gymnasium; and real faults."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from portfolio_sdpo.envs.random_cmdp import RandomCmdpEnv, RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import EnvironmentFault, SettingsError
from portfolio_sdpo.nn.heads import CategoricalHead
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.rl.rollout import Collector, Purpose, stream, torch_generator

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
STEPS, ENVS = 23, 3

VIEWS: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "discrete": spaces.Discrete(9, start=-4),
    "multidiscrete": spaces.MultiDiscrete([9, 8], start=[-4, 0]),
    "dict": spaces.Dict({"where": spaces.Discrete(9, start=-4), "clock": spaces.Box(0, 8, (1,), np.float32)}),
    "tuple": spaces.Tuple((spaces.Box(-9, 9, (1,), np.float32), spaces.Discrete(8), spaces.MultiBinary(2))),
}


class Walk(gymnasium.Env[Any, Any]):
    """A walk that is pushed about: it terminates at ±4 and is truncated after 7 steps; costs `pain` and `toil`.

    fault: at step 2 of each third episode something goes wrong.
    """

    def __init__(self, view: str = "box", fault: str = "", actions: spaces.Space[Any] | None = None) -> None:
        self.view, self.fault = view, fault
        self.observation_space = VIEWS[view]
        self.action_space = actions or spaces.Discrete(3)
        self.episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.where = int(self.np_random.integers(-2, 3))
        self.clock = 0
        self.episode += 1
        return self._seen(), {"toil": -99.0} if self.fault != "late" else {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        move = int(np.round(np.asarray(action).reshape(-1)[0])) - int(getattr(self.action_space, "start", 0))
        if isinstance(self.action_space, spaces.Discrete):
            move -= 1
        self.where = int(np.clip(self.where + move + self.np_random.integers(-1, 2), -4, 4))
        self.clock += 1
        info = {"pain": abs(self.where) / 4, "toil": float(self.clock)}
        reward = self.where + 0.1 * self.clock
        terminated, truncated = abs(self.where) == 4, self.clock >= 7
        if self.fault and self.episode % 3 == 0 and self.clock == 2:
            if self.fault == "pain":
                info["pain"] = float("nan")
            if self.fault == "reward":
                reward = float("inf")
            if self.fault == "late":
                del info["toil"]
            if self.fault == "final":
                terminated = True
            if self.fault == "word":
                info["pain"] = "much"
        return self._seen(), reward, terminated, truncated, info

    def _seen(self) -> Any:
        where, clock = self.where, self.clock
        if self.fault in ("observation", "final") and self.episode % 3 == 0 and clock == 2:
            return np.array([np.nan, clock])
        return {
            "box": np.array([where, clock], dtype=np.float64),
            "discrete": np.int64(where),
            "multidiscrete": np.array([where, clock]),
            "dict": {"where": np.int64(where), "clock": np.array([clock], dtype=np.float32)},
            "tuple": (
                np.array([where], np.float32),
                np.int64(clock),
                np.array([where > 0, clock > 3], dtype=np.int8),
            ),
        }[self.view]


class Fixed:
    """A policy that draws no random numbers, so that a reset step more or less changes nothing."""

    head = CategoricalHead(3)

    def act(self, observation: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        total = (observation.sum(-1) * 7 + 100).long()
        return total % 3, -total.float()


def vectorise(mode: AutoresetMode, count: int = ENVS, kind: Any = SyncVectorEnv, **options: Any) -> Any:
    return kind([lambda: Walk(**options)] * count, autoreset_mode=mode)


def loop(seeds, mode, steps, **options):
    """What a plain loop over single environments sees: one row per transition."""
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        env = Walk(**options)
        codec = ObservationCodec(env.observation_space)
        seen, left, episode_ends = None, steps, True
        while left > 0:
            if episode_ends:
                if seen is not None and mode == AutoresetMode.NEXT_STEP:
                    left -= 1
                    if left == 0:
                        break
                seen, _ = env.reset(seed=seed)
                seed, clock = None, 0
            before = codec.encode(seen, 1)
            action, log_prob = Fixed().act(before, torch.Generator())
            seen, reward, terminated, truncated, info = env.step(action.numpy()[0])
            left -= 1
            episode_ends = terminated or truncated
            rows.append(
                {
                    "observation": before[0],
                    "action": action[0],
                    "log_prob": log_prob[0],
                    "reward": torch.tensor(reward),
                    "pain": torch.tensor(info["pain"]),
                    "toil": torch.tensor(info["toil"]),
                    "next_observation": codec.encode(seen, 1)[0],
                    "terminated": torch.tensor(bool(terminated)),
                    "ended": torch.tensor(bool(episode_ends)),
                    "last": torch.tensor(episode_ends or left == 0),
                    "step": torch.tensor(clock),
                }
            )
            clock += 1
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def assert_same(rollout, expected):
    for name in ("observation", "action", "log_prob", "next_observation", "terminated", "ended", "last", "step"):
        assert getattr(rollout, name).equal(expected[name].to(getattr(rollout, name).dtype)), name
    for name in ("reward", "pain", "toil"):
        assert rollout.signals[name].equal(expected[name].float()), name
    assert rollout.episode.equal((expected["step"] == 0).long().cumsum(0) - 1)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("mode", MODES)
def test_equals_a_loop_over_single_environments(mode, view):
    env = vectorise(mode, view=view)
    rollout = Collector(env, ["reward", "pain", "toil"], STEPS, seed=3).collect(Fixed(), iteration=5)
    expected = loop(env.np_random_seed, mode, STEPS, view=view)
    assert_same(rollout, expected)
    truncated, cut = rollout.ended & ~rollout.terminated, rollout.last & ~rollout.ended
    assert rollout.terminated.any() and truncated.any() and cut.any()
    assert (rollout.step[truncated] == 6).all()
    resets = 0 if mode != AutoresetMode.NEXT_STEP else STEPS * ENVS - len(rollout)
    assert len(rollout) + resets == STEPS * ENVS and (resets > 0) == (mode == AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize("mode", MODES)
def test_equals_the_loop_in_other_processes(mode):
    env = vectorise(mode, kind=AsyncVectorEnv, view="dict", count=2)
    try:
        rollout = Collector(env, ["pain", "toil"], STEPS, seed=3).collect(Fixed(), iteration=5)
        assert_same(rollout, loop(env.np_random_seed, mode, STEPS, view="dict"))
    finally:
        env.close()


def test_modes_agree_with_each_other():
    """The reset steps of NEXT_STEP cost transitions, but change none."""
    rollouts = [
        Collector(vectorise(mode, count=1), ["pain", "toil"], STEPS, seed=0).collect(Fixed(), 0) for mode in MODES
    ]
    shortest = len(rollouts[0])
    for other in rollouts[1:]:
        assert len(other) == STEPS > shortest
        assert other.observation[:shortest].equal(rollouts[0].observation)
        assert other.next_observation[:shortest].equal(rollouts[0].next_observation)
        assert other.terminated[:shortest].equal(rollouts[0].terminated)


def test_a_batch_that_ends_with_a_reset_step_drops_it():
    env = vectorise(AutoresetMode.NEXT_STEP, count=1)
    full = Collector(env, [], 40, seed=0).collect(Fixed(), 0)
    end = int(full.ends[0])
    rollout = Collector(env, [], end + 2, seed=0).collect(Fixed(), 0)
    assert len(rollout) == end + 1 and rollout.episodes == 1 and rollout.last.tolist() == [False] * end + [True]


def test_batched_and_scalar_cmdp_give_the_same_rollout():
    """With a policy that draws its actions: one episode at a time, array-backed or not."""
    cmdp = random_cmdp(12, 3, seed=0, noise_scale=1.0, horizon=5, costs=("pain",))
    fast = RandomCmdpVectorEnv(cmdp, 1)
    slow = SyncVectorEnv([lambda: RandomCmdpEnv(cmdp)], autoreset_mode=AutoresetMode.SAME_STEP)
    torch.manual_seed(0)
    policy = Policy(ObservationCodec(fast.single_observation_space), fast.single_action_space, hidden=(8,))
    one, other = (Collector(env, ["pain"], 15, seed=1).collect(policy, 2) for env in (fast, slow))
    assert one.action.unique().numel() > 1
    for name in ("observation", "action", "log_prob", "next_observation", "terminated", "last", "episode", "step"):
        assert getattr(one, name).equal(getattr(other, name)), name
    assert one.signals["reward"].equal(other.signals["reward"]) and one.signals["pain"].equal(other.signals["pain"])


def test_depends_on_policy_seed_and_iteration_alone():
    cmdp = random_cmdp(12, 3, seed=0, noise_scale=1.0, horizon=5)
    env = RandomCmdpVectorEnv(cmdp, 4)
    policy = Policy(ObservationCodec(env.single_observation_space), env.single_action_space, hidden=())
    first = Collector(env, [], 10, seed=1).collect(policy, 7)
    torch.manual_seed(123)
    collector = Collector(RandomCmdpVectorEnv(cmdp, 4), [], 10, seed=1)
    collector.collect(policy, 6)
    again = collector.collect(policy, 7)
    assert again.observation.equal(first.observation) and again.signals["reward"].equal(first.signals["reward"])
    for other in (collector.collect(policy, 8), Collector(env, [], 10, seed=2).collect(policy, 7)):
        assert not other.signals["reward"].equal(first.signals["reward"])


def test_log_prob_is_that_of_the_action():
    env = RandomCmdpVectorEnv(random_cmdp(12, 3, seed=0, horizon=5), 4)
    torch.manual_seed(0)
    policy = Policy(ObservationCodec(env.single_observation_space), env.single_action_space, hidden=(8,))
    rollout = Collector(env, [], 5, seed=0).collect(policy, 0)
    with torch.no_grad():
        again = policy.head.log_prob(policy(rollout.observation), rollout.action)
    torch.testing.assert_close(again, rollout.log_prob)


@pytest.mark.parametrize("mode", MODES)
def test_continuous_actions_stay_in_the_box(mode):
    """The environment sees clipped actions (it would refuse others), the rollout what the policy drew."""
    box = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32))
    env = vectorise(mode, actions=box)
    torch.manual_seed(0)
    policy = Policy(ObservationCodec(env.single_observation_space), box, hidden=(), initial_std=3.0)
    rollout = Collector(env, ["pain"], STEPS, seed=0).collect(policy, 0)
    assert rollout.action.shape == (len(rollout), 2) and rollout.action.abs().max() > 2
    torch.testing.assert_close(policy.head.log_prob(policy(rollout.observation), rollout.action), rollout.log_prob)


def test_discrete_actions_count_from_the_start_of_their_space():
    env = vectorise(AutoresetMode.SAME_STEP, actions=spaces.Discrete(3, start=5))
    policy = Policy(ObservationCodec(env.single_observation_space), env.single_action_space, hidden=())
    rollout = Collector(env, [], STEPS, seed=0).collect(policy, 0)
    assert sorted(rollout.action.unique().tolist()) == [0, 1, 2]


FAULTS = {
    "reward": "a reward that is not finite",
    "pain": "a pain that is not finite",
    "observation": "an observation that is not finite",
    "final": "an observation that is not finite",
    "late": "lacks the signal 'toil'",
    "word": "a signal 'pain' that is not a number",
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named_in_one_sentence(mode, fault):
    collector = Collector(vectorise(mode, fault=fault), ["pain", "toil"], STEPS, seed=0)
    with pytest.raises(EnvironmentFault, match=FAULTS[fault]) as caught:
        collector.collect(Fixed(), 0)
    message = str(caught.value)
    assert message.endswith(".") and message.count(". ") == 0


class Astray(Walk):
    """Its observation space is smaller than its walk."""

    def __init__(self, size: int, start: int) -> None:
        super().__init__(view="discrete")
        self.observation_space = spaces.Discrete(size, start=start)


@pytest.mark.parametrize("size, start", [(5, -4), (5, 0)])
def test_a_discrete_observation_outside_its_space(size, start):
    """Too large or too small: a sentence, not an index error of some table."""
    env = SyncVectorEnv([lambda: Astray(size, start)] * 2, observation_mode="different")
    policy = Policy(ObservationCodec(env.single_observation_space), env.single_action_space, hidden=())
    with pytest.raises(EnvironmentFault, match=r"a discrete observation outside its observation space: .*\.$"):
        Collector(env, [], STEPS, seed=0).collect(policy, 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_signal_that_is_never_there(mode):
    with pytest.raises(EnvironmentFault, match="lacks the signal 'vases' that a constraint bounds"):
        Collector(vectorise(mode), ["reward", "pain", "vases"], STEPS, seed=0).collect(Fixed(), 0)


class Bare(VectorEnv[Any, Any, Any]):
    """Resets in the same step without saying what the final observation was."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self) -> None:
        self.num_envs = 2
        self.single_observation_space = spaces.Box(-1, 1, (1,), np.float32)
        self.single_action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        return np.zeros((2, 1), np.float32), np.zeros(2), np.ones(2, bool), np.zeros(2, bool), {}


def test_final_observations_must_be_given():
    with pytest.raises(EnvironmentFault, match="lacks 'final_obs'"):
        Collector(Bare(), [], 2, seed=0).collect(Fixed(), 0)


def test_refuses_no_steps():
    with pytest.raises(SettingsError, match="steps: each environment needs at least one"):
        Collector(Bare(), [], 0, seed=0)


def test_rollout_knows_its_episodes(by_hand):
    rollout = by_hand([[1.0, 2.0, 4.0], [8.0], [16.0, 32.0]], [True, False, True])
    assert len(rollout) == 6 and rollout.episodes == 3
    assert rollout.starts.tolist() == [0, 3, 4] and rollout.ends.tolist() == [2, 3, 5]
    assert rollout.returns("reward", 0.5).tolist() == [3.0, 8.0, 32.0]
    assert rollout.returns("pain", 1.0).tolist() == [70.0, 80.0, 480.0]
    assert by_hand([[0.1] * 9], [True], torch.float64).returns("reward", 0.9) == pytest.approx(1 - 0.9**9, abs=1e-15)


def test_only_whole_episodes(by_hand):
    """Those that were terminated or truncated; where the batch cut them all, there is nothing to choose from."""
    rewards = [[1.0, 2.0], [4.0], [8.0, 16.0, 32.0], [64.0]]
    rollout = by_hand(rewards, [True, False, False, False], truncated=[False, False, True, False])
    whole = rollout.whole()
    assert whole.signals["reward"].tolist() == [1.0, 2.0, 8.0, 16.0, 32.0]
    assert whole.episode.tolist() == [0, 0, 1, 1, 1] and whole.step.tolist() == [0, 1, 0, 1, 2]
    assert whole.starts.tolist() == [0, 2] and whole.ends.tolist() == [1, 4]
    assert whole.returns("pain", 1.0).tolist() == [30.0, 560.0]
    assert whole.observation.equal(torch.tensor([[0.0], [1.0], [0.0], [1.0], [2.0]]))
    assert whole.whole() is whole
    cut = by_hand(rewards, [False] * 4)
    assert cut.whole() is cut


def test_random_streams_differ_by_seed_iteration_and_purpose():
    states = {
        torch_generator(stream(seed, iteration, purpose)).initial_seed()
        for seed in range(5)
        for iteration in range(5)
        for purpose in Purpose
    }
    assert len(states) == 125
