"""How long walk-forward training takes, on one core. Prints one JSON object.

python benchmarks/walk_forward.py [--updates 30] [--stocks 9 50 400] [--days 5 10 20] [--whole]

`update` compares one update of SDPO and of PPO in the paper's window protocol (preset `paper-stocks`, 1275 steps), in
turns in one process. `assets` and `days` walk the same agent through ever more stocks and days, ten updates a day:
what does not rise per asset or per day is at most linear. `--whole` walks one SDPO agent through all of 2019, likewise.
Times are the process's own, which says what one core does on a busy machine too.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import time

import numpy as np
import torch

from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo.portfolio.agent import Agent, build_learner
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.presets import preset
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.samples import load_sample

TARGETS = {"sdpo_over_ppo": 1.5, "seconds_of_2019": 120}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--stocks", type=int, nargs="+", default=[9, 50, 400])
    parser.add_argument("--days", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    times = updates(arguments.updates)
    result = {
        "targets": TARGETS,
        "update": {f"{name}_ms": 1e3 * float(np.median(taken)) for name, taken in times.items()},
        "sdpo_over_ppo": float(np.median(times["sdpo"]) / np.median(times["ppo"])),
        "seconds_of_2019_at_that_rate": 251 * 10 * float(np.median(times["sdpo"])),
        "assets": [
            {"stocks": count, "seconds": (taken := walked(random_market(count), 3)), "per_asset": taken / (1 + count)}
            for count in arguments.stocks
        ],
        "days": [
            {"days": days, "seconds": (taken := walked(random_market(9), days)), "per_day": taken / days}
            for days in arguments.days
        ],
    }
    if arguments.whole:
        market = Market.from_prices(clean(load_sample("sample")).frame)
        first, last = market.span("2019-01-02", "2019-12-31")
        result["seconds_of_2019"] = walked(market.until(last), last - first)
    print(json.dumps(result, indent=2))


def updates(count: int) -> dict[str, list[float]]:
    """Seconds of every update, the algorithms in turns."""
    rng = np.random.default_rng(0)
    gross_returns = torch.as_tensor(np.exp(0.01 * rng.standard_normal((1, 16, 10))), dtype=torch.float32)
    gross_returns[..., 0] = 1.0
    listed, generator = torch.ones_like(gross_returns, dtype=torch.bool), torch.Generator().manual_seed(0)
    learners = {algo: build_learner(preset("paper-stocks", algo), 10) for algo in ("sdpo", "ppo")}
    for learner in learners.values():
        learner.update(gross_returns, listed, generator)  # critics are warmed up in the first one
    times: dict[str, list[float]] = {algo: [] for algo in learners}
    for _ in range(count):
        for algo, learner in learners.items():
            begun = time.process_time()
            learner.update(gross_returns, listed, generator)
            times[algo].append(time.process_time() - begun)
    return times


def random_market(stocks: int, sessions: int = 60) -> Market:
    import pandas as pd

    moves = 0.01 * np.random.default_rng(0).standard_normal((sessions, stocks))
    index = pd.bdate_range("2019-01-02", periods=sessions)
    return Market.from_prices(pd.DataFrame(100 * np.exp(moves.cumsum(axis=0)), index, [f"S{i}" for i in range(stocks)]))


def walked(market: Market, days: int) -> float:
    """Seconds that the last so many days of the market take."""
    agent = Agent(preset("paper-stocks", "sdpo", config={"first": 10, "further": 10}))
    begun = time.process_time()
    simulate(market, agent, start=market.dates[-1 - days])
    return time.process_time() - begun


if __name__ == "__main__":
    main()
