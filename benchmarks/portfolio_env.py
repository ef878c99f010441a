"""Steps per second of the portfolio environment on one core, batched and scalar. Prints one JSON object.

python benchmarks/portfolio_env.py [--episodes 256] [--window 15] [--repeats 60] [--stocks 9 50 400]

Random weights, made beforehand, on bootstrapped paths of random prices; resets count. `fee` pays 10 basis points on
what is traded, `limits` also caps weights and turnover, `listings` replays prices in which a third of the stocks list
late or delist. Variants take turns in one process and the best of `--repeats` short runs counts, since other work can
only slow a run down; time is the thread's own, which says what one core does on a busy machine too. `reached` is for
the fewest stocks. `nanoseconds_per_asset` is the time of one batched step of one episode over the number of assets:
where it does not rise, time is at most linear in assets.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import time

import numpy as np
import pandas as pd

from portfolio_sdpo.envs.portfolio import PortfolioEnv, PortfolioVectorEnv
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.scenarios import Paths, bootstrap_paths

VARIANTS = {
    "free": (0.0, Limits()),
    "fee": (0.001, Limits()),
    "limits": (0.001, Limits(max_weight=0.2, max_turnover=0.5)),
    "listings": (0.001, Limits()),
}
TARGETS = {"batched": 1_000_000, "scalar": 20_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--window", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--stocks", type=int, nargs="+", default=[9, 50, 400])
    options = parser.parse_args()

    results = []
    for stocks in options.stocks:
        whole, broken = market(stocks, gaps=False), market(stocks, gaps=True)
        drawn = bootstrap_paths(whole, len(whole) - 1, options.window, 64, block=10.0)
        firsts = np.arange(0, len(broken) - options.window - 1, 8)[:, None] + np.arange(options.window + 1)
        replayed = Paths(broken.gross_returns[firsts], broken.listed[firsts])
        runs = {
            (name, kind): run(replayed if name == "listings" else drawn, fee, limits, options.episodes)
            for name, (fee, limits) in VARIANTS.items()
            for kind, run in {"batched": Batched, "scalar": Scalar}.items()
        }
        speeds = dict.fromkeys(runs, 0.0)
        for _ in range(options.repeats):
            for key, run in runs.items():
                start = time.thread_time()
                steps = run()
                speeds[key] = max(speeds[key], steps / (time.thread_time() - start))
        for name in VARIANTS:
            batched, scalar = speeds[name, "batched"], speeds[name, "scalar"]
            row = {"stocks": stocks, "variant": name, "batched": round(batched), "scalar": round(scalar)}
            results.append({**row, "nanoseconds_per_asset": round(1e9 / batched / (stocks + 1), 1)})
    fewest = [row for row in results if row["stocks"] == min(options.stocks)]
    reached = {row["variant"]: {kind: row[kind] >= target for kind, target in TARGETS.items()} for row in fewest}
    settings = {"episodes": options.episodes, "window": options.window, "unit": "steps per second of CPU time"}
    report = {"benchmark": "portfolio_env", "threads": 1, **settings, "targets": TARGETS, "reached": reached}
    print(json.dumps({**report, "results": results}, indent=2))


def market(stocks: int, gaps: bool) -> Market:
    rng = np.random.default_rng(0)
    prices = 100 * np.exp(np.cumsum(rng.normal(0, 0.01, (600, stocks)), axis=0))
    if gaps:
        prices[:300, 0::6] = np.nan
        prices[300:, 3::6] = np.nan
    names = [f"S{i}" for i in range(stocks)]
    return Market.from_prices(pd.DataFrame(prices, index=pd.bdate_range("2017-01-02", periods=600), columns=names))


class Batched:
    """Two episodes of every sub-environment."""

    def __init__(self, paths: Paths, fee: float, limits: Limits, episodes: int) -> None:
        self.env = PortfolioVectorEnv.from_paths(paths, episodes, fee, limits, seed=0)
        self.env.action_space.seed(0)
        self.actions = [self.env.action_space.sample() for _ in range(2 * paths.length)]
        self.env.reset(seed=0)

    def __call__(self) -> int:
        for action in self.actions:
            self.env.step(action)
        return len(self.actions) * self.env.num_envs


class Scalar:
    """Ten episodes, one after the other."""

    def __init__(self, paths: Paths, fee: float, limits: Limits, episodes: int) -> None:
        self.env = PortfolioEnv.from_paths(paths, fee, limits)
        self.env.action_space.seed(0)
        self.actions = [self.env.action_space.sample() for _ in range(paths.length)]
        self.env.reset(seed=0)

    def __call__(self) -> int:
        for _ in range(10):
            self.env.reset()
            for action in self.actions:
                self.env.step(action)
        return 10 * len(self.actions)


if __name__ == "__main__":
    main()
