"""Verdicts and tables in HTML, for the report, the page of `reproduce` and the dashboard alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from portfolio_sdpo.backtest.intervals import LEAST_PERIODS

NONE = "<span title='not defined'>–</span>"


def judge_promise(promise: Mapping[str, Any]) -> bool | None:
    """Whether a promise was kept; None where nothing was tested. A breach is stated however short the track is.

    >>> judge_promise({"kept": True, "windows": 4}), judge_promise({"kept": False, "windows": 4})
    (None, False)
    """
    kept: bool | None = promise["kept"]
    # Older records say how many periods there were, and not yet what that is worth.
    return kept if not kept or promise.get("tested", promise["windows"] >= LEAST_PERIODS) else None


def verdict(promise: Mapping[str, Any]) -> str:
    """Whether a limit was kept, in words and colour."""
    if promise["kept"] is None:
        return NONE
    kept = judge_promise(promise)
    if kept is None:
        return f"<span title='{promise['windows']} periods that do not overlap'>not tested</span>"
    return f"<span class='{'good' if kept else 'bad'}'>{'✓ yes' if kept else '✗ no'}</span>"


def table(caption: str, headings: Sequence[str], rows: Sequence[str], name: str = "") -> str:
    """Rows below headings, which are HTML already; on a phone every cell stands beside its own heading."""
    head = "".join(f"<th scope='col'>{heading}</th>" for heading in headings)
    name = name or ("pair" if len(headings) == 2 else "")
    styled = f" class='{name}'" if name else ""
    labels = [f"<td data-label='{re.sub('<[^>]*>', ' ', heading)}'" for heading in headings[1:]]
    body = "".join(_label_cells(row, labels) for row in rows)
    return (
        f"<div class='scroll' tabindex='0'><table{styled}><caption><span>{caption}</span></caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _label_cells(row: str, labels: Sequence[str]) -> str:
    """The row, each cell with its heading in an attribute.

    >>> _label_cells("<tr><th>a</th><td>1</td></tr>", ["<td data-label='x'"])
    "<tr><th>a</th><td data-label='x'>1</td></tr>"
    """
    left = iter(labels)
    return re.sub(r"<td(?=[ >])", lambda _: next(left, "<td"), row)
