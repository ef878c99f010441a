"""Universes that change: who was a member when, and what that says about survivorship."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.cleaning import CleanPrices, clean
from portfolio_sdpo.prices.layouts.column_names import TICKER, find_columns
from portfolio_sdpo.prices.layouts.dates import parse_dates
from portfolio_sdpo.prices.layouts.files import open_table
from portfolio_sdpo.prices.manifest import Membership, Request
from portfolio_sdpo.prices.prices import Prices

_FROM = ("from", "start", "startdate", "added", "dateadded", "datefrom", "first", "entry", "begin")
_TO = ("to", "thru", "end", "enddate", "removed", "dateremoved", "dateto", "last", "exit")


def read_membership(path: Path) -> Membership:
    """Who was a member when: a file with the columns ticker, from and to, one row per membership.

    An empty `from` is before all prices, an empty `to` is until now; both days belong to the membership.
    """
    path = Path(path)
    try:
        table = open_table(path)
        columns = [find_columns(table.names, words) for words in (TICKER, _FROM, _TO)]
        if not all(columns):
            raise LayoutError("a membership file has the columns ticker, from and to.")
        texts, _ = table.load([found[0] for found in columns], [])
        starts, ends = (_parse(column) for column in texts[1:])
    except LayoutError as error:
        raise LayoutError(f"--membership {path}: {error}") from None
    membership: dict[str, list[tuple[date | None, date | None]]] = {}
    for ticker, start, end in zip(texts[0], starts, ends, strict=True):
        if start and end and start > end:
            raise LayoutError(f"--membership {path}: {ticker} leaves on {end}, before it joins on {start}; correct it.")
        membership.setdefault(str(ticker).strip(), []).append((start, end))
    return {ticker: tuple(spans) for ticker, spans in membership.items()}


def _parse(column: pd.Series) -> list[date | None]:
    filled = column.astype("str").str.strip().replace({"nan": "", "None": ""})
    if not (filled != "").any():
        return [None] * len(column)
    days = parse_dates(filled).days.astype("datetime64[D]")
    return [None if np.isnat(day) else day.astype(object) for day in days]


def clean_request(prices: Prices, request: Request) -> CleanPrices:
    """Prices cleaned as the request says, and empty where a ticker was no member of the universe."""
    cleaned = clean(prices, calendar=request.calendar, repairs=request.repairs, carry=request.carry)
    return cleaned if request.membership is None else apply_membership(cleaned, request.membership)


def apply_membership(cleaned: CleanPrices, membership: Membership) -> CleanPrices:
    """The prices without those of days on which a ticker was no member; a ticker that never was one is left out."""
    frame = cleaned.frame
    days = frame.index.to_numpy().astype("datetime64[D]")
    member = np.zeros(frame.shape, bool)
    for column, ticker in enumerate(frame.columns):
        for start, end in membership.get(ticker, ()):
            member[:, column] |= (days >= (np.datetime64(start) if start else days[0])) & (
                days <= (np.datetime64(end) if end else days[-1])
            )
    frame = frame.where(member).dropna(axis=1, how="all").dropna(axis=0, how="all")
    stays = {ticker: frame[ticker].dropna().index for ticker in cleaned.carried if ticker in frame}
    carried = {
        ticker: [day for day in cleaned.carried[ticker] if pd.Timestamp(day) in index]
        for ticker, index in stays.items()
    }
    return replace(cleaned, frame=frame, carried={ticker: left for ticker, left in carried.items() if left})
