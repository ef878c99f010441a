"""How a strategy looks: its colour, dash and width are the same in every run, figure and page.

A colour goes with the name, and the shielded form of a strategy is the strategy, dashed. What this package does not
know by name gets what is free, beginning at a place that its name decides.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from portfolio_sdpo.backtest.record import MAIN_BENCHMARKS, StrategyGroup
from portfolio_sdpo.report.comparisons import find_strongest_shielded

Spec = dict[str, Any]

# Okabe and Ito's colours, told apart with any kind of colour vision; the pale ones last, ink for their black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "var(--ink)")
MORE_COLOURS = ("#7570B3", "#66A61E", "#A6761D", "#E7298A")
"""For strategies beyond these, visible on white and on black."""
DASHARRAYS = {
    "solid": "",
    "dash": "6 3",
    "dot": "2 3",
    "dashdot": "6 3 2 3",
    "longdash": "10 4",
    "longdashdot": "10 4 2 4",
}
"""Dashes by their name in plotly, as SVG has them."""
DASHES = (("solid", "dash"), ("dot", "dashdot"), ("longdash", "longdashdot"))
"""Of a strategy and of its shielded form: first of the only run, or the first of several, and then of the next ones."""
SHOWN_AT_FIRST = 6
"""Curves that are not hidden when the page opens."""

_KNOWN = {
    "sdpo": "#0072B2",
    "equal-weight": "#D55E00",
    "maximum-return": "#009E73",
    "ppo": "#CC79A7",
    "mean-variance": "#E69F00",
    "inverse-volatility": "#56B4E9",
    "buy-and-hold": "var(--ink)",
    "minimum-variance": "#7570B3",
    "risk-parity": "#66A61E",
    "hrp": "#A6761D",
    "minimum-cvar": "#E7298A",
    "momentum-12-1": "#1FA2B8",
}
_BETWEEN = " · "
"""Between the letter of a run, or a seed, and the name of a strategy, where several runs are compared."""


def line_styles(found: Sequence[StrategyGroup]) -> dict[str, Spec]:
    """Colour, dash and width of every strategy, by name."""
    agents = {_bare(group.name) for group in found if group.kind != "benchmark"}
    colours = _assign_colours(dict.fromkeys(_bare(group.name) for group in found), agents)
    runs = list(dict.fromkeys(group.name.rpartition(_BETWEEN)[0] for group in found))
    styles: dict[str, Spec] = {}
    for group in found:
        bare = _bare(group.name)
        plain, shielded = DASHES[runs.index(group.name.rpartition(_BETWEEN)[0]) % len(DASHES)]
        dash = shielded if group.name.endswith(" + shield") else plain
        styles[group.name] = {
            "color": colours[bare],
            "dash": "dot" if bare == "cash" else dash,
            "width": 1.5 if bare == "cash" else 2.6 if bare in agents else 1.8,
        }
    return styles


def hidden_at_first(found: Sequence[StrategyGroup]) -> list[str]:
    """Strategies whose curves wait to be asked for: agents, and those that they are compared with, are shown."""
    if len(found) <= SHOWN_AT_FIRST:
        return []
    agents = [group.name for group in found if group.kind != "benchmark"]
    benchmarks = sorted((group for group in found if group.kind == "benchmark"), key=lambda group: _rank(group.name))
    strongest = find_strongest_shielded(found)
    first = ["equal-weight + shield", *([] if strongest is None else [strongest.name]), "equal-weight"]
    ranked = list(dict.fromkeys([*first, *(group.name for group in benchmarks)]))
    known = {group.name for group in benchmarks}
    return [name for name in ranked if name in known][max(SHOWN_AT_FIRST - len(agents), 3) :]


def _bare(name: str) -> str:
    """Without the run and the seed before the name, and the shield after it."""
    return name.rpartition(_BETWEEN)[2].removesuffix(" + shield")


def _assign_colours(names: dict[str, None], agents: set[str]) -> dict[str, str]:
    found = {name: _KNOWN.get(name, "var(--muted)") for name in names if name in _KNOWN or name == "cash"}
    for name in names:
        if name not in found:
            every = list(_candidates(name, name in agents))
            found[name] = next((colour for colour in every if colour not in found.values()), every[0])
    return found


def _candidates(name: str, agent: bool) -> Iterator[str]:
    """All colours, for an agent in order, for a benchmark beginning at a place that its name decides."""
    every = (*COLOURS, *MORE_COLOURS)
    start = 0 if agent else zlib.crc32(name.encode()) % len(every)
    yield from every[start:] + every[:start]


def _rank(benchmark: str) -> int:
    return MAIN_BENCHMARKS.index(benchmark) if benchmark in MAIN_BENCHMARKS else len(MAIN_BENCHMARKS)
