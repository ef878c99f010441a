"""Prices as the arrays that are traded on, gross returns and listings, and how they are loaded.

One row per session, cash in column 0.

Row t holds what is known at close t and nothing later, so the market up to day t is a slice of the whole. Prices are
never filled: a stock without a price is unlisted that day. A stock that is listed at t and not at t+1 is paid out at
its last price (gross return 1), and a price that comes back after a gap starts a new listing (gross return 1 on its
first day).
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.errors import DataQualityError, HistoryError, SettingsError
from portfolio_sdpo.prices.frequency import count_sessions_per_year
from portfolio_sdpo.prices.survivorship import describe_survivorship

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Day = str | datetime.date | np.datetime64
"""A calendar day, as text (`2019-01-02`), date, timestamp or numpy's datetime64."""

CASH = "CASH"
SESSIONS_PER_YEAR = 252
"""Where nothing else is known: daily prices of an exchange."""
FEWEST_SESSIONS = 60
"""A year of history counts at least so many sessions, so that weekly and monthly prices can be estimated from."""
STALE = np.timedelta64(7, "D")
"""How long after its last day a cash rate still counts as known."""

STALE_SERIES = np.timedelta64(100, "D")
"""The same for rates of the user's, which may come once a quarter."""

Cash = Literal["zero", "tbill"] | float


@dataclass(frozen=True, eq=False)
class Market:
    """T sessions of A = 1 + N assets: cash, then the stocks in the order of the price frame."""

    dates: NDArray[np.datetime64]
    """[T] sessions, ascending."""
    tickers: tuple[str, ...]
    """N names, without CASH."""
    gross_returns: Array
    """[T, A] price at t over price at t−1; 1 where there is none (first of a listing, unlisted); cash: 1 + its rate."""
    listed: Mask
    """[T, A] has a price at close t, that is, can be bought then; cash always."""
    sessions_per_year: float = SESSIONS_PER_YEAR
    """252 for daily prices of an exchange, 365 around the clock, 52 weekly, 12 monthly."""

    def __post_init__(self) -> None:
        shape = len(self.dates), 1 + len(self.tickers)
        if self.gross_returns.shape != shape or self.listed.shape != shape:
            raise SettingsError(
                f"Market: gross_returns {self.gross_returns.shape} and listed {self.listed.shape} must both be "
                f"{shape}, one row per session and one column for cash and every stock."
            )
        for array in (self.dates, self.gross_returns, self.listed):
            array.setflags(write=False)

    @classmethod
    def from_prices(
        cls, frame: pd.DataFrame, cash_rate: float | pd.Series = 0.0, sessions_per_year: float | None = None
    ) -> Market:
        """The market of a wide frame (dates × tickers, NaN = no price).

        `cash_rate` is annual, simple and in decimals (0.02 = 2 %), paid in equal parts by session. Of a series, the
        money held from t−1 to t earns the last rate known at t−1, and nothing before the first one.
        `sessions_per_year` is recognised by the dates where it is not given.

        >>> import pandas as pd
        >>> prices = pd.DataFrame({"AAPL": [100.0, 110.0]}, index=pd.to_datetime(["2019-01-02", "2019-01-03"]))
        >>> Market.from_prices(prices).gross_returns.tolist()
        [[1.0, 1.0], [1.0, 1.1]]
        """
        import pandas as pd

        dates, tickers, prices = _check_frame(frame)
        if sessions_per_year is None:
            sessions_per_year = count_sessions_per_year(pd.DatetimeIndex(dates))
        gross_returns = np.ones((len(dates), 1 + len(tickers)))
        gross_returns[1:, 0] += _rates(dates[:-1], cash_rate) / sessions_per_year
        listed = np.ones(gross_returns.shape, dtype=np.bool_)
        listed[:, 1:] = ~np.isnan(prices)
        with np.errstate(over="ignore", under="ignore"):
            moves = prices[1:] / prices[:-1]
        gross_returns[1:, 1:] = np.where(np.isnan(moves), 1.0, moves)
        absurd = ~np.isfinite(gross_returns) | (gross_returns <= 0.0)
        if absurd.any():
            day, asset = np.argwhere(absurd)[0]
            raise DataQualityError(
                f"{tickers[asset - 1]} moves by the factor {gross_returns[day, asset]} on {dates[day]}: "
                "correct that price."
            )
        return cls(dates, tickers, gross_returns, listed, sessions_per_year)

    @property
    def assets(self) -> tuple[str, ...]:
        """Names of all columns, CASH first."""
        return (CASH, *self.tickers)

    def __len__(self) -> int:
        return len(self.dates)

    def until(self, t: int) -> Market:
        """Sessions 0 … t: what is known at close t."""
        if not 0 <= t < len(self):
            raise HistoryError(f"session {t} does not exist: this market has sessions 0 to {len(self) - 1}.")
        return self._slice(0, t + 1)

    def between(self, start: Day | None = None, end: Day | None = None) -> Market:
        """Sessions from start to end, both included; the first row keeps its gross return since the session before."""
        first, last = self.span(start, end)
        return self._slice(first, last + 1)

    def span(self, start: Day | None = None, end: Day | None = None) -> tuple[int, int]:
        """Indices of the first session on or after start and of the last on or before end."""
        first = 0 if start is None else int(np.searchsorted(self.dates, self._check_day("start", start)))
        last = (
            len(self) - 1 if end is None else int(np.searchsorted(self.dates, self._check_day("end", end), "right")) - 1
        )
        if start is not None and end is not None and _day("start", start) > _day("end", end):
            raise SettingsError(f"start: must not be after end (got {start} and {end}).")
        if first > last:
            raise HistoryError(f"there is no session between {start} and {end}: choose days further apart.")
        return first, last

    def index_of(self, date: Day) -> int:
        """Row of a session; a day without one is an error that names its neighbour."""
        day = self._check_day("date", date)
        t = int(np.searchsorted(self.dates, day))
        if self.dates[t] != day:
            raise HistoryError(f"{day} is not a session: the next one is {self.dates[t]}.")
        return t

    def _slice(self, first: int, stop: int) -> Market:
        rows = slice(first, stop)
        return replace(self, dates=self.dates[rows], gross_returns=self.gross_returns[rows], listed=self.listed[rows])

    def _check_day(self, field: str, value: Day) -> np.datetime64:
        day = _day(field, value)
        if not self.dates[0] <= day <= self.dates[-1]:
            raise HistoryError(
                f"{field}: {day} is outside the prices, which run from {self.dates[0]} to {self.dates[-1]}; "
                "choose a day inside or import more prices."
            )
        return day


def count_sessions_of_a_year(market: Market) -> int:
    """A year of sessions for what estimates from the past: 252 of daily prices, never fewer than `FEWEST_SESSIONS`."""
    return max(round(market.sessions_per_year), FEWEST_SESSIONS)


def all_cash(assets: int) -> Array:
    """[A] weights with everything in cash."""
    weights = np.zeros(assets)
    weights[0] = 1.0
    return weights


def named_weights(assets: Sequence[str], weights: Array) -> dict[str, float]:
    """The weights [A] that are not 0, by asset."""
    return {asset: float(weight) for asset, weight in zip(assets, weights, strict=True) if weight > 0.0}


def parse_cash(value: Any) -> Cash:
    """What cash earns, from a word or a number that may still be text; a ValueError says what it must be."""
    if isinstance(value, str) and value in ("zero", "tbill"):
        return cast("Cash", value)
    try:
        rate = float(value)
    except (TypeError, ValueError):
        rate = float("nan")
    if not -1.0 <= rate <= 1.0:
        raise ValueError("must be zero, tbill or a yearly rate in decimals such as 0.02")
    return rate


def load_market(
    snapshot: str | None, cash: Cash, start: datetime.date | None, end: datetime.date | None
) -> tuple[Market, tuple[datetime.date, datetime.date], dict[str, Any]]:
    """The whole market, the first and the last day of a backtest, and what is written down about the data."""
    frame, facts, survivorship = _load_prices(snapshot)
    market, rate, facts = _make_market(frame, cash, facts)
    first, last = select_days(market, start, end)
    if not isinstance(rate, float):
        _check_cash_rate(rate, first, last)
    return market, (first, last), facts | {"survivorship": survivorship or describe_survivorship(frame, None)}


def load_latest(snapshot: str | None, cash: Cash) -> tuple[Market, dict[str, Any]]:
    """The whole market, for a decision at its last close, and what is written down about the data."""
    frame, facts, _ = _load_prices(snapshot)
    return _check_latest(*_make_market(frame, cash, facts))


def load_frame(
    frame: pd.DataFrame, cash: Cash | pd.Series, start: datetime.date | None, end: datetime.date | None
) -> tuple[Market, tuple[datetime.date, datetime.date], dict[str, Any]]:
    """As `load_market`, of a frame of prices; cash may earn a series of annual rates by date."""
    market, rate, facts = _make_market(frame, cash, {"snapshot": None, "source": "given", "notes": []})
    first, last = select_days(market, start, end)
    if not isinstance(rate, float):
        _check_cash_rate(rate, first, last, STALE if isinstance(cash, str) else STALE_SERIES)
    return market, (first, last), facts | {"survivorship": describe_survivorship(frame, None)}


def load_latest_frame(frame: pd.DataFrame, cash: Cash) -> tuple[Market, dict[str, Any]]:
    """As `load_latest`, of a frame of prices that the caller brings."""
    return _check_latest(*_make_market(frame, cash, {"snapshot": None, "source": "given"}))


def _check_latest(market: Market, rate: float | pd.Series, facts: dict[str, Any]) -> tuple[Market, dict[str, Any]]:
    if not isinstance(rate, float):
        last = market.dates[-1].astype(datetime.date)
        _check_cash_rate(rate, last, last)
    return market, facts


def _make_market(
    frame: pd.DataFrame, cash: Cash | pd.Series, facts: dict[str, Any]
) -> tuple[Market, float | pd.Series, dict[str, Any]]:
    from portfolio_sdpo.prices.snapshots import content_hash

    rate = _cash_rate(cash)
    market = Market.from_prices(frame, rate, facts.get("sessions_per_year"))
    facts |= {
        "sha256": content_hash(frame),
        "tickers": [str(ticker) for ticker in frame.columns],
        "first": str(market.dates[0]),
        "last": str(market.dates[-1]),
        "sessions": len(market),
        "sessions_per_year": market.sessions_per_year,
    }
    if not isinstance(rate, float):
        facts["cash_sha256"] = _series_hash(rate)
    return market, rate, facts


def _load_prices(snapshot: str | None) -> tuple[pd.DataFrame, dict[str, Any], str | None]:
    """The prices, what is written down about them, and what their manifest says about survivorship, if there is one."""
    if snapshot is not None:
        from portfolio_sdpo.prices.snapshots import Store

        found = Store().open(snapshot)
        manifest = found.manifest
        facts: dict[str, Any] = {
            "snapshot": manifest.name,
            "source": manifest.source,
            "adjustment": manifest.adjustment,
            "notes": [*manifest.notes, *manifest.warnings],
            "sessions_per_year": manifest.periods_per_year,
        }
        return found.frame, facts, manifest.survivorship
    from portfolio_sdpo.prices.cleaning import clean
    from portfolio_sdpo.prices.samples import load_sample

    prices = load_sample("sample")
    cleaned = clean(prices)
    warnings = [finding.sentence for finding in cleaned.report.warnings]
    facts = {
        "snapshot": None,
        "source": "bundled sample",
        "adjustment": prices.adjustment,
        "notes": [*prices.notes, *warnings],
    }
    return cleaned.frame, facts, None


def _cash_rate(cash: Cash | pd.Series) -> float | pd.Series:
    if not isinstance(cash, str | int | float):
        return cash
    if cash == "tbill":
        from portfolio_sdpo.prices.samples import load_cash_rate

        return load_cash_rate()
    return 0.0 if cash == "zero" else float(cash)


def select_days(
    market: Market, start: datetime.date | None, end: datetime.date | None
) -> tuple[datetime.date, datetime.date]:
    """The first and the last day of a backtest; without a start, the first is the one after a year of prices."""
    warm_up = count_sessions_of_a_year(market)
    if start is None and len(market) < warm_up + 2:
        raise HistoryError(
            f"The prices have {len(market)} sessions, and a backtest begins after {warm_up} of them: "
            "import more prices or give a start."
        )
    first, last = market.span(market.dates[warm_up] if start is None else start, end)
    return market.dates[first].astype(datetime.date), market.dates[last].astype(datetime.date)


def _check_cash_rate(rate: pd.Series, first: datetime.date, last: datetime.date, stale: np.timedelta64 = STALE) -> None:
    known = rate.dropna().sort_index().index
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


def _day(field: str, value: Any) -> np.datetime64:
    try:
        day = np.datetime64(value, "D")
    except (TypeError, ValueError):
        day = np.datetime64("NaT")
    if np.isnat(day):
        raise SettingsError(f"{field}: must be a day such as 2019-01-02 (got {value!r}).")
    return day


def _check_frame(frame: pd.DataFrame) -> tuple[NDArray[np.datetime64], tuple[str, ...], Array]:
    """Dates [T], tickers and prices [T, N] of a frame that can be traded on."""
    dates = _days_of(frame)
    tickers = tuple(str(name) for name in frame.columns)
    if not len(dates) or not tickers:
        raise HistoryError(f"prices: need at least one session and one stock (got {len(dates)} and {len(tickers)}).")
    if len(set(tickers)) != len(tickers) or CASH in tickers:
        raise DataQualityError(f"prices: every ticker must appear once, and none may be called {CASH}.")
    if (dates[1:] <= dates[:-1]).any():
        raise DataQualityError("prices: sessions must ascend, each day once; clean the prices first.")
    try:
        prices = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise DataQualityError("prices: every column must hold numbers.") from None
    wrong = np.isinf(prices) | (prices <= 0.0)
    if wrong.any():
        day, asset = np.argwhere(wrong)[0]
        raise DataQualityError(
            f"{tickers[asset]} has the price {prices[day, asset]} on {dates[day]}: prices must be positive; clean them."
        )
    return dates, tickers, prices


def _days_of(table: Any) -> NDArray[np.datetime64]:
    """[T] days of a frame's or series' index, as the exchange counts them."""
    import pandas as pd

    index = table.index
    if not isinstance(index, pd.DatetimeIndex) or index.hasnans:
        raise DataQualityError(f"{type(table).__name__}: the index must hold dates (got {index.dtype}).")
    return index.tz_localize(None).to_numpy().astype("datetime64[D]")


def _rates(dates: NDArray[np.datetime64], cash_rate: float | pd.Series) -> Array:
    """[T] annual rate known on each day."""
    if isinstance(cash_rate, int | float):
        rates = np.full(len(dates), float(cash_rate))
    else:
        known = cash_rate.dropna().sort_index(kind="stable")
        # A zero before the first rate: nobody knows it yet.
        table = np.concatenate([[0.0], known.to_numpy(dtype=np.float64)])
        rates = table[np.searchsorted(_days_of(known), dates, side="right")]
    if not (np.abs(rates) <= 1.0).all():
        raise SettingsError("cash: must be an annual rate in decimals, 0.02 for 2 %, and between -1 and 1.")
    return rates
