"""SDPO against the exact answer on price scenarios: share of the optimum's growth, and whether the limit holds.

python benchmarks/known_answer.py [--updates 1000] [--paths 1024] [--seeds 0 1] [--horizons 1 15]

Scenarios are drawn from a fixed law: real returns over 15 sessions, one decision each (horizon 1), or 15 real days that
are drawn one by one (horizon 15). The optimum of the first is a convex program over all portfolios; with the second the
best constant mix is compared, found on 20,000 other scenarios. The agent is judged by the policy that it would trade
with, on the whole law (horizon 1) or on 20,000 fresh scenarios (horizon 15), at the end and at 40 points on the way.
Prints one JSON object.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import time

import numpy as np
import torch

from portfolio_sdpo.portfolio.analytic import AnalyticLearner, AnalyticSettings
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.optimum import best_mix, measure_mix, tail_mean
from portfolio_sdpo.portfolio.path_policy import grow_from_cash
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.samples import load_sample
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms.base import Problem

WINDOW = 15
LIMITS = [(0.05, -0.05), (0.05, -0.02), (0.1, -0.04), (0.01, -0.08)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--paths", type=int, default=1024)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--horizons", type=int, nargs="+", default=[1, WINDOW])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, days in universes().items():
        for alpha, bound in LIMITS:
            for horizon in arguments.horizons:
                law = Law(days, horizon)
                best = law.best(alpha, bound)
                for seed in arguments.seeds:
                    begun = time.process_time()
                    agent, watched = trained(law, alpha, bound, seed, arguments)
                    row = {
                        "universe": name,
                        "horizon": horizon,
                        "alpha": alpha,
                        "bound": bound,
                        "seed": seed,
                        "optimum": best.growth,
                        "optimum_tail": best.tail,
                        **law.judge(agent, alpha),
                        "worst_tail_on_the_way": min(watched),
                        "seconds": round(time.process_time() - begun, 1),
                    }
                    rows.append(row | {"share": row["growth"] / best.growth, "held": row["tail"] >= bound})
                    print(json.dumps(rows[-1]), flush=True, file=sys.stderr)
    summary = {
        f"horizon {horizon}": {
            "runs": len(chosen),
            "least_share": min(row["share"] for row in chosen),
            "mean_share": float(np.mean([row["share"] for row in chosen])),
            "limits_held": sum(row["held"] for row in chosen),
        }
        for horizon in arguments.horizons
        if (chosen := [row for row in rows if row["horizon"] == horizon])
    }
    print(json.dumps({"summary": summary, "rows": rows}, indent=1))


def universes() -> dict[str, np.ndarray]:
    """Relatives of cash and stocks [T, A], the days of which all scenarios are made."""
    sample = clean(load_sample("sample")).frame.drop(columns="DOW")
    wide = clean(load_sample("sample-skfolio")).frame.loc["2010":]
    halves = {"skfolio, first ten": wide.iloc[:, :10], "skfolio, last ten": wide.iloc[:, 10:]}
    frames = {"sample without DOW": sample, "skfolio, twenty": wide, **halves}
    return {name: Market.from_prices(frame).gross_returns[1:] for name, frame in frames.items()}


class Law:
    """A law of scenarios: a fixed list of one-decision scenarios, or independent days."""

    def __init__(self, days: np.ndarray, horizon: int) -> None:
        self.days, self.horizon = days, horizon
        # Growth over every window of the past, thinned to a list that the convex program can take whole.
        growth = np.cumprod(days, axis=0)
        windows = growth[WINDOW:] / growth[:-WINDOW]
        self.windows = windows[np.linspace(0, len(windows) - 1, 1000).astype(int)]

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """[count, horizon, A]"""
        if self.horizon == 1:
            return self.windows[rng.integers(len(self.windows), size=count)][:, None]
        return self.days[rng.integers(len(self.days), size=(count, self.horizon))]

    def best(self, alpha: float, bound: float):
        """The optimum, measured where the agent is."""
        if self.horizon == 1:
            return best_mix(self.windows[:, None], alpha, bound)
        found = best_mix(self.draw(20_000, np.random.default_rng(99)), alpha, bound)
        return measure_mix(found.weights, self.fresh(), alpha)

    def fresh(self) -> np.ndarray:
        """Scenarios that nobody learnt from."""
        return self.windows[:, None] if self.horizon == 1 else self.draw(20_000, np.random.default_rng(77))

    def judge(self, agent: AnalyticLearner, alpha: float) -> dict[str, float]:
        with torch.no_grad():
            growth = grow_from_cash(agent.averaged, *paths(self.fresh(), np.random.default_rng(5), self.days))
        total = growth.sum(1).double().numpy()
        return {"growth": float(total.mean()), "tail": tail_mean(total, alpha)}


def paths(scenarios: np.ndarray, rng: np.random.Generator, days: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """[P, L+1, A]: before the first decision a random day is seen, which means nothing."""
    seen = days[rng.integers(len(days), size=len(scenarios))][:, None]
    gross_returns = torch.as_tensor(np.concatenate([seen, scenarios], axis=1), dtype=torch.float32)
    return gross_returns, torch.ones_like(gross_returns, dtype=torch.bool)


def trained(law: Law, alpha: float, bound: float, seed: int, arguments) -> tuple[AnalyticLearner, list[float]]:
    """The agent after its updates, and its tail on the way."""
    rng, updates = np.random.default_rng(seed), arguments.updates
    spec = f"cvar({alpha}) of reward >= {bound} eta=500:100000:{updates}"
    torch.manual_seed(seed)
    problem = Problem(discount=1.0, constraints=(Constraint.from_spec(spec),))
    settings = AnalyticSettings(learning_rate=3e-3, anneal=updates)
    agent = AnalyticLearner(settings, problem, law.days.shape[1])
    watched = []
    for number in range(updates):
        agent.update(*paths(law.draw(arguments.paths, rng), rng, law.days), torch.Generator())
        if number % max(updates // 40, 1) == 0:
            watched.append(law.judge(agent, alpha)["tail"])
    return agent, watched


if __name__ == "__main__":
    main()
