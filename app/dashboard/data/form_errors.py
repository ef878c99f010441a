"""Errors of the package in the words of a form: its labels instead of setting names, class names and flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

RUN_LABELS = {
    "snapshot": "Prices",
    "preset": "Preset",
    "algo": "Learning agents",
    "strategies": "Benchmarks",
    "start": "First decision",
    "end": "Last day",
    "seeds": "Seeds",
    "seed": "Seed",
    "bound": "CVaR limit",
    "alpha": "Tail α",
    "horizon": "Horizon, sessions",
    "fee_bps": "Fee, basis points",
    "cash": "Cash rate",
    "shield": "Shield",
    "max_weight": "Maximum weight per stock",
    "max_turnover": "Maximum turnover per decision",
    "groups": "Groups of stocks, CSV",
    "jobs": "Strategies in parallel",
    "config": "Agent settings (TOML)",
    "update": "Update the prices first",
    "holdout": "Held-out sessions",
}
"""Labels of the fields on the page *Run*, by the name of the setting."""
UPLOAD_LABELS = {
    "layout": "Layout",
    "dayfirst": "03/01/2011 is",
    "returns": "The numbers are",
    "to_daily": "Use the last price of each day",
    "start": "First day",
    "end": "Last day",
    "tickers": "Tickers",
    "calendar": "Calendar",
    "duplicates": "Two prices for one day",
    "non_positive": "Treat zero and negative prices as missing",
    "extra_sessions": "Drop days on which the exchange is closed",
}
"""Labels of the fields with which the page *Data* reads a file, by the name of the option."""
NO_SNAPSHOT = "upload prices on the Data page"

_OWNER = re.compile(
    r"(?:(?P<owner>(?:[A-Z]\w*)?(?:Settings|Limits?|Repairs))(?:\.(?P<path>[\w.-]+))?: )?"
    r"(?:(?P<field>[a-z_]\w*): )?(?P<rest>.*)",
    re.DOTALL,
)
"""A sentence about a setting: its class and path, or its name alone, and the complaint."""
_FLAG = re.compile(r"--([a-z][a-z-]*)")
_SENTENCES = (
    # A flag together with its value, or with the words around it, becomes a field with a choice.
    (r"--dayfirst or --monthfirst, or in the layout, as in `\S+`", "“{dayfirst}”"),
    (r"add --to-daily\b", "tick “{to_daily}”"),
    (r"add --returns (\w+)", r"set “{returns}” to “\1”"),
    (r"(=drop|=\w+\)?) --repair", r"\1 and --repair"),
    (r"add --repair", "use --repair"),
    (r"--repair (non_positive|extra_sessions)=drop", r"“{\1}”"),
    (r"--repair duplicates=first \(or =last\)", "“{duplicates}”"),
    (r"--repair duplicates=(\w+)", r"“{duplicates}” with “\1”"),
    (r"--layout (\S+)", r"“{layout}” \1"),
    (r"make it with `data fetch` or `data import`", NO_SNAPSHOT),
    (
        r"^.*shield_lookback: (.*) \(got (\d+)\): .*$",
        r"{horizon}: \1, and the shield looks back \2 sessions: choose a shorter horizon or a larger tail, or switch "
        "the shield off.",
    ),
    (r"must be before end \(", "must be before “{end}” ("),
    (r"\binput should be\b", "must be"),
)


def describe_error(error: Exception | str, labels: Mapping[str, str]) -> str:
    """The sentence of an error with the labels that a form gives to its fields.

    What concerns the settings of an agent, which a form takes as TOML, keeps the name that it has there.

    >>> describe_error("CvarLimit.alpha: input should be less than 1 (got 2.0).", RUN_LABELS)
    'Tail α: must be less than 1 (got 2.0).'
    >>> describe_error("AgentSettings.paths: input should be greater than or equal to 2 (got -1).", RUN_LABELS)
    'Agent settings (TOML), paths: must be greater than or equal to 2 (got -1).'
    >>> describe_error("the dates are ambiguous: say which with --layout wide:dayfirst.", UPLOAD_LABELS)
    'the dates are ambiguous: say which with “Layout” wide:dayfirst.'
    """
    text = str(error)
    for pattern, words in _SENTENCES:
        names = re.findall(r"\{(\w+)\}", words)
        if all(name in labels for name in names):
            text = re.sub(pattern, partial(_fill, words, labels), text)
    text = _FLAG.sub(lambda flag: _quote(flag[1].replace("-", "_"), labels) or flag[0], text)
    found = _OWNER.match(text)
    assert found is not None  # every part of the pattern may be absent
    if found["owner"] is None and found["field"] is None:
        return text
    path = found["path"] or found["field"] or ""
    rest = found["rest"] if found["path"] is None or found["field"] is None else f"{found['field']}: {found['rest']}"
    if found["owner"] == "AgentSettings":
        return f"{labels.get('config', 'Agent settings')}{f', {path}' if path else ''}: {rest}"
    name = path.rpartition(".")[2]
    return f"{labels.get(name, path)}: {rest}" if path else rest


def _fill(words: str, labels: Mapping[str, str], found: re.Match[str]) -> str:
    """The words for a match, with the labels of the fields in braces."""
    return re.sub(r"\{(\w+)\}", lambda name: labels.get(name[1], name[1]), found.expand(words))


def _quote(name: str, labels: Mapping[str, str]) -> str | None:
    return f"“{labels[name]}”" if name in labels else None
