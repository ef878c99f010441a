"""How the shield keeps its promise: calendar years in which strategies behind it broke the CVaR limit.

    python benchmarks/shield_promise.py --industries industries --stocks sp500
    python benchmarks/shield_promise.py --industries industries --stocks sp500 --strategies sdpo
    python benchmarks/shield_promise.py --strategies sdpo --preset lstm --universes twenty --seeds 0,1

Next-close execution, weekly decisions, 5 bps and no interest on cash unless options say otherwise. Three kinds of
universes, each left out with a sentence where its prices are not given:

    industries  1930 to 2017: a snapshot or file of the ten industries of Kenneth French's library
                (portfolio-sdpo data fetch --source french --name industries)
    twenty      1995 to 2022: the twenty stocks that come with skfolio
    dozens      2008 to 2021: random dozens, seeds 0, 1, ..., of the columns of a wide snapshot or file that have
                prices throughout

A universe-year is broken when the mean of the worst 5 % of its 15-session periods, fees included, is below −5 %. The
budget used is the CVaR of the whole track over the limit. Both are shown for either form of the shield and without it.
`sdpo` is the agent of a preset. `default` decides by the vintage that was trained on earlier days only, and before the
first one it holds equal weights; `lstm` trains at every decision, for hours on the industries. Averages over universes
(and seeds); the worst year is that of all. A table, or JSON with every year.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import sys
from collections import defaultdict

import numpy as np
from joblib import Parallel, delayed

from portfolio_sdpo import load_prices
from portfolio_sdpo.backtest import CvarLimit, make_strategy, simulate
from portfolio_sdpo.backtest.shielded import shield_track
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Market
from portfolio_sdpo.portfolio.presets import preset
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns
from portfolio_sdpo.portfolio.shared_policy_agent import build_agent

SPANS = {
    "industries": ("1930-01-01", "2017-12-31"),
    "twenty": ("1995-01-01", "2022-12-31"),
    "dozens": ("2008-01-01", "2021-12-31"),
}
FORMS = ("calibrated", "filtered", "none")
LEAST_SESSIONS = 126
"""Sessions of a calendar year that is judged."""


def read_universes(options):
    """Kind, name and prices of every universe that is asked for."""
    if "industries" in options.universes:
        if options.industries is None:
            print("industries: left out, since --industries names no snapshot or file.", file=sys.stderr)
        else:
            yield "industries", "industries", load_prices(options.industries, calendar=None)
    if "twenty" in options.universes:
        yield "twenty", "twenty", load_prices("sample-skfolio")
    if "dozens" in options.universes:
        if options.stocks is None:
            print("dozens: left out, since --stocks names no snapshot or file.", file=sys.stderr)
        else:
            frame = load_prices(options.stocks)
            names = frame.columns[frame.notna().all()]
            for seed in range(options.dozens):
                drawn = np.random.default_rng(seed).choice(names, 12, replace=False)
                yield "dozens", f"dozen {seed}", frame[sorted(drawn)]


def judge(track, limit):
    """CVaR by calendar year and over all, yearly growth and turnover of a track."""
    years = track.dates[1:].astype("datetime64[Y]").astype(int) + 1970

    def cvar(returns):
        return float(conditional_value_at_risk(window_returns(returns, limit.horizon), limit.alpha))

    parts = {str(year): track.returns[years == year] for year in np.unique(years)}
    length = len(track.returns) / SESSIONS_PER_YEAR
    return {
        "years": {year: cvar(part) for year, part in parts.items() if len(part) >= LEAST_SESSIONS},
        "cvar": cvar(track.returns),
        "cagr": float((track.wealth[-1] / track.wealth[0]) ** (1 / length) - 1),
        "turnover": float(track.turnover.sum() / length),
        "invested": float(1 - track.weights[:, 0].mean()),
    }


def run(kind, name, frame, strategy, seed, options):
    """Figures of one strategy on one universe: bare, and behind the forms of the shield."""
    limit = CvarLimit(bound=options.bound, alpha=options.alpha, horizon=options.horizon)
    market = Market.from_prices(frame.loc[: SPANS[kind][1]], options.cash)
    first, last = market.span(max(np.datetime64(SPANS[kind][0]), market.dates[0]), None)
    common = {
        "start": market.dates[first + options.phase],
        "end": market.dates[last],
        "fee": options.fee_bps / 1e4,
        "execution": options.execution,
    }
    if strategy == "sdpo":
        limits = limit.model_dump()
        settings = preset(options.preset, **limits, fee_bps=options.fee_bps, execution=options.execution)
        chosen = build_agent(settings, seed)
    else:
        chosen = make_strategy(strategy, every=5)
    bare = simulate(market, chosen, **common)
    found = {}
    for form in options.forms:
        track = bare
        if form != "none":
            track = simulate(market, shield_track(bare, chosen.every, limit, form=form), **common)
        found[form] = judge(track, limit)
    label = f"{strategy} ({options.preset})" if strategy == "sdpo" else strategy
    print(f"{name} {label} done", file=sys.stderr, flush=True)
    return kind, label, found


def summarise(results, bound):
    """Rows of the table by universes, strategy and form."""
    rows = defaultdict(list)
    for kind, strategy, found in results:
        for form, figures in found.items():
            rows[kind, strategy, form].append(figures)
    return [
        {
            "universes": kind,
            "strategy": strategy,
            "shield": form,
            "universe-years": sum(len(each["years"]) for each in figures),
            "broken": float(np.mean([cvar < bound for each in figures for cvar in each["years"].values()])),
            "worst": min(cvar for each in figures for cvar in each["years"].values()),
            "budget used": float(np.mean([each["cvar"] for each in figures]) / bound),
            "cagr": float(np.mean([each["cagr"] for each in figures])),
            "turnover": float(np.mean([each["turnover"] for each in figures])),
            "invested": float(np.mean([each["invested"] for each in figures])),
        }
        for (kind, strategy, form), figures in rows.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--industries", metavar="NAME_OR_FILE")
    parser.add_argument("--stocks", metavar="NAME_OR_FILE")
    parser.add_argument("--dozens", type=int, default=24)
    parser.add_argument("--universes", default="industries,twenty,dozens", type=lambda text: text.split(","))
    parser.add_argument("--strategies", default="equal-weight", type=lambda text: text.split(","))
    parser.add_argument("--forms", default=",".join(FORMS), type=lambda text: text.split(","))
    parser.add_argument("--preset", default="default", help="of sdpo")
    parser.add_argument(
        "--seeds", default="0", type=lambda text: [int(seed) for seed in text.split(",")], help="of sdpo"
    )
    parser.add_argument("--phase", type=int, default=0, help="sessions by which the first decision is later")
    parser.add_argument("--execution", default="next-close")
    parser.add_argument("--fee-bps", type=float, default=5.0)
    parser.add_argument("--cash", type=float, default=0.0)
    for name, value in CvarLimit().model_dump().items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    runs = [
        delayed(run)(*universe, strategy, seed, options)
        for universe in read_universes(options)
        for strategy in options.strategies
        for seed in (options.seeds if strategy == "sdpo" else (0,))
    ]
    results = Parallel(n_jobs=options.jobs)(runs)
    rows = summarise(results, options.bound)
    if options.json:
        print(json.dumps({"rows": rows, "runs": results}, indent=1))
        return
    print("| universes | strategy | shield | universe-years | broken | worst year | budget used | CAGR | invested |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        shares = [f"{row[key]:.1%}" for key in ("broken", "worst", "budget used", "cagr", "invested")]
        print(f"| {row['universes']} | {row['strategy']} | {row['shield']} | {row['universe-years']} |", end=" ")
        print(" | ".join(shares), "|")


if __name__ == "__main__":
    main()
