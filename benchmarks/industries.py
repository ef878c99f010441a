"""Does the policy that comes with the package earn its place? Trains it by decade and walks it forward, 1960 to 2017.

    portfolio-sdpo data import us_industries_daily.csv --name industries --returns percent --calendar none
    python benchmarks/industries.py train --out vintages                # resumable; one file per vintage
    python benchmarks/industries.py walk --vintages vintages --out walk  # resumable; prints one JSON object
    python benchmarks/industries.py ship --vintages vintages --walk walk # writes the policy of the package

`walk` takes other years, fewer strategies, the policy of the package, and decisions on closes that are a week old:

    python benchmarks/industries.py walk --vintages shipped --start 1935 --end 1959 --late 5 --out late

The snapshot needs the ten industries of Kenneth French's library (source `french`) and a column RF, the one-month
Treasury bill (`french`, dataset `factors`). Each vintage is trained on everything before its first year, and a day is
decided by the latest vintage from before it. Decisions are weekly and traded at the next close for 5 bps; cash earns
the bill. Every strategy passes the same shield. Growth is compared at the same realised CVaR: of two tracks, the
riskier one is mixed with cash.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from portfolio_sdpo import __version__
from portfolio_sdpo.backtest.intervals import Bootstrap, resample_days
from portfolio_sdpo.backtest.shielded import ShieldedStrategy
from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo.backtest.strategies import make_benchmark
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns
from portfolio_sdpo.portfolio.shared_agent import SharedAgent
from portfolio_sdpo.portfolio.shared_policy import SHIPPED, SharedPolicy, join_vintages, load_shipped_policy
from portfolio_sdpo.portfolio.shared_training import SharedSettings, train_policy
from portfolio_sdpo.prices.load import load_prices

YEARS = (1935, 1940, 1945, 1950, 1955, 1960, 1970, 1980, 1990, 2000, 2010, 2018)
"""First years that the vintages do not know."""
START, END = 1960, 2017
RIVALS = (
    "equal-weight",
    "inverse-volatility",
    "momentum-12-1",
    "mean-variance",
    "minimum-variance",
    "risk-parity",
    "maximum-return",
)
LIMIT = CvarLimit()
FEE = 0.0005


class Late:
    """A strategy that sees no close of the last few sessions: what is left of it does not come from stale prices."""

    def __init__(self, inner, sessions: int) -> None:
        self.inner = inner
        self.sessions = sessions
        self.every = inner.every
        self.name = inner.name

    def decide(self, history: Market, held):
        return self.inner.decide(history.until(len(history) - 1 - self.sessions), held)


class Always:
    """The policy at a deviation of 1, whatever the evidence."""

    every = 5
    name = "policy"

    def __init__(self, policy: SharedPolicy) -> None:
        self.policy = policy

    def decide(self, history: Market, held):
        return self.policy.allocate(history)


def load_market(snapshot: str) -> tuple[Market, str]:
    frame = load_prices(snapshot)
    digest = hashlib.sha256(frame.to_numpy().tobytes()).hexdigest()
    bill = frame.pop("RF").to_numpy()
    market = Market.from_prices(frame)
    gross_returns = market.gross_returns.copy()
    gross_returns[1:, 0] = bill[1:] / bill[:-1]
    return Market(market.dates, market.tickers, gross_returns, market.listed), digest


def load_vintages(folder: Path) -> SharedPolicy:
    if str(folder) == "shipped":
        return load_shipped_policy()
    return join_vintages([SharedPolicy.load(folder / f"{year}.safetensors") for year in YEARS], {})


def train(market: Market, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for year in YEARS:
        path = folder / f"{year}.safetensors"
        if not path.exists():
            known = market.dates[market.dates < np.datetime64(f"{year}-01-01")]
            train_policy(market, SharedSettings(), ends=[known[-1]]).save(path)
            print(path, flush=True)


def walk(market: Market, vintages: Path, folder: Path, names: list[str], years: tuple[int, int], late: int) -> dict:
    folder.mkdir(parents=True, exist_ok=True)
    policy = load_vintages(vintages)
    strategies = {"policy": Always(policy), "sdpo": SharedAgent(policy, LIMIT, fee=FEE)}
    strategies |= {name: make_benchmark(name, LIMIT) for name in RIVALS}
    if unknown := sorted(set(names) - set(strategies)):
        raise SystemExit(f"--strategies: there is no {', '.join(unknown)}; choose of {', '.join(strategies)}.")
    strategies = {name: strategies[name] for name in names}
    walked = f"{years[0]} to {years[1]}, {late} sessions late, vintages {vintages}"
    for name, strategy in strategies.items():
        path = folder / f"{name}.npz"
        if path.exists():
            stored = np.load(path)
            if "walked" not in stored or str(stored["walked"]) != walked:
                raise SystemExit(f"{path} is of another walk than {walked}: give another folder with --out.")
            continue
        last = market.dates[market.dates < np.datetime64(f"{years[1] + 1}-01-01")][-1]
        decided = Late(strategy, late) if late else strategy
        track = simulate(market, ShieldedStrategy(decided, LIMIT), start=f"{years[0]}-01-01", end=last, fee=FEE)
        deviations = [row["deviation"] for row in getattr(strategy, "trace", [])]
        np.savez(
            path,
            returns=track.returns,
            cash=track.cash_returns,
            dates=track.dates[1:],
            turnover=track.turnover.mean() * 252,
            deviations=deviations,
            walked=walked,
        )
        print(path, file=sys.stderr, flush=True)
    return summarise(folder, list(strategies))


def summarise(folder: Path, names: list[str]) -> dict:
    tracks = {name: np.load(folder / f"{name}.npz") for name in names}
    first = next(iter(tracks.values()))
    cash = first["cash"]
    years = first["dates"].astype("datetime64[Y]").astype(int) + 1970
    rows = {}
    for name, track in tracks.items():
        returns = track["returns"]
        by_year = {int(year): cvar(returns[years == year]) for year in np.unique(years)}
        rows[name] = {
            "growth": yearly(returns),
            "cvar": cvar(returns),
            "turnover": float(track["turnover"]),
            "broken_years": [year for year, value in by_year.items() if value < LIMIT.bound],
        }
        for agent in sorted({"sdpo", "policy"} & set(tracks)):
            rows[name][f"{agent}_beyond"] = compare(tracks[agent]["returns"], returns, cash, years)
    return {"years": len(np.unique(years)), "strategies": rows}


def compare(returns: np.ndarray, rival: np.ndarray, cash: np.ndarray, years: np.ndarray) -> dict:
    """Log growth a year beyond the rival at the same realised CVaR, with its interval, and by decade."""
    least = max(cvar(returns), cvar(rival))
    difference = np.log1p(scale(returns, cash, least)) - np.log1p(scale(rival, cash, least))
    bootstrap = Bootstrap(block=63)
    drawn = difference[resample_days(difference, bootstrap)].mean(axis=1) * 252
    decades = {
        int(decade): yearly_difference(returns[chosen], rival[chosen], cash[chosen])
        for decade in np.unique(years // 10 * 10)
        for chosen in [years // 10 * 10 == decade]
    }
    growth = float(difference.mean() * 252)
    return {
        "growth": growth,
        "interval": list(bootstrap.interval(drawn)),
        "at_cvar": least,
        "per_percent_of_cvar": -growth / least / 100.0,
        "decades": decades,
    }


def yearly_difference(returns: np.ndarray, rival: np.ndarray, cash: np.ndarray) -> float:
    least = max(cvar(returns), cvar(rival))
    return yearly(scale(returns, cash, least)) - yearly(scale(rival, cash, least))


def yearly(returns: np.ndarray) -> float:
    return float(np.log1p(returns).mean() * 252)


def cvar(returns: np.ndarray) -> float:
    return float(conditional_value_at_risk(window_returns(returns, LIMIT.horizon), LIMIT.alpha))


def scale(returns: np.ndarray, cash: np.ndarray, least: float) -> np.ndarray:
    """The returns, mixed with cash until their CVaR is no lower than `least`."""
    low, high = 0.0, 1.0
    for _ in range(40 if cvar(returns) < least else 0):
        share = (low + high) / 2.0
        low, high = (low, share) if cvar(cash + share * (returns - cash)) < least else (share, high)
    return cash + low * (returns - cash) if low else returns


def ship(market: Market, digest: str, vintages: Path, folder: Path) -> None:
    results = summarise(folder, sorted(path.stem for path in folder.glob("*.npz")))
    policy = load_vintages(vintages)
    card = {
        "data": "ten US industry portfolios, value-weighted daily total returns, and the one-month Treasury bill: "
        "Kenneth R. French's data library",
        "data_sha256": digest,
        "first": str(market.dates[0]),
        "last": str(market.dates[-1]),
        "vintages": [str(vintage.until) for vintage in policy.vintages],
        "command": "python benchmarks/industries.py train; walk; ship",
        "settings": SharedSettings().model_dump(mode="json"),
        "version": __version__,
        "results": results,
        "limits": "Trained on portfolios of many stocks, of one country. Elsewhere it deviates from equal weights only "
        "as far as the universe's own past supports it. The same industries were seen in training.",
    }
    SharedPolicy(policy.vintages, card).save(SHIPPED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("train", "walk", "ship"))
    parser.add_argument("--snapshot", default="industries")
    parser.add_argument("--vintages", type=Path, default=Path("vintages"))
    parser.add_argument("--out", "--walk", dest="folder", type=Path)
    parser.add_argument("--start", type=int, default=START, help="first year of the walk")
    parser.add_argument("--end", type=int, default=END, help="last year of the walk")
    parser.add_argument("--late", type=int, default=0, help="sessions before a decision that it does not see")
    parser.add_argument("--strategies", default=",".join(("policy", "sdpo", *RIVALS)))
    options = parser.parse_args()
    market, digest = load_market(options.snapshot)
    if options.step == "train":
        train(market, options.folder or options.vintages)
    elif options.step == "walk":
        names, years = options.strategies.split(","), (options.start, options.end)
        found = walk(market, options.vintages, options.folder or Path("walk"), names, years, options.late)
        print(json.dumps(found, indent=2))
    else:
        ship(market, digest, options.vintages, options.folder or Path("walk"))


if __name__ == "__main__":
    main()
