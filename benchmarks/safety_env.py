"""Steps per second of Safety Gym here and in the suite itself, and what a reset takes. Prints one JSON object.

python benchmarks/safety_env.py [--tasks PointGoal1 ...] [--steps 200] [--repeats 3] [--resets 2]

Both run the same task from the same seed with the same random actions and take turns in one process; the best of
`--repeats` short runs counts, since other work can only slow a run down. Time is the process's own, which says what one
core does on a busy machine too. `ratio` is ours over the suite's. `reset` is ours, in milliseconds: without textures,
as in training, and with them, as when pictures are asked for (`textures_ratio`: with over without); `suite_reset` is
the suite's, with textures and its own search for a layout (its table of assets is kept here too).
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from portfolio_sdpo.envs.safety import ROBOTS, TASKS, SafetyEnv, suite


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, metavar="TASK")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--resets", type=int, default=2)
    options = parser.parse_args()

    results = [measure(task, options.steps, options.repeats, options.resets) for task in options.tasks]
    ratios = [row["ratio"] for row in results]
    settings = {"steps": options.steps, "unit": "steps per second and milliseconds of CPU time", "threads": 1}
    summary = {"least_ratio": min(ratios), "median_ratio": round(float(np.median(ratios)), 2)}
    print(json.dumps({"benchmark": "safety_env", **settings, **summary, "results": results}, indent=2))


def measure(task: str, steps: int, repeats: int, resets: int) -> dict[str, float | str]:
    ours, theirs = SafetyEnv(task), own(task)
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, *ours.action_space.shape)).astype(np.float32)
    step = {"ours": (ours.reset, ours.step), "suite": (theirs.reset, theirs.step)}
    speed = dict.fromkeys(step, 0.0)
    for _ in range(repeats):
        for name, (reset, advance) in step.items():
            reset(seed=0)
            taken = seconds(lambda advance=advance: [advance(action) for action in actions])
            speed[name] = max(speed[name], steps / taken)
    times = {"plain": [], "textured": [], "suite": []}
    for seed in range(resets):
        times["plain"].append(seconds(lambda seed=seed: ours.reset(seed=seed)))
        ours.render_mode = "rgb_array"
        times["textured"].append(seconds(lambda seed=seed: ours.reset(seed=seed)))
        ours.render_mode = None
        times["suite"].append(seconds(lambda seed=seed: suite_reset(theirs, seed)))
    # The mean: how long the search for a layout takes depends on the seed.
    reset = {name: 1e3 * float(np.mean(found)) for name, found in times.items()}
    return {
        "task": task,
        "ours": round(speed["ours"]),
        "suite": round(speed["suite"]),
        "ratio": round(speed["ours"] / speed["suite"], 2),
        "reset": round(reset["plain"], 1),
        "reset_with_textures": round(reset["textured"], 1),
        "textures_ratio": round(reset["textured"] / reset["plain"], 1),
        "suite_reset": round(reset["suite"], 1),
        "reset_ratio": round(reset["suite"] / reset["plain"], 1),
    }


def own(task: str):
    """The suite's own environment, with its own search for a layout."""
    robot = next(robot for robot in ROBOTS if task.startswith(robot))
    builder = suite.build(robot, task.removeprefix(robot))
    path = Path(sys.modules[suite.PACKAGE].__path__[0], "utils", "random_generator.py")
    spec = importlib.util.spec_from_file_location("untouched", path)
    untouched = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(untouched)
    builder.task.random_generator.__class__ = untouched.RandomGenerator
    return builder


def suite_reset(builder, seed: int) -> None:
    with suite.textures(True):
        builder.reset(seed=seed)


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


if __name__ == "__main__":
    main()
