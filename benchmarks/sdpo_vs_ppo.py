"""Time of one SDPO iteration against one PPO iteration at the paper's CMDP settings. Prints one JSON object.

python benchmarks/sdpo_vs_ppo.py [--repeats 20] [--cmdp-seed 11] [--episodes 10]

An iteration is what the trainer does between two rows of its log, probe and files apart: collect a batch (the paper's
1000 steps are 10 episodes), fit the critics, update the policy. Both algorithms are timed alternately in one process
with one thread; epochs and minibatches are the same for both, and so are networks and batches. Times are the thread's
own, since by the wall clock other work on the machine would count too; ratios are those of medians.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from portfolio_sdpo.envs import RandomCmdpVectorEnv
from portfolio_sdpo.experiments.cmdp.declared import find_cmdp_experiment
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.study import CmdpRun
from portfolio_sdpo.rl import Trainer
from portfolio_sdpo.rl.rollout import Purpose, stream, torch_generator

WARM_UP = 3
"""Iterations that are not counted: in the first one critics are fitted several times."""
PHASES = ("collect", "update", "iteration")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--cmdp-seed", type=int, default=11)
    parser.add_argument("--episodes", type=int, help="per iteration, instead of the paper's")
    options = parser.parse_args()

    torch.set_num_threads(1)
    results = [compare(find_cmdp_experiment(name), options) for name in ("cmdp-variance", "cmdp-cvar")]
    print(json.dumps({"benchmark": "sdpo_vs_ppo", "torch": torch.__version__, "results": results}, indent=2))


def compare(experiment: CmdpExperiment, options: argparse.Namespace) -> dict[str, object]:
    """One line of the result: the same problem for both."""
    # Where the policy starts has no influence on the time, so phase I is left out.
    episodes = options.episodes or experiment.episodes
    experiment = CmdpExperiment(**{**dict(experiment), "episodes": episodes, "safe_start": None, "tensorboard": False})
    cmdp = experiment.cmdp.draw(options.cmdp_seed)
    times: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        trainers = {}
        for label in ("ppo", "sdpo"):
            case = CmdpRun(experiment, label, options.cmdp_seed, 0, Path(folder))
            environment = RandomCmdpVectorEnv(cmdp, experiment.episodes)
            trainers[label] = Trainer(case.settings(cmdp), environment, case.folder)
            times[label] = {phase: [] for phase in PHASES}
        for iteration in range(WARM_UP + options.repeats):
            for label, trainer in trainers.items():
                begun = time.thread_time()
                rollout = trainer.collector.collect(trainer.policy, iteration)
                collected = time.thread_time()
                trainer.algorithm.update(rollout, iteration, torch_generator(stream(0, iteration, Purpose.UPDATE)))
                ended = time.thread_time()
                if iteration >= WARM_UP:
                    for phase, seconds in zip(
                        PHASES, (collected - begun, ended - collected, ended - begun), strict=True
                    ):
                        times[label][phase].append(seconds)
    medians = {
        label: {phase: statistics.median(values) for phase, values in phases.items()} for label, phases in times.items()
    }
    return {
        "experiment": experiment.name,
        "steps": experiment.episodes * experiment.cmdp.horizon,
        "ppo_ms": {phase: round(1e3 * medians["ppo"][phase], 1) for phase in PHASES},
        "sdpo_ms": {phase: round(1e3 * medians["sdpo"][phase], 1) for phase in PHASES},
        "ratio": round(medians["sdpo"]["iteration"] / medians["ppo"]["iteration"], 2),
    }


if __name__ == "__main__":
    main()
