"""Does the shield keep its promise out of sample, and at what price? Prints one JSON object, and rows as they come.

python benchmarks/shield_promise.py [--prices FILE.csv] [--dozens 10] [--start 2019-01-02] [--end 2021-10-14]

The promise: the worst 5 % of 15-session periods lose at most 5 % on average. Realised CVaR and growth of wealth, over
the whole span and by calendar year, of equal weights, the convex maximum-return portfolio and a mean-variance stand-in
for the agent (`Mix`), each bare and behind the shield; equal weights also behind the plain shield (`caution=None`:
windows of the last 504 sessions as they were, looking only when the strategy decides). Universes: the bundled nine
stocks, skfolio's twenty, and with `--prices` (a wide CSV of adjusted closes, dates first) as many random dozens of its
columns, seeds 0, 1, ….
Everything about the shield was chosen on sessions before 2019. No fee unless `--fee-bps` says so.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import sys

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest import CvarLimit, simulate
from portfolio_sdpo.backtest.lookback import select_stocks
from portfolio_sdpo.backtest.simulate import DecisionReplay, ShieldedStrategy
from portfolio_sdpo.backtest.strategies import EqualWeight, MaximumReturn
from portfolio_sdpo.portfolio.cvar_limit import normal_cvar
from portfolio_sdpo.portfolio.market import Market, all_cash
from portfolio_sdpo.portfolio.return_measures import Volatility, conditional_value_at_risk, window_returns
from portfolio_sdpo.portfolio.scenarios import scale_to_current_volatility
from portfolio_sdpo.prices.samples import load_sample

LIMIT = CvarLimit()


class Mix:
    """Highest expected log growth under the limit, of a constant mix, with days independent and normal.

    What the agent's scenarios amount to when days are drawn one by one. Mean growth is pulled towards the average of
    all stocks by `shrink`; with `filtered` days are brought to today's volatility first.
    """

    every = 5

    def __init__(self, history: int = 252, shrink: float = 1.0, filtered: Volatility | None = None) -> None:
        self.history, self.shrink, self.filtered = history, shrink, filtered
        self.name = f"mix-{history}" + ("-filtered" if filtered else "")

    def decide(self, history: Market, held):
        weights = all_cash(len(held))
        chosen = select_stocks(history, min(self.history, len(history) - 1))
        if len(chosen):
            gross_returns = history.gross_returns[-self.history :, chosen]
            if self.filtered is not None:
                gross_returns = scale_to_current_volatility(gross_returns, self.filtered)
            growth = np.log(gross_returns)
            mean = growth.mean(axis=0) + growth.var(axis=0) / 2
            mean = mean + self.shrink * (mean.mean() - mean)
            weights[chosen] = best_mix(mean, np.atleast_2d(np.cov(growth.T)))
            weights[0] = max(1.0 - weights[chosen].sum(), 0.0)
        return weights


def best_mix(mean, covariance):
    """[n] weights of the stocks, from daily mean and covariance."""
    import cvxpy as cp

    horizon = LIMIT.horizon
    root = np.linalg.cholesky(covariance + 1e-10 * np.eye(len(mean))).T
    weights = cp.Variable(len(mean), nonneg=True)
    # In units of the horizon's standard deviation of about 1 %, which solvers like better.
    gain, spread = 100 * horizon * mean @ weights, 100 * np.sqrt(horizon) * root @ weights
    risk = -normal_cvar(LIMIT.alpha) * cp.norm(spread)
    problem = cp.Problem(
        cp.Maximize(gain - cp.sum_squares(spread) / 200),
        [cp.sum(weights) <= 1, risk - gain <= -100 * np.log1p(LIMIT.bound)],
    )
    problem.solve(solver="CLARABEL")
    found = np.maximum(weights.value, 0.0)
    return found / max(found.sum(), 1.0)


def strategies():
    return {
        "equal-weight": EqualWeight(),
        "maximum-return": MaximumReturn(limit=LIMIT),
        "mix-252": Mix(),
        "mix-1008-filtered": Mix(1008, 0.5, Volatility()),
    }


def universes(options):
    yield "bundled nine", load_sample("sample").frame
    yield "skfolio twenty", load_sample("sample-skfolio").frame
    if options.prices:
        frame = pd.read_csv(options.prices, index_col=0, parse_dates=True)
        frame = frame.where(frame > 0)
        # A day on which hardly any stock has a price is no session.
        frame = frame[frame.notna().mean(axis=1) > 0.5]
        for seed in range(options.dozens):
            drawn = np.random.default_rng(seed).choice(frame.columns, 12, replace=False)
            yield f"dozen {seed}", frame[sorted(drawn)]


def figures(track, days=()):
    """Realised CVaR and wealth, over all and by year."""
    returns, years = track.returns, track.dates[1:].astype("datetime64[Y]").astype(int) + 1970

    def of(part):
        realised = conditional_value_at_risk(window_returns(part, LIMIT.horizon), LIMIT.alpha)
        return {"cvar": round(float(realised), 4), "wealth": round(float(np.prod(1 + part)), 4)}

    found = {"all": of(returns), **{str(year): of(returns[years == year]) for year in np.unique(years)}}
    found["turnover_a_year"] = round(float(track.turnover.sum() / len(returns) * 252), 2)
    found["invested"] = round(float(1 - track.weights[:, 0].mean()), 3)
    if days:
        found["scaled"] = round(float(np.mean([day["kappa"] < 1 for day in days])), 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prices")
    parser.add_argument("--dozens", type=int, default=10)
    parser.add_argument("--start", default="2019-01-02")
    parser.add_argument("--end", default="2021-10-14")
    parser.add_argument("--fee-bps", type=float, default=0.0)
    options = parser.parse_args()

    common = {"start": options.start, "end": options.end, "fee": options.fee_bps / 1e4}
    results = {}
    for universe, frame in universes(options):
        market = Market.from_prices(frame.loc[: options.end])
        rows = results[universe] = {}
        for name, strategy in strategies().items():
            track = simulate(market, strategy, **common)
            rows[name] = figures(track)
            replay = DecisionReplay(track.name, track.decisions, strategy.every)
            shields = {"shield": ShieldedStrategy(replay, LIMIT)}
            if name == "equal-weight":
                plain = ShieldedStrategy(replay, LIMIT, every=strategy.every, caution=None)
                shields = {"plain shield": plain, **shields}
            for label, shielded in shields.items():
                rows[f"{name} + {label}"] = figures(simulate(market, shielded, **common), shielded.days)
        print(json.dumps({universe: rows}), file=sys.stderr, flush=True)
    print(json.dumps({"limit": LIMIT.model_dump(), "results": results, "kept": kept(results)}, indent=1))


def kept(results):
    """Share of universes that kept the promise over all and in each year, and mean yearly log growth, by strategy."""
    table = {}
    for name in next(iter(results.values())):
        spans = [
            {key: value for key, value in rows[name].items() if isinstance(value, dict)} for rows in results.values()
        ]
        table[name] = {
            key: {
                "kept": round(float(np.mean([span[key]["cvar"] >= LIMIT.bound for span in spans])), 3),
                "mean_cvar": round(float(np.mean([span[key]["cvar"] for span in spans])), 4),
                "worst_cvar": min(span[key]["cvar"] for span in spans),
                "median_wealth": round(float(np.median([span[key]["wealth"] for span in spans])), 3),
            }
            for key in spans[0]
        }
    return table


if __name__ == "__main__":
    main()
