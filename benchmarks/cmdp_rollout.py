"""Steps per second of random-CMDP rollouts on one core, batched against scalar. Prints one JSON object.

python benchmarks/cmdp_rollout.py [--episodes 256] [--states 1000] [--repeats 20]

`random` draws actions uniformly; `network` draws them from a softmax policy with two hidden layers of 64. Every variant
is timed `--repeats` times in turns, all in one process; the best run counts, since other work can only slow a run down.
`steps_per_second` is by the wall clock, `steps_per_cpu_second` by the thread's own time: on a busy machine only the
latter says what one core does. `ratio` is batched over scalar by that time, with the same kind of policy.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from portfolio_sdpo.envs import Cmdp, RandomCmdpEnv, RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.nn.networks import Mlp, ObservationCodec

Act = Callable[[dict[str, Any], int], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--states", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)

    cmdp = random_cmdp(options.states, seed=5, noise_scale=1.0)
    policies: dict[str, Act] = {"random": random_policy(cmdp), "network": network_policy(cmdp)}
    speeds: dict[tuple[str, str], tuple[float, float]] = {}
    for _ in range(options.repeats):
        for name, act in policies.items():
            for kind, run in {"batched": run_batched, "scalar": run_scalar}.items():
                wall, cpu = time.perf_counter(), time.thread_time()
                steps = run(cmdp, act, options.episodes)
                seconds = time.perf_counter() - wall, time.thread_time() - cpu
                best = speeds.get((name, kind), (0.0, 0.0))
                speeds[name, kind] = max(best[0], steps / seconds[0]), max(best[1], steps / seconds[1])
    results = {
        name: {
            "steps_per_second": round(speeds[name, "batched"][0]),
            "steps_per_cpu_second": round(speeds[name, "batched"][1]),
            "scalar_steps_per_cpu_second": round(speeds[name, "scalar"][1]),
            "ratio": round(speeds[name, "batched"][1] / speeds[name, "scalar"][1], 1),
        }
        for name in policies
    }
    settings = {"states": cmdp.states, "actions": cmdp.actions, "horizon": cmdp.horizon, "episodes": options.episodes}
    print(json.dumps({"benchmark": "cmdp_rollout", "threads": 1, **settings, "results": results}, indent=2))


def random_policy(cmdp: Cmdp) -> Act:
    rng = np.random.default_rng(0)
    return lambda observation, count: rng.integers(cmdp.actions, size=count)


def network_policy(cmdp: Cmdp) -> Act:
    """A softmax over actions, sampled by the Gumbel trick."""
    torch.manual_seed(0)
    codec = ObservationCodec(RandomCmdpEnv(cmdp).observation_space)
    network = nn.Sequential(Mlp(codec, (64, 64)), nn.Linear(64, cmdp.actions))

    @torch.inference_mode()
    def act(observation: dict[str, Any], count: int) -> np.ndarray:
        logits = network(codec.encode(observation, count))
        return (logits - torch.empty_like(logits).exponential_().log_()).argmax(-1).numpy()

    return act


def run_batched(cmdp: Cmdp, act: Act, episodes: int) -> int:
    env = RandomCmdpVectorEnv(cmdp, episodes)
    observation, _ = env.reset(seed=0)
    for _ in range(cmdp.horizon):
        observation, *_ = env.step(act(observation, episodes))
    return episodes * cmdp.horizon


def run_scalar(cmdp: Cmdp, act: Act, episodes: int) -> int:
    """A few episodes are enough: their speed does not depend on how many there are."""
    env = RandomCmdpEnv(cmdp)
    env.reset(seed=0)
    count = min(episodes, 2)
    for _ in range(count):
        observation, _ = env.reset()
        for _ in range(cmdp.horizon):
            observation, *_ = env.step(act(observation, 1)[0])
    return count * cmdp.horizon


if __name__ == "__main__":
    main()
