"""From which tail fraction on levels of their own help a CVaR, and whom they cost. Prints one JSON object per line.

python benchmarks/tail_levels.py [--alphas 0.02,0.05,0.1,0.15,0.2,0.25] [--atoms 16,32] [--seeds 0,1,2,3] [--steps 1500]

Sixteen states have distributions of known CVaR, normal or exponential, of different place and width. One quantile
critic learns all of them from samples, at levels of which half are drawn in the tail or none, and is read at as many
levels placed in the same two ways. Figures are root mean squared errors over states and seeds in units of each state's
standard deviation: of the CVaR with exact quantiles, and of CVaR and mean of the learnt critic. The mean matters as
well: the objective is read off the same critic.
"""

import argparse
import json

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from portfolio_sdpo.nn.networks import ObservationCodec, QuantileCritic
from portfolio_sdpo.nn.quantiles import Levels, Tail, expect, midpoints, place_levels
from portfolio_sdpo.risk import CVaR

STATES = 16
PLACE = np.linspace(-1.0, 1.0, STATES)
WIDTH = np.geomspace(0.5, 2.0, STATES)[np.random.default_rng(0).permutation(STATES)]
FINE = (np.arange(20_000) + 0.5) / 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alphas", default="0.02,0.05,0.1,0.15,0.2,0.25")
    parser.add_argument("--atoms", default="16,32")
    parser.add_argument("--seeds", default="0,1,2,3")
    parser.add_argument("--steps", type=int, default=1500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    for atoms in map(int, options.atoms.split(",")):
        even = [train(atoms, (), seed, options.steps) for seed in seeds]
        for alpha in map(float, options.alphas.split(",")):
            tails: tuple[Tail, ...] = (("lower", alpha),)
            own = [train(atoms, tails, seed, options.steps) for seed in seeds]
            for name, critics, levels in (
                ("none", even, Levels(midpoints(atoms), None)),
                ("read", even, place_levels(atoms, tails)),
                ("read and learnt", own, place_levels(atoms, tails)),
            ):
                print(json.dumps({"alpha": alpha, "atoms": atoms, "tail": name, **judge(critics, levels, alpha)}))


def quantiles(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """[STATES, N] of every state's distribution: by turns normal, exponential, normal, and exponential turned round."""
    shapes = [ndtri(levels), -1 - np.log1p(-levels), ndtri(levels), 1 + np.log(levels)]
    return np.array([PLACE[state] + WIDTH[state] * shapes[state % 4] for state in range(STATES)])


def draw(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """[STATES, count] samples of every state's distribution."""
    samples = rng.standard_normal((STATES, count))
    samples[1::4] = rng.standard_exponential((STATES // 4, count)) - 1
    samples[3::4] = 1 - rng.standard_exponential((STATES // 4, count))
    return PLACE[:, None] + WIDTH[:, None] * samples


def observe() -> Tensor:
    """[STATES, 1] the number of every state."""
    return torch.arange(float(STATES)).unsqueeze(-1)


def train(atoms: int, tails: tuple[Tail, ...], seed: int, steps: int) -> QuantileCritic:
    """A critic after so many gradient steps on samples of all states."""
    torch.manual_seed(seed)
    critic = QuantileCritic(ObservationCodec(spaces.Discrete(STATES)).trunk((32, 32)), 64, tails=tails)
    optimiser = torch.optim.Adam(critic.parameters(), 1e-2)
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 1e-2 * (1 - step / steps)
        loss = critic.loss(observe(), torch.from_numpy(draw(atoms, rng)).float(), generator)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return critic


def judge(critics: list[QuantileCritic], levels: Levels, alpha: float) -> dict[str, float]:
    """Errors of these critics, and of exact quantiles, read at these levels."""
    truth = quantiles(alpha * FINE).mean(1)

    def error(values: Tensor, target: NDArray[np.float64]) -> NDArray[np.float64]:
        return (values.double().numpy() - target) / WIDTH

    with torch.no_grad():
        read = [critic(observe(), levels.tau).sort(-1).values for critic in critics]
    cvar = [error(CVaR(alpha=alpha)(values, levels.weight), truth) for values in read]
    means = [error(expect(values, levels.weight), PLACE) for values in read]
    known = torch.from_numpy(quantiles(levels.tau.double().numpy()))
    weight = None if levels.weight is None else levels.weight.double()
    left = error(CVaR(alpha=alpha)(known, weight), truth)
    return {
        "exact_cvar": _size([left]),
        "learnt_cvar": _size(cvar),
        "learnt_mean": _size(means),
    }


def _size(errors: list[NDArray[np.float64]]) -> float:
    return round(float(np.sqrt(np.mean(np.square(errors)))), 3)


if __name__ == "__main__":
    main()
