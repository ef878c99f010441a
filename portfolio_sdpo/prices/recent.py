"""What there is to say about the last sessions of a snapshot, for the reader of an answer that stands on them."""

from __future__ import annotations

import numpy as np

from portfolio_sdpo.prices.cleaning import inspect
from portfolio_sdpo.prices.prices import Prices
from portfolio_sdpo.prices.snapshots import Snapshot

RECENT = 10
"""Sessions that are looked at."""
KINDS = frozenset({"large-move", "stale-run", "missing-session", "extra-session"})
"""Findings of cleaning that matter for a decision at the last close."""


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
