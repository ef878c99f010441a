"""Do intervals of the CVaR hold the truth as often as they say, and how often does the promise's test err? Prints JSON.

python benchmarks/interval_coverage.py [--markets judge] [--lengths 504,1260,2520] [--replications 200] [--draws 300]

Markets are simulated GJR-GARCH laws with Student's t, volatility 19 % and drift 8 % a year, in which the true CVaR of
15-session periods is known from 4.5 million simulated sessions. Two tracks are taken from each: all in the market, and
behind a stand-in for the shield, which every session scales to the limit by the volatility of the last sessions known
one session before (λ = 0.94). On every replication both are judged by `promise.check_promise` with the true CVaR as
the bound, where the promise is just kept: the 95 % interval should hold the truth in 95 %, and the test reject in 5 %.

The markets of `tune` were looked at when grid and weights of `intervals` were chosen, those of `judge` were not.
With 200 replications a coverage of 95 % has a standard error of 1.5 points.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import math
import sys

import numpy as np

from portfolio_sdpo.backtest import Bootstrap, CvarLimit, check_promise
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns

ALPHA, HORIZON, BOUND = 0.05, 15, -0.05
VOLATILITY, DRIFT = 0.012, 0.0003
MARKETS = {
    "tune": [(0.97, 0.08, 0.8, 6.0), (0.985, 0.10, 0.9, 8.0), (0.95, 0.15, 0.8, 5.0)],
    "judge": [(0.96, 0.12, 0.85, 7.0), (0.98, 0.07, 0.6, 10.0), (0.99, 0.09, 0.95, 5.5), (0.975, 0.10, 0.9, 4.6)],
}
"""Persistence of variance, share of it that a session's square moves, share of that which only falls cause, degrees of
freedom of Student's t."""


def simulate_market(law, paths, sessions, rng):
    """[paths, sessions] returns, after two years that are dropped."""
    persistence, shock, asymmetry, degrees = law
    variance, scale = np.ones(paths), math.sqrt((degrees - 2) / degrees)
    moves = np.empty((sessions, paths))
    for session in range(-504, sessions):
        move = np.sqrt(variance) * scale * rng.standard_t(degrees, paths)
        rise, fall = shock * (1 - asymmetry), 2 * shock * asymmetry
        variance = 1 - persistence + (rise + fall * (move < 0)) * move**2 + (persistence - shock) * variance
        if session >= 0:
            moves[session] = move
    return np.maximum(DRIFT + VOLATILITY * moves.T, -0.9)


def shield_market(returns, margin=0.9):
    """[paths, sessions] of the market at the share of wealth that the limit allows by the volatility known before."""
    variance = latest = np.full(len(returns), VOLATILITY**2)
    shielded = np.empty_like(returns)
    allowed = margin * -BOUND / (2.0627 * math.sqrt(HORIZON))
    for session, move in enumerate(returns.T):
        shielded[:, session] = np.minimum(1.0, allowed / np.sqrt(variance)) * move
        variance, latest = latest, 0.94 * latest + 0.06 * move**2
    return shielded


def find_cvar(returns):
    """Of all periods of all paths."""
    return float(conditional_value_at_risk(window_returns(returns, HORIZON).ravel(), ALPHA))


def judge(returns, truth, draws):
    """Coverage, misses on either side, size of the test and median width of the intervals, over replications."""
    limit, found = CvarLimit(bound=truth, alpha=ALPHA, horizon=HORIZON), []
    for number, track in enumerate(returns):
        promise = check_promise(track, limit, Bootstrap(draws=draws, seed=number))
        low, high = promise.interval
        found.append((low <= truth <= high, truth < low, truth > high, promise.p_value < 0.05, (high - low) / -truth))
    covered, below, above, rejected, width = np.array(found, dtype=float).T
    return {
        "coverage": round(covered.mean(), 3),
        "truth_below": round(below.mean(), 3),
        "truth_above": round(above.mean(), 3),
        "size_of_test": round(rejected.mean(), 3),
        "width_of_truth": round(float(np.median(width)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markets", choices=MARKETS, default="judge")
    parser.add_argument("--lengths", default="504,1260,2520")
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--draws", type=int, default=300)
    options = parser.parse_args()

    rows = []
    for law in MARKETS[options.markets]:
        rng = np.random.default_rng(0)
        market = simulate_market(law, 1500, 3000, rng)
        truths = {"market": find_cvar(market), "behind the shield": find_cvar(shield_market(market))}
        del market
        for sessions in map(int, options.lengths.split(",")):
            market = simulate_market(law, options.replications, sessions, rng)
            for name, returns in (("market", market), ("behind the shield", shield_market(market))):
                row = {"law": law, "sessions": sessions, "track": name, "truth": round(truths[name], 4)}
                rows.append(row | judge(returns, truths[name], options.draws))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    overall = {
        name: {
            figure: round(float(np.mean([row[figure] for row in rows if row["track"] == name])), 3)
            for figure in ("coverage", "size_of_test")
        }
        for name in ("market", "behind the shield")
    }
    print(json.dumps({"replications": options.replications, "rows": rows, "overall": overall}, indent=1))


if __name__ == "__main__":
    main()
