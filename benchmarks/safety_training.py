"""Training rate against raw stepping with the same worker processes, in one run. Prints one JSON object.

python benchmarks/safety_training.py [--experiments safety-b-pointgoal1,...] [--workers 1,2] [--rounds 3]
    [--algorithms sdpo,ppo]

Raw stepping: every worker process steps its own robot with random actions, and does nothing else. Training: the
experiment's settings, batches of 30,000 steps collected by as many worker processes while the process of the learner
updates the policy (`overlap`). Raw stepping is timed before and after training, all by the wall clock, so other work on
the machine counts against both; rates are medians. With as many workers as cores the learner has no core of its own.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from portfolio_sdpo.experiments.safety.declared import find_safety_experiment
from portfolio_sdpo.experiments.safety.experiment import WorldSettings
from portfolio_sdpo.experiments.safety.study import SafetyRun, make_worlds_factory
from portfolio_sdpo.rl import Trainer
from portfolio_sdpo.rl.trainer import worker_collector

WARM_UP = 2
"""Iterations that are not counted: in the first one critics are fitted several times."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", default="safety-b-pointgoal1-short,safety-b-pointgoal1,safety-b-pointgoal2")
    parser.add_argument("--workers", default=f"1,{os.cpu_count()}")
    parser.add_argument("--algorithms", default="sdpo,ppo")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=30, help="per batch, of 1000 steps")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = [
        compare(name, label, int(workers), options)
        for name in options.experiments.split(",")
        for workers in dict.fromkeys(options.workers.split(","))
        for label in options.algorithms.split(",")
    ]
    print(json.dumps({"benchmark": "safety_training", "cores": os.cpu_count(), "results": results}, indent=2))


def compare(name: str, label: str, workers: int, options: argparse.Namespace) -> dict[str, Any]:
    """One line of the result."""
    rounds = options.rounds
    experiment = find_safety_experiment(name).with_changes(
        iterations=WARM_UP + rounds + 1,  # the last iteration has no collecting beside it
        episodes=options.episodes,
        lane=max(options.episodes // (2 * workers), 1),
        overlap=True,
        tensorboard=False,
    )
    raw = [raw_rate(experiment.world, workers) for _ in range((rounds + 1) // 2)]
    trained: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        run = SafetyRun(experiment, label, 0, Path(folder))
        settings = run.settings()
        with worker_collector(settings, make_worlds_factory(experiment.world), workers) as collector:
            trainer = Trainer(settings, collector, run.folder)

            def watch(row: dict[str, Any]) -> bool:
                if trainer.iteration > WARM_UP:
                    trained.append(float(row["steps_per_second"]))
                return len(trained) >= rounds

            trainer.run(watch)
    raw += [raw_rate(experiment.world, workers) for _ in range((rounds + 1) // 2)]
    stepping, training = statistics.median(raw), statistics.median(trained)
    return {
        "experiment": name,
        "algorithm": label,
        "workers": workers,
        "raw_steps_per_second": round(stepping),
        "training_steps_per_second": round(training),
        "ratio": round(training / stepping, 3),
    }


def raw_rate(world: WorldSettings, workers: int, seconds: float = 8.0) -> float:
    """Steps per second of so many processes together, resets included."""
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    counts = context.Queue()
    processes = [context.Process(target=_step, args=(world, i, seconds, ready, go, counts)) for i in range(workers)]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    go.set()
    total = sum(counts.get() for _ in processes)
    for process in processes:
        process.join()
    return total


def _step(world: WorldSettings, seed: int, seconds: float, ready: Any, go: Any, counts: Any) -> None:
    from portfolio_sdpo.envs.safety.env import SafetyEnv

    env = SafetyEnv(world.task, **world.options())
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    steps, done = 0, False
    ready.release()
    go.wait()
    begun = time.perf_counter()
    while (passed := time.perf_counter() - begun) < seconds:
        if done:
            env.reset()
        *_, terminated, truncated, _ = env.step(rng.uniform(env.action_space.low, env.action_space.high))
        done = terminated or truncated
        steps += 1
    counts.put(steps / passed)


if __name__ == "__main__":
    main()
