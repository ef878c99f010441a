"""What every source of prices is, and what they share: ticker by ticker, partial success, cutting out a range."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

import pandas as pd
from pydantic import Field, field_validator, model_validator

from portfolio_sdpo.errors import (
    KeyRefusedError,
    NoDataInRangeError,
    RateLimitedError,
    SettingsError,
    SourceError,
    SourceUnreachableError,
    UnknownTickerError,
    did_you_mean,
)
from portfolio_sdpo.prices.prices import Prices, join_columns
from portfolio_sdpo.prices.sources.retry import Retrier, RetrySettings
from portfolio_sdpo.settings import Settings

Progress = Callable[[str, str], object]
"""Called with a ticker and its status: `fetching`, `waiting 4 s: ...`, `arrived`, `failed: ...`, `skipped`, and on
Ctrl-C `interrupted`: true for an answer keeps what has arrived by then, anything else lets the interrupt through."""

HOPELESS_IN_A_ROW = 2
"""After so many tickers in a row for which the source was unreachable or refused the key, the rest is not tried."""


class Source(Protocol):
    """Where prices come from."""

    name: ClassVar[str]
    """As the user calls it: `--source name`."""

    def fetch(
        self, tickers: Sequence[str], start: date | None, end: date | None, progress: Progress | None = None
    ) -> Prices:
        """The prices from `start` to `end`, both included; None = as far as the source goes.

        What arrived is returned, what did not is in `Prices.failures`; a `SourceError` is raised if nothing arrived.
        """
        ...

    def settings(self) -> dict[str, Any]:
        """What `make_source` needs to make this source again, as plain JSON values and without secrets."""
        ...


class SourceSettings(Settings):
    """Base of the sources: frozen settings with a `fetch`."""

    name: ClassVar[str]
    never_changes: ClassVar[bool] = False
    """Whether an update can find nothing new."""
    reads_everything: ClassVar[bool] = False
    """Whether the source is read from beginning to end, whatever range is asked for."""

    @model_validator(mode="before")
    @classmethod
    def _check_known(cls, fields: Any) -> Any:
        # Pydantic's own complaint quotes the value, and that may be a key under a misspelt name.
        unknown = set(fields) - set(cls.model_fields) if isinstance(fields, dict) else set()
        if unknown:
            known = ", ".join(cls.model_fields) or "none"
            raise ValueError(f"there is no setting {', '.join(sorted(unknown))} (there are: {known})")
        return fields

    def settings(self) -> dict[str, Any]:
        """What `make_source` needs to make this source again, as plain JSON values and without secrets."""
        return self.model_dump(mode="json", exclude_defaults=True)


class NetworkSource(SourceSettings):
    """Base of the sources that are asked over the network, one ticker at a time."""

    timeout: float = Field(30.0, gt=0)
    """Seconds to wait for one answer."""
    retry: RetrySettings = RetrySettings()
    """How often a request is tried again, and how long that may take."""

    @field_validator("base_url", "api_base", check_fields=False)
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise ValueError("must be a web address such as https://example.com")
        return url

    def fetch_each(
        self, tickers: Sequence[str], one: Callable[[str], pd.Series], progress: Progress | None
    ) -> tuple[dict[str, pd.Series], dict[str, SourceError]]:
        """What `one` gives for each ticker, tried again where that helps, and the tickers that did not arrive.

        A source that limits requests is not asked for the tickers that are left, and neither is one that was
        unreachable or refused the key for two tickers in a row.
        """
        report = progress or (lambda ticker, status: None)
        patience = Retrier(self.retry)
        arrived: dict[str, pd.Series] = {}
        failures: dict[str, SourceError] = {}
        hopeless = 0
        stopped: tuple[str, SourceError] | None = None
        for ticker in tickers:
            if stopped:
                failures[ticker] = _make_skip_error(ticker, *stopped)
                report(ticker, "skipped")
                continue
            report(ticker, "fetching")
            try:
                arrived[ticker] = patience.call(partial(one, ticker), partial(_report_wait, report, ticker))
            except SourceError as error:
                failures[ticker] = error
                report(ticker, f"failed: {error}")
                hopeless = hopeless + 1 if isinstance(error, (SourceUnreachableError, KeyRefusedError)) else 0
                if isinstance(error, RateLimitedError) or hopeless == HOPELESS_IN_A_ROW:
                    stopped = ticker, error
            except KeyboardInterrupt:
                if not arrived or not report(ticker, "interrupted"):
                    raise
                failures[ticker] = SourceError(f"{ticker} was interrupted: ask for it again with `data update`.")
                stopped = ticker, SourceError("ask for it with `data update`.")
            else:
                hopeless = 0
                report(ticker, "arrived")
        if not arrived:
            raise combine_failures(failures)
        return arrived, failures


def check_request(tickers: Iterable[str], start: date | None, end: date | None) -> list[str]:
    """The tickers in capitals and each once, in the order given; a `SettingsError` when the request makes no sense."""
    chosen = list(dict.fromkeys(ticker.strip().upper() for ticker in tickers))
    if not chosen:
        raise SettingsError("tickers: name at least one, for example AAPL.")
    for ticker in chosen:
        if not ticker or re.search(r"[\s?#%\\]", ticker):
            raise SettingsError(f"tickers: {ticker!r} is not a ticker; separate several by commas.")
    check_range(start, end)
    return chosen


def check_range(start: date | None, end: date | None) -> None:
    """Refuse a range that ends before it starts."""
    if start is not None and end is not None and start > end:
        raise SettingsError(f"start: {start} is after the end, {end}.")


def describe_range(start: date | None, end: date | None) -> str:
    """The range as a part of a sentence.

    >>> describe_range(date(2020, 1, 2), None)
    'from 2020-01-02 on'
    """
    if start is None and end is None:
        return "at all"
    if end is None:
        return f"from {start} on"
    return f"up to {end}" if start is None else f"from {start} to {end}"


def slice_dates(frame: pd.DataFrame | pd.Series, start: date | None, end: date | None) -> Any:
    """The rows from `start` to `end`, both included; the index is dates without a time zone."""
    keep = pd.Series(True, index=range(len(frame)))
    if start is not None:
        keep &= frame.index >= pd.Timestamp(start)
    if end is not None:
        keep &= frame.index < pd.Timestamp(end) + pd.Timedelta(days=1)
    return frame[keep.to_numpy()]


def join_series(columns: Mapping[str, pd.Series]) -> pd.DataFrame:
    """One column per ticker."""
    return join_columns([column.to_frame(ticker) for ticker, column in columns.items()])


def select(
    prices: Prices, where: str, tickers: Sequence[str], start: date | None, end: date | None, progress: Progress | None
) -> Prices:
    """The part of prices at hand that was asked for; no tickers = all, and cleaning reports those without a price."""
    check_range(start, end)
    frame = prices.frame if start is None and end is None else slice_dates(prices.frame, start, end)
    failures = dict(prices.failures)
    tickers = [ticker if ticker in frame.columns else ticker.upper() for ticker in dict.fromkeys(tickers)]
    for ticker in tickers:
        if ticker not in frame.columns:
            failures[ticker] = UnknownTickerError(
                f"There is no ticker {ticker}{did_you_mean(ticker, frame.columns)} in {where}: "
                f"choose from {_some(frame.columns)}."
            )
        elif not frame[ticker].notna().any():
            failures[ticker] = no_data(where, ticker, start, end)
    if tickers:
        frame = frame[[ticker for ticker in frame.columns if ticker in tickers and ticker not in failures]]
    if frame.empty and not failures:
        raise NoDataInRangeError(f"There is no price {describe_range(start, end)} in {where}: choose another range.")
    if progress:
        for ticker in dict.fromkeys([*frame.columns, *failures]):
            progress(ticker, f"failed: {failures[ticker]}" if ticker in failures else "arrived")
    if frame.empty:
        raise combine_failures(failures)
    return replace(prices, frame=frame, failures=failures)


def no_data(where: str, ticker: str, start: date | None, end: date | None) -> NoDataInRangeError:
    """The error for a known ticker without a price in the range."""
    next_step = "choose another ticker" if start is None and end is None else "choose another range"
    return NoDataInRangeError(
        f"{where} knows {ticker} and has no price of it {describe_range(start, end)}: {next_step}."
    )


def combine_failures(failures: Mapping[str, SourceError]) -> SourceError:
    """One error for a fetch of which nothing arrived; of the common class, if the failures have one."""
    if len(failures) == 1:
        return next(iter(failures.values()))
    of_kind = {type(error): error for error in reversed(list(failures.values()))}
    kind = next(iter(of_kind)) if len(of_kind) == 1 else SourceError
    reasons = " ".join(str(error) for error in reversed(list(of_kind.values())))
    return kind(f"None of the {len(failures)} tickers ({_some(failures)}) arrived: {reasons}")


def _some(tickers: Iterable[str]) -> str:
    names = list(tickers)
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _make_skip_error(ticker: str, culprit: str, error: SourceError) -> SourceError:
    return type(error)(f"{ticker} was not asked for after {culprit} had failed: {error}")


def _report_wait(report: Progress, ticker: str, wait: float, error: SourceError) -> None:
    reason = "rate limited" if isinstance(error, RateLimitedError) else "unreachable"
    report(ticker, f"waiting {wait:.3g} s: {reason}")
