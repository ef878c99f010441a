"""The last prices, on which a decision stands: what a reader should know about them, and whether they can be trusted.

They cannot be trusted yet where they are dated in the future, or where a move looks like an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import numpy as np

from portfolio_sdpo.common.numbers import percent
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.prices.cleaning import inspect
from portfolio_sdpo.prices.cleaning.checks import LARGE_MOVE
from portfolio_sdpo.prices.prices import Prices
from portfolio_sdpo.prices.snapshots import Snapshot

RECENT = 10
"""Sessions that are looked at."""
KINDS = frozenset({"large-move", "stale-run", "missing-session", "extra-session"})
"""Findings of cleaning that matter for a decision at the last close."""


@dataclass(frozen=True)
class Suspicion:
    """Why the last rows of prices should not be decided on."""

    sentence: str
    future: bool
    """Whether it is about dates, which no setting accepts."""
    trusted: int
    """How many sessions come before these rows."""


def find_suspicion(market: Market, today: date) -> Suspicion | None:
    """What is suspicious about the last prices; None if nothing is. `today`: in UTC.

    >>> import pandas as pd
    >>> days = pd.bdate_range("2026-01-02", periods=4)
    >>> market = Market.from_prices(pd.DataFrame({"A": [1.0, 1.1, 1.0, 100.0]}, index=days))
    >>> found = find_suspicion(market, date(2026, 1, 7))
    >>> found.trusted, found.sentence
    (3, 'A moved by +9,900.0\\xa0% at the last close, 2026-01-07: check its price.')
    """
    tomorrow = np.datetime64(today, "D") + 1
    trusted = int(np.searchsorted(market.dates, tomorrow, side="right"))
    if trusted < len(market):
        sentence = (
            f"The prices go on to {market.dates[-1]}, which is after tomorrow by the clock of this machine ({today} "
            "UTC): correct the dates or the clock."
        )
        return Suspicion(sentence, True, _skip_large_moves(market, trusted))
    trusted = _skip_large_moves(market, len(market))
    if trusted == len(market):
        return None
    moves = market.gross_returns[-1] - 1.0
    found = np.flatnonzero(np.abs(moves) > LARGE_MOVE)
    names = ", ".join(f"{market.assets[i]} moved by {percent(moves[i], sign=True)}" for i in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    what = "its price" if len(found) == 1 else "the prices"
    return Suspicion(f"{names}{more} at the last close, {market.dates[-1]}: check {what}.", False, trusted)


def _skip_large_moves(market: Market, sessions: int) -> int:
    """So many sessions, without those at their end at which a price moved too far."""
    while sessions and (np.abs(market.gross_returns[sessions - 1] - 1.0) > LARGE_MOVE).any():
        sessions -= 1
    return sessions


def describe_recent_problems(snapshot: Snapshot) -> tuple[str, ...]:
    """Sentences about the last sessions: large moves, prices that stand still, missing and carried ones."""
    manifest = snapshot.manifest
    tail = snapshot.frame.iloc[-(RECENT + 1) :]
    report = inspect(Prices(tail, manifest.column, manifest.adjustment), calendar=manifest.request.calendar)
    found = [finding.sentence for finding in report.warnings if finding.kind in KINDS]
    first, last = tail.index[min(1, len(tail) - 1)].date(), tail.index[-1].date()
    for ticker, days in sorted(manifest.carried.items()):
        recent = [day for day in days if day >= first]
        if recent and not np.isnan(tail[ticker].iloc[-1]):
            at = "at the last close" if recent[-1] == last else f"on {recent[-1]}"
            found.append(f"{ticker} had no price {at}: an earlier one is carried over the gap.")
    found += [f"{ticker}: nothing came with the last update ({why})." for ticker, why in manifest.failures.items()]
    return tuple(found)
