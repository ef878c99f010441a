"""How a table is to be read: its layout, and the columns of its dates, tickers and prices."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """Columns that may hold the prices."""

    name: str
    columns: tuple[int, ...]
    tickers: tuple[str, ...] = ()
    """One per column; empty where a column of the table or the name of the file tells."""


@dataclass(frozen=True)
class Plan:
    """How to read a table."""

    layout: str
    date: int
    ticker: int | None
    candidates: tuple[Candidate, ...]
    """The preferred one first; the first one that holds any number is used."""
    notes: tuple[str, ...] = ()
    time: int | None = None
    """The column of the time of day, where it stands apart from the date."""
