"""Do intervals of the CVaR hold the truth as often as they say, and how often does the promise's test err?

    python benchmarks/interval_coverage.py
    python benchmarks/interval_coverage.py --markets judge --sessions 756,2520 --replications 400 --only 3,4
    python benchmarks/interval_coverage.py --markets tune --json

Markets are simulated, with volatility 19 % and drift 8 % a year: independent days, GARCH and GJR-GARCH, with moves that
follow the normal distribution or Student's t. The true CVaR of 15-session periods is known from 4.5 million sessions.
Two tracks are taken from each: all in the market, and behind a stand-in for the shield, which every session scales to
the limit by the volatility of the last sessions known one session before (λ = 0.94). On every replication both are
judged by `promise.check_promise` with the true CVaR as the bound, where the promise is just kept: the 95 % interval
should hold the truth in 95 %, and the test reject in 5 %. Tracks with fewer than 20 periods, such as one year, are not
tested, there as here.

The markets of `tune` were looked at when the method of `intervals` was chosen, those of `judge` were not. With 200
replications a coverage of 95 % has a standard error of 1.5 points.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import math
import sys

import numpy as np
from joblib import Parallel, delayed

from portfolio_sdpo.backtest import Bootstrap, CvarLimit, check_promise
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns

ALPHA, HORIZON, BOUND = 0.05, 15, -0.05
VOLATILITY, DRIFT = 0.012, 0.0003
NORMAL = 1e6  # degrees of freedom at which Student's t is as good as the normal distribution
MARKETS = {
    "tune": {
        "GJR-GARCH 0.97, 0.08, t 6": (0.97, 0.08, 0.8, 6.0),
        "GJR-GARCH 0.985, 0.10, t 8": (0.985, 0.10, 0.9, 8.0),
        "GJR-GARCH 0.95, 0.15, t 5": (0.95, 0.15, 0.8, 5.0),
        "GJR-GARCH 0.992, 0.08, t 6": (0.992, 0.08, 0.8, 6.0),
        "GARCH 0.985, 0.06, normal": (0.985, 0.06, 0.0, NORMAL),
        "GARCH 0.97, 0.10, t 5": (0.97, 0.10, 0.0, 5.0),
        "independent, t 6": (0.0, 0.0, 0.0, 6.0),
    },
    "judge": {
        "independent, normal": (0.0, 0.0, 0.0, NORMAL),
        "independent, t 4": (0.0, 0.0, 0.0, 4.0),
        "GARCH 0.98, 0.08, normal": (0.98, 0.08, 0.0, NORMAL),
        "GARCH 0.98, 0.08, t 4": (0.98, 0.08, 0.0, 4.0),
        "GJR-GARCH 0.96, 0.12, t 7": (0.96, 0.12, 0.85, 7.0),
        "GJR-GARCH 0.98, 0.07, t 10": (0.98, 0.07, 0.6, 10.0),
        "GJR-GARCH 0.99, 0.09, t 5.5": (0.99, 0.09, 0.95, 5.5),
        "GJR-GARCH 0.975, 0.10, t 4.6": (0.975, 0.10, 0.9, 4.6),
    },
}
"""Persistence of variance, share of it that a session's square moves, share of that which only falls cause, degrees of
freedom of Student's t."""
TRACKS = ("market", "behind the shield")


def simulate_market(kind, paths, sessions, rng):
    """[paths, sessions] returns, after two years that are dropped."""
    persistence, shock, asymmetry, degrees = kind
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
        if not promise.tested:
            return None
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


def judge_market(number, name, options):
    """Rows of one market: for each length and each of the two tracks."""
    kind, rng, rows = MARKETS[options.markets][name], np.random.default_rng(number), []
    market = simulate_market(kind, 1500, 3000, rng)
    truths = find_cvar(market), find_cvar(shield_market(market))
    del market
    for sessions in options.sessions:
        market = simulate_market(kind, options.replications, sessions, rng)
        for track, truth, returns in zip(TRACKS, truths, (market, shield_market(market)), strict=True):
            row = {"market": name, "sessions": sessions, "track": track, "truth": round(truth, 4)}
            rows.append(row | (judge(returns, truth, options.draws) or {"tested": False}))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def show_table(rows):
    """A row of the table for every market and length."""
    print(f"| market | sessions | {' | '.join(f'{track}: coverage, size of the test' for track in TRACKS)} |")
    print("|---|---|---|---|")
    for bare, behind in zip(rows[::2], rows[1::2], strict=True):
        cells = [f"{row['coverage']:.1%}, {row['size_of_test']:.1%}" if "coverage" in row else "not tested"
                 for row in (bare, behind)]  # fmt: skip
        print(f"| {bare['market']} | {bare['sessions']} | {' | '.join(cells)} |")
    for track in TRACKS:
        tested = [row for row in rows if row["track"] == track and "coverage" in row]
        if tested:
            coverages, sizes = ([row[figure] for row in tested] for figure in ("coverage", "size_of_test"))
            print(
                f"\n{track}: coverage {np.mean(coverages):.1%} on average, {min(coverages):.1%} to "
                f"{max(coverages):.1%}; size {np.mean(sizes):.1%}, at most {max(sizes):.1%}"
            )


def main() -> None:
    def numbers(text):
        return [int(each) for each in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markets", choices=MARKETS, default="judge")
    parser.add_argument("--only", type=numbers, help="the markets of these numbers, from 0; all by default")
    parser.add_argument(
        "--sessions", type=numbers, default="252,300,756,2520,6300", help="1, 3, 10, 25 years, and the least tested"
    )
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    chosen = list(enumerate(MARKETS[options.markets]))
    if options.only is not None:
        chosen = [chosen[number] for number in options.only]
    runs = [delayed(judge_market)(number, name, options) for number, name in chosen]
    rows = [row for rows in Parallel(n_jobs=options.jobs)(runs) for row in rows]
    if options.json:
        print(json.dumps({"replications": options.replications, "draws": options.draws, "rows": rows}, indent=1))
    else:
        show_table(rows)


if __name__ == "__main__":
    main()
