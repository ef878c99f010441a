"""A report for anybody's returns: the page of a backtest for a track that was made elsewhere, its limit tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo import __version__
from portfolio_sdpo.backtest.metrics import compare_all, make_metrics
from portfolio_sdpo.backtest.record import StrategyRun, TrackKind, make_record
from portfolio_sdpo.backtest.run import BacktestSettings, DeclaredAgent
from portfolio_sdpo.backtest.simulate import Track, simulate
from portfolio_sdpo.backtest.strategies import BuyAndHold
from portfolio_sdpo.common.files import make_id
from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.errors import DataQualityError, SettingsError, did_you_mean
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.shield import CvarLimit
from portfolio_sdpo.prices.frame_checks import check_prices
from portfolio_sdpo.prices.returns import accumulate_returns, check_unit
from portfolio_sdpo.report.result import BacktestResult

FEWEST = 2
"""Returns that a track needs."""
HIGHEST = 0.2
"""Half of all daily returns larger than this are not decimals."""
NOT_KNOWN = ("turnover", "cost", "next", "final_weights")
"""What returns alone do not say."""


def tear_sheet(
    returns: pd.Series | pd.DataFrame,
    benchmark: pd.Series | str | None = None,
    *,
    unit: str = "decimal",
    cvar: float = -0.05,
    alpha: float = 0.05,
    horizon: int = 15,
    cash: float = 0.0,
    intervals: bool | int = True,
    seed: int = 0,
) -> BacktestResult:
    """Measure returns that were earned elsewhere, and test them against a CVaR limit.

    Parameters
    ----------
    returns : Series or DataFrame of shape (n_sessions, n_tracks)
        Returns per session with dates as index, net of whatever they are net of.
    benchmark : Series or str, optional
        What the tracks are compared with: returns in the same unit, or the name of a column of `returns`. Only sessions
        that all tracks have are used.
    unit : {"decimal", "percent", "log", "gross"}, default "decimal"
        How returns are written: 0.01, 1.0, ln(1.01) or 1.01.
    cvar, alpha, horizon : float, float, int
        The limit that is tested: the worst `alpha` of `horizon`-session periods may lose `-cvar` on average.
    cash : float, default 0.0
        What cash earned a year, 0.02 = 2 %, for Sharpe ratios and for comparisons at the same risk.
    intervals : bool or int, default True
        Whether to draw bootstrap intervals and tests; a number is that of the draws.
    seed : int, default 0
        Seed of the intervals.

    Returns
    -------
    BacktestResult
        `print` shows the table, `metrics` has the figures, `report("report.html")` writes the page. Weights, turnover
        and cost are not known.

    Raises
    ------
    DataQualityError, SettingsError
        If the returns cannot be returns in this unit, or a parameter is wrong.

    Examples
    --------
    >>> from portfolio_sdpo import load_prices, tear_sheet
    >>> returns = load_prices("sample").loc["2019":"2021", ["AAPL", "JNJ"]].pct_change().dropna()
    >>> result = tear_sheet(returns["AAPL"], returns["JNJ"], intervals=False)
    >>> result.metrics[["total_return", "cvar_window", "kept_limit"]].round(2).rename_axis(None)
          total_return  cvar_window  kept_limit
    AAPL          2.75        -0.15       False
    JNJ           0.35        -0.10       False
    """
    frame = returns.to_frame(_name_of(returns, "returns")) if isinstance(returns, pd.Series) else returns
    if not isinstance(frame, pd.DataFrame):
        raise SettingsError(f"returns: must be a Series or a DataFrame by date (got a {type(frame).__name__}).")
    if isinstance(benchmark, pd.Series):
        name = _name_of(benchmark, "benchmark")
        if name in frame.columns:
            raise SettingsError(f"benchmark: a track is called {name} too; rename one of them.")
        frame, benchmark = frame.join(benchmark.rename(name), how="outer"), name
    levels = _check_levels(accumulate_returns(_check_returns(frame, unit), check_unit(unit)))
    limit = CvarLimit(bound=cvar, alpha=alpha, horizon=horizon)
    bootstrap = {"seed": seed, **({} if intervals is True else {"draws": intervals})} if intervals else None
    return measure_levels(levels, benchmark, limit, cash=cash, bootstrap=bootstrap)


def measure_levels(
    levels: pd.DataFrame,
    benchmark: str | None,
    limit: CvarLimit,
    *,
    cash: float = 0.0,
    bootstrap: dict[str, Any] | None = None,
    source: str = "given",
    notes: Sequence[str] = (),
) -> BacktestResult:
    """As `tear_sheet`, for levels such as wealth or prices; sessions that not all tracks have are left out."""
    if benchmark is not None and benchmark not in levels.columns:
        raise SettingsError(
            f"benchmark: there is no track {benchmark!r}{did_you_mean(benchmark, map(str, levels.columns))}; there are "
            f"{', '.join(map(str, levels.columns))}."
        )
    if bootstrap is not None:
        require_extra("A report with intervals", "arch", "backtest")
    shared = levels.dropna()
    if len(shared) <= FEWEST:
        raise DataQualityError(
            f"The tracks share {max(len(shared) - 1, 0)} returns, and a report needs {FEWEST}; give longer ones, or "
            "tracks of the same days."
        )
    if len(shared) < len(levels):
        notes = [*notes, f"{len(levels) - len(shared)} sessions that not all tracks have are left out."]
    tracks = [str(name) for name in shared.columns if name != benchmark]
    names = [*tracks, *([] if benchmark is None else [benchmark])]
    if not tracks:
        raise SettingsError("benchmark: is the only track there is; give returns to compare it with.")
    kinds: dict[str, TrackKind] = {name: "benchmark" if name == benchmark else "agent" for name in names}
    runs = [StrategyRun(_follow(shared[[name]], cash), kind) for name, kind in kinds.items()]
    settings = BacktestSettings(strategies=("cash",), cash=cash, limit=limit, bootstrap=bootstrap).model_copy(
        update={
            "strategies": () if benchmark is None else (benchmark,),
            "agents": tuple(DeclaredAgent(label=name) for name in tracks),
        }
    )
    metrics = make_metrics(runs, limit, settings.bootstrap)
    for figures in metrics:
        figures |= dict.fromkeys(NOT_KNOWN)
    first = runs[0].track
    content = {
        "package_version": __version__,
        "returns": source,
        "settings": settings.model_dump(mode="json"),
        "strategies": {},
        "data": {
            "snapshot": None,
            "source": source,
            "adjustment": "as given",
            "notes": list(notes),
            "tickers": names,
            "first": str(first.dates[0]),
            "last": str(first.dates[-1]),
            "sessions": len(first.returns),
            "sessions_per_year": first.sessions_per_year,
        },
    }
    created = datetime.now(UTC).replace(microsecond=0)
    config = {"id": make_id(created, [content, metrics]), "created_at": created.isoformat(), **content}
    record = make_record(config, metrics, runs, 0.0, compare_all(runs, limit, settings.bootstrap))
    return BacktestResult(replace(record, weights=record.weights.iloc[:0], trades=record.trades.iloc[:0]))


def _follow(levels: pd.DataFrame, cash: float) -> Track:
    """The track of holding what the levels are of: its returns are theirs."""
    market = Market.from_prices(levels, cash)
    held = simulate(market, BuyAndHold(), execution="same-close")
    return replace(held, name=str(levels.columns[0]), notes=())


def _check_returns(frame: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Refuse what is no table of returns by day, or in another unit."""
    if not isinstance(frame.index, pd.DatetimeIndex):
        raise DataQualityError("returns: the index must hold dates; convert it with pandas.to_datetime.")
    if frame.index.has_duplicates or not frame.index.is_monotonic_increasing:
        raise DataQualityError("returns: every date must appear once, in ascending order; sort and clean the index.")
    if not all(pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes):
        raise DataQualityError("returns: every column must hold numbers; convert or drop the others.")
    values = frame.to_numpy(dtype=float)
    if unit == "decimal" and np.isfinite(values).any() and float(np.nanmedian(np.abs(values))) > HIGHEST:
        raise DataQualityError(
            "returns: half of them are beyond 20 % a session, so they are hardly decimals; say what they are with "
            "--returns percent (or log, gross; in Python unit='percent')."
        )
    return frame


def _check_levels(levels: pd.DataFrame) -> pd.DataFrame:
    if (levels.to_numpy() <= 0.0).any():
        raise DataQualityError("returns: one of them is −100 % or below, after which there is nothing left to measure.")
    return check_prices(levels)


def _name_of(track: pd.Series, usual: str) -> str:
    return usual if track.name is None else str(track.name)
