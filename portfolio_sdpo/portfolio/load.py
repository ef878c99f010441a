"""The market of a backtest: a snapshot or the bundled sample, what cash earns, and the days that are walked."""

from __future__ import annotations

import hashlib
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from portfolio_sdpo.errors import HistoryError, SettingsError
from portfolio_sdpo.portfolio.market import Market

if TYPE_CHECKING:
    import pandas as pd

WARM_UP = 252
"""Sessions before the first decision when no start is given, so that what estimates has something to look at."""
STALE = np.timedelta64(7, "D")
"""How long after its last day a cash rate still counts as known."""

STALE_SERIES = np.timedelta64(100, "D")
"""The same for rates of the user's, which may come once a quarter."""

Cash = Literal["zero", "tbill"] | float


def checked_cash(value: Any) -> Cash:
    """What cash earns, from a word or a number that may still be text; a ValueError says what it must be."""
    if value in ("zero", "tbill"):
        return cast("Cash", value)
    try:
        rate = float(value)
    except (TypeError, ValueError):
        rate = float("nan")
    if not -1.0 <= rate <= 1.0:
        raise ValueError("must be zero, tbill or a yearly rate in decimals such as 0.02")
    return rate


def load_market(
    snapshot: str | None, cash: Cash, start: date | None, end: date | None
) -> tuple[Market, tuple[date, date], dict[str, Any]]:
    """The whole market, the first and the last day that are walked, and what is written down about the data."""
    market, rate, facts = _open(snapshot, cash)
    first, last = select_days(market, start, end)
    if not isinstance(rate, float):
        _check_covered(rate, first, last)
    return market, (first, last), facts


def load_latest(snapshot: str | None, cash: Cash) -> tuple[Market, dict[str, Any]]:
    """The whole market, for whoever only looks at its last close, and what is written down about the data."""
    return _latest(*_open(snapshot, cash))


def load_frame(
    frame: pd.DataFrame, cash: Cash | pd.Series, start: date | None, end: date | None
) -> tuple[Market, tuple[date, date], dict[str, Any]]:
    """As `load_market`, of a frame of prices; cash may earn a series of annual rates by date."""
    market, rate, facts = _made(frame, cash, {"snapshot": None, "source": "given", "notes": []})
    first, last = select_days(market, start, end)
    if not isinstance(rate, float):
        _check_covered(rate, first, last, STALE if isinstance(cash, str) else STALE_SERIES)
    return market, (first, last), facts


def market_of(frame: pd.DataFrame, cash: Cash) -> tuple[Market, dict[str, Any]]:
    """As `load_latest`, of a frame of prices that somebody else brought."""
    return _latest(*_made(frame, cash, {"snapshot": None, "source": "given"}))


def _latest(market: Market, rate: float | pd.Series, facts: dict[str, Any]) -> tuple[Market, dict[str, Any]]:
    if not isinstance(rate, float):
        last = market.dates[-1].astype(date)
        _check_covered(rate, last, last)
    return market, facts


def _open(snapshot: str | None, cash: Cash) -> tuple[Market, float | pd.Series, dict[str, Any]]:
    frame, facts = _prices(snapshot)
    return _made(frame, cash, facts)


def _made(
    frame: pd.DataFrame, cash: Cash | pd.Series, facts: dict[str, Any]
) -> tuple[Market, float | pd.Series, dict[str, Any]]:
    from portfolio_sdpo.prices.snapshots import content_hash

    rate = _cash_rate(cash)
    market = Market.from_prices(frame, rate)
    facts |= {
        "sha256": content_hash(frame),
        "tickers": [str(ticker) for ticker in frame.columns],
        "first": str(market.dates[0]),
        "last": str(market.dates[-1]),
        "sessions": len(market),
    }
    if not isinstance(rate, float):
        facts["cash_sha256"] = _series_hash(rate)
    return market, rate, facts


def _prices(snapshot: str | None) -> tuple[pd.DataFrame, dict[str, Any]]:
    if snapshot is not None:
        from portfolio_sdpo.prices.snapshots import Store

        found = Store().open(snapshot)
        manifest = found.manifest
        return found.frame, {
            "snapshot": manifest.name,
            "source": manifest.source,
            "adjustment": manifest.adjustment,
            "notes": [*manifest.notes, *manifest.warnings],
        }
    from portfolio_sdpo.prices.cleaning import clean
    from portfolio_sdpo.prices.samples import load_sample

    prices = load_sample("sample")
    cleaned = clean(prices)
    warnings = [finding.sentence for finding in cleaned.report.warnings]
    return cleaned.frame, {
        "snapshot": None,
        "source": "bundled sample",
        "adjustment": prices.adjustment,
        "notes": [*prices.notes, *warnings],
    }


def _cash_rate(cash: Cash | pd.Series) -> float | pd.Series:
    if not isinstance(cash, str | int | float):
        return cash
    if cash == "tbill":
        from portfolio_sdpo.prices.samples import load_cash_rate

        return load_cash_rate()
    return 0.0 if cash == "zero" else float(cash)


def select_days(market: Market, start: date | None, end: date | None) -> tuple[date, date]:
    """The first and the last day of a backtest; without a start, the first is the one after `WARM_UP` sessions."""
    if start is None and len(market) < WARM_UP + 2:
        raise HistoryError(
            f"The prices have {len(market)} sessions, and a backtest begins after {WARM_UP} of them: "
            "import more prices or give a start."
        )
    first, last = market.span(market.dates[WARM_UP] if start is None else start, end)
    return market.dates[first].astype(date), market.dates[last].astype(date)


def _check_covered(rate: pd.Series, first: date, last: date, stale: np.timedelta64 = STALE) -> None:
    known = rate.dropna().index
    if first < known[0].date() or np.datetime64(last) > known[-1].to_datetime64() + stale:
        what = "the Treasury bill's rate is" if stale == STALE else "its rates are"
        raise SettingsError(
            f"cash: {what} known from {known[0].date()} to {known[-1].date()}, and it is needed "
            f"from {first} to {last}: give a yearly rate such as 0.02."
        )


def _series_hash(rate: pd.Series) -> str:
    """sha256 of the days since 1970-01-01 (int64) and the rates (float64), little endian."""
    days = rate.index.to_numpy().astype("datetime64[D]").astype("<i8")
    return hashlib.sha256(days.tobytes() + rate.to_numpy(dtype="<f8").tobytes()).hexdigest()
