"""How near SDPO comes to the known optimum where the state remembers the past. Prints one JSON object per run.

python benchmarks/hedging.py [--rounds 1] [--measures variance,cvar,entropic,deviation] [--seeds 0,1,2]
                             [--iterations N] [--pooled {state,batch,own}] [--entropy 0.2]

The loss of a `HedgingVectorEnv` is bounded by each measure in turn, with a distance of one standard error of its
estimate (`confidence`); SDPO starts with phase I from a nearly uniform policy. Settings are the defaults, but for the
policy's learning rate and its annealing, which shorten the run, and, with one round, whose rewards are small, for the
barrier's η and margin and five times the episodes. `share` is the expected reward of the final policy, exactly, as a
share of the optimum within the bound, `risk` its exact risk. An iteration of five rounds has 2,560 steps and takes
about a fifth of a second on a quiet machine.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from portfolio_sdpo.envs.exact import evaluate_hedging, solve_hedging
from portfolio_sdpo.envs.hedging import HedgingVectorEnv, observe
from portfolio_sdpo.risk import Constraint, Custom, CVaR, Entropic, RiskMeasure, Variance
from portfolio_sdpo.rl.algorithms import ActorSettings, Problem, SdpoSettings, build
from portfolio_sdpo.rl.rollout import Collector, Purpose, stream, torch_generator

PASTS = {"state": None, "batch": True, "own": False}


@dataclass(frozen=True)
class Setup:
    """What depends on the number of rounds."""

    episodes: int
    iterations: int
    learning_rate: float
    barrier: dict[str, Any]


# What the barrier costs is 1 / η: little beside five rounds' rewards at the default, too much beside those of one.
SETUPS = {
    1: Setup(1280, 240, 3e-4, {"eta": {"start": 10.0, "end": 100.0, "iterations": 120}, "margin": 0.01}),
    5: Setup(256, 320, 3e-3, {}),
}


def deviation(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """A user's own measure: the root of the mean squared loss above zero."""
    return ((weights * values.clamp_min(0).square()).sum(-1) + 1e-12).sqrt()


# Each with E[statistic(μ, loss)], of which it is the least over μ, and the bounds of one round and of five.
MEASURES: dict[str, tuple[RiskMeasure, Callable[..., Any], Callable[[float], float], dict[int, float]]] = {
    "variance": (Variance(), lambda mu, y: (y - mu) ** 2, lambda bound: bound, {1: 0.5, 5: 2.0}),
    "cvar": (
        CVaR(alpha=0.25, tail="upper"),
        lambda mu, y: mu + np.maximum(y - mu, 0) / 0.25,
        lambda bound: bound,
        {1: 1.0, 5: 2.0},
    ),
    "entropic": (Entropic(beta=1.0), lambda mu, y: np.exp(y), np.exp, {1: 0.35, 5: 1.0}),
    "deviation": (Custom(function=deviation), lambda mu, y: np.maximum(y, 0) ** 2, np.square, {1: 0.7, 5: 1.2}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, choices=(1, 5), default=1)
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--pooled", choices=PASTS, default="state")
    parser.add_argument("--entropy", type=float, default=SdpoSettings().phase_one_entropy, help="bonus of phase I")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.measures.split(","):
        for seed in map(int, options.seeds.split(",")):
            print(json.dumps(train(name, seed, options)), flush=True)


def train(name: str, seed: int, options: argparse.Namespace) -> dict[str, object]:
    """One run, and what its final policy is worth."""
    measure, statistic, transform, bounds = MEASURES[name]
    rounds, bound, setup = options.rounds, bounds[options.rounds], SETUPS[options.rounds]
    iterations = options.iterations or setup.iterations
    candidates = np.linspace(-1, 1, 41) if name == "variance" else np.arange(-2.0 * rounds, 2 * rounds + 1)
    optimum = solve_hedging(rounds, statistic, transform(bound), candidates)
    constraint = Constraint(
        signal="loss", measure=measure, sense="<=", bound=bound, discount=1.0, confidence=1.0, **setup.barrier
    )
    problem = Problem(discount=1.0, constraints=(constraint,))
    settings = SdpoSettings(
        phase_one=iterations,
        actor=ActorSettings(learning_rate=setup.learning_rate, anneal=iterations),
        pooled=PASTS[options.pooled],
        phase_one_entropy=options.entropy,
    )
    env = HedgingVectorEnv(setup.episodes, rounds)
    collector = Collector(env, problem.signals(), env.horizon, seed)
    torch.manual_seed(seed)
    sdpo = build(settings, problem, collector.codec, collector.single_action_space)
    for iteration in range(iterations):
        rollout = collector.collect(sdpo.policy, iteration)
        row = sdpo.update(rollout, iteration, torch_generator(stream(seed, iteration, Purpose.UPDATE)))

    @torch.no_grad()
    def policy(k: int, losses: np.ndarray, shocks: np.ndarray) -> np.ndarray:
        seen = observe((2 * k + 1) / env.horizon, losses.astype(float), shocks.astype(float))
        return torch.softmax(sdpo.policy(torch.from_numpy(seen)).double(), -1).numpy()

    outcome = evaluate_hedging(rounds, policy)
    risk = measure(torch.from_numpy(outcome.losses).double(), torch.from_numpy(outcome.weights))
    return {
        "measure": name,
        "rounds": rounds,
        "seed": seed,
        "phase": row["phase"],
        "share": round(outcome.reward / optimum, 4),
        "risk": round(risk.item(), 4),
        "bound": bound,
    }


if __name__ == "__main__":
    main()
