"""What is selected on a page, in its address, which shows the same page to others.

What is seen without a parameter is left out of the address where it is certain to be the same tomorrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import streamlit as st

FROM, TO = "from", "to"
"""The query parameters with the first and the last day that are shown."""
LOG = "log"
"""The query parameter of a logarithmic scale."""


def read_choice(name: str, options: Sequence[str]) -> int | None:
    """The place of the option that the address names; None where it names none of them."""
    asked = st.query_params.get(name, "")
    return list(options).index(asked) if asked in options else None


def read_choices(name: str, options: Sequence[str], usual: Sequence[str]) -> list[str]:
    """Those of the options that the address names, or else the usual ones; an empty name is none of them."""
    told = st.query_params.get_all(name)
    asked = [each for each in told if each in options]
    return asked or ([] if told == [""] else list(usual))


def write_choice(name: str, value: str | Sequence[str], usual: str | Sequence[str] | None) -> None:
    """Put what is selected into the address, unless it is what is seen without it (None: always)."""
    told = [value] if isinstance(value, str) else list(value)
    if usual is not None and told == ([usual] if isinstance(usual, str) else list(usual)):
        st.query_params.pop(name, None)
    elif st.query_params.get_all(name) != (told or [""]):
        st.query_params[name] = told or ""


def read_number(name: str, low: float, high: float) -> float | None:
    """The number in the address; None where there is none between these."""
    try:
        value = float(st.query_params.get(name, ""))
    except ValueError:
        return None
    return value if low <= value <= high else None


def write_number(name: str, value: float | None, usual: float | None) -> None:
    """Put a number into the address, unless it is the usual one."""
    write_choice(name, "" if value is None else f"{value:.12g}", "" if usual is None else f"{usual:.12g}")


def choose_switch(place: Any, label: str, name: str, *, key: str | None = None, help: str | None = None) -> bool:
    """A toggle whose state is in the address under its name."""
    on: bool = place.toggle(label, value=st.query_params.get(name) == "1", key=key or name, help=help)
    write_choice(name, "1" if on else "0", "0")
    return on


def choose_days(place: Any, first: date, last: date, key: str) -> tuple[date, date]:
    """The days to show, of those that there are; both ends are in the address, and at first all days are shown."""
    asked = _read_day(FROM, first, first, last), _read_day(TO, last, first, last)
    usual = asked if asked[0] < asked[1] else (first, last)
    # Streamlit refuses a value that is given in two ways.
    value = {} if key in st.session_state else {"value": usual}
    chosen = place.date_input(
        "Days", **value, min_value=first, max_value=last, key=key, format="YYYY-MM-DD", label_visibility="collapsed"
    )
    # While the second day is being chosen there is but one.
    found = (chosen[0], chosen[1]) if len(chosen) == 2 and chosen[0] < chosen[1] else usual
    for name, day, edge in zip((FROM, TO), found, (first, last), strict=True):
        write_choice(name, str(day), str(edge))
    return found


def _read_day(name: str, usual: date, first: date, last: date) -> date:
    try:
        return min(max(date.fromisoformat(st.query_params.get(name, "")), first), last)
    except ValueError:
        return usual
