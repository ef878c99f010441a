"""What is selected on a page, in its address, which shows the same page to others."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st


def read_choice(name: str, options: Sequence[str]) -> int | None:
    """The place of the option that the address names; None where it names none of them."""
    asked = st.query_params.get(name, "")
    return list(options).index(asked) if asked in options else None


def read_choices(name: str, options: Sequence[str], usual: Sequence[str]) -> list[str]:
    """Those of the options that the address names, or else the usual ones."""
    asked = [each for each in st.query_params.get_all(name) if each in options]
    return asked or list(usual)


def write_choice(name: str, value: str | Sequence[str], usual: str | Sequence[str]) -> None:
    """Put what is selected into the address, unless it is what is seen without it."""
    told = [value] if isinstance(value, str) else list(value)
    if told == ([usual] if isinstance(usual, str) else list(usual)):
        st.query_params.pop(name, None)
    elif st.query_params.get_all(name) != told:
        st.query_params[name] = told


def choose_switch(place: object, label: str, name: str, *, help: str | None = None) -> bool:
    """A toggle whose state is in the address, under the name that is its key."""
    on: bool = place.toggle(label, value=st.query_params.get(name) == "1", key=name, help=help)  # type: ignore[attr-defined]
    write_choice(name, "1" if on else "0", "0")
    return on
