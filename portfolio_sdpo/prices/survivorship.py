"""What a universe says about survivorship: whether it holds the securities that have left it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def describe_survivorship(frame: pd.DataFrame, membership: Mapping[str, object] | None) -> str:
    """One sentence on whether the universe holds what has left it."""
    count = frame.shape[1]
    at_end = int(frame.iloc[-5:].notna().any().sum())
    if membership is not None:
        return f"The universe follows a membership file: {count} tickers were members once, {at_end} are at the end."
    if at_end == count:
        return (
            f"All {count} tickers still have prices at the end: those that left the universe before are missing, so "
            "results on it carry survivorship bias."
        )
    return (
        f"{count - at_end} of {count} tickers end before the last day; whether all that left the universe are there is "
        "unknown."
    )
