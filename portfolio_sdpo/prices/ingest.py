"""Prices in: from a source or a file, through cleaning, into a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from portfolio_sdpo.prices.calendar import check_calendar
from portfolio_sdpo.prices.cleaning import Repairs
from portfolio_sdpo.prices.frame_checks import refuse_cash
from portfolio_sdpo.prices.frequency import AUTOMATIC, recognise_frequency
from portfolio_sdpo.prices.manifest import Membership, Request
from portfolio_sdpo.prices.membership import clean_request
from portfolio_sdpo.prices.prices import check_currencies
from portfolio_sdpo.prices.snapshots import SaveResult, Store, check_name
from portfolio_sdpo.prices.sources import Progress, make_source


def fetch_snapshot(
    source: str,
    tickers: Sequence[str],
    start: date | None,
    end: date | None,
    name: str,
    *,
    settings: Mapping[str, Any] | None = None,
    calendar: str | None = AUTOMATIC,
    repairs: Repairs | None = None,
    membership: Membership | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> SaveResult:
    """Ask a source for the tickers' prices from `start` to `end`, both included, and store what arrived.

    Tickers that did not arrive are named in the manifest's warnings, and `update` asks for them again. Samples and
    files give all tickers they have when none is named. calendar: the exchange's, `auto` = by the frequency of the
    dates (the NYSE for daily ones), None = no check. membership: who was a member of the universe when.
    """
    check_name(name)  # before the work, not after it
    if calendar != AUTOMATIC:
        check_calendar(calendar)
    origin = make_source(source, **settings or {})
    prices = origin.fetch(tickers, start, end, progress)
    refuse_cash(prices.frame.columns)
    check_currencies(prices, convertible=source == "file")
    frequency = recognise_frequency(pd.DatetimeIndex(prices.frame.index))
    if calendar == AUTOMATIC:
        calendar = frequency.calendar
    request = Request(
        source=source,
        settings=origin.settings(),
        tickers=tuple(prices.frame.columns.union(list(prices.failures))) if tickers else None,
        start=start,
        end=end,
        calendar=calendar,
        repairs=repairs or Repairs(),
        carry=frequency.carry,
        membership=membership,
    )
    return (store or Store()).save(name, clean_request(prices, request), prices, request)


def import_snapshot(
    path: Path,
    name: str,
    layout: str | None = None,
    *,
    tickers: Sequence[str] = (),
    start: date | None = None,
    end: date | None = None,
    dayfirst: bool | None = None,
    returns: str | None = None,
    to_daily: bool = False,
    currency: str | None = None,
    rates: Path | None = None,
    calendar: str | None = AUTOMATIC,
    repairs: Repairs | None = None,
    membership: Membership | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> SaveResult:
    """Store the prices in a file or a folder of files.

    layout: None = recognise it. tickers, start, end: only these, everything by default. dayfirst: whether 03/01/2011 is
    in January; None = the file has to show it. returns: the unit of the numbers if they are returns. to_daily: keep the
    last price of each day of intraday data. currency: turn the prices into it. rates: a file of the exchange rates for
    that, whose columns are pairs such as EURUSD. The rest is as in `fetch_snapshot`.
    """
    return fetch_snapshot(
        "file",
        tickers,
        start,
        end,
        name,
        settings={
            "path": path,
            "layout": layout,
            "dayfirst": dayfirst,
            "returns": returns,
            "to_daily": to_daily,
            "currency": currency,
            "rates": rates,
        },
        calendar=calendar,
        repairs=repairs,
        membership=membership,
        store=store,
        progress=progress,
    )
