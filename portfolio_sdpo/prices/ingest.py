"""Prices in: from a source or a file, through cleaning, into a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from portfolio_sdpo.prices.calendar import check_calendar
from portfolio_sdpo.prices.cleaning import Repairs, clean
from portfolio_sdpo.prices.manifest import Request
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
    calendar: str | None = "XNYS",
    repairs: Repairs | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> SaveResult:
    """Ask a source for the tickers' prices from `start` to `end`, both included, and store what arrived.

    Tickers that did not arrive are named in the manifest's warnings, and `update` asks for them again. Samples and
    files give all tickers they have when none is named.
    """
    check_name(name)  # before the work, not after it
    check_calendar(calendar)
    origin = make_source(source, **settings or {})
    prices = origin.fetch(tickers, start, end, progress)
    request = Request(
        source=source,
        settings=origin.settings(),
        tickers=tuple(prices.frame.columns.union(list(prices.failures))) if tickers else None,
        start=start,
        end=end,
        calendar=calendar,
        repairs=repairs or Repairs(),
    )
    cleaned = clean(prices, calendar=calendar, repairs=request.repairs, carry=request.carry)
    return (store or Store()).save(name, cleaned, prices, request)


def import_snapshot(
    path: Path,
    name: str,
    layout: str | None = None,
    *,
    dayfirst: bool | None = None,
    calendar: str | None = "XNYS",
    repairs: Repairs | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> SaveResult:
    """Store the prices in a file or a folder of files.

    layout: None = recognise it. dayfirst: whether 03/01/2011 is in January; None = the file has to tell.
    """
    return fetch_snapshot(
        "file",
        (),
        None,
        None,
        name,
        settings={"path": path, "layout": layout, "dayfirst": dayfirst},
        calendar=calendar,
        repairs=repairs,
        store=store,
        progress=progress,
    )
