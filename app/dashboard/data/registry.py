"""The registry of models, opened once for all pages and visitors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    from portfolio_sdpo.registry import Registry


def open_registry() -> Registry:
    """The registry that `PORTFOLIO_SDPO_REGISTRY` names, or the one in the data directory."""
    return _open(os.environ.get("PORTFOLIO_SDPO_REGISTRY"))


@st.cache_resource(show_spinner=False)
def _open(url: str | None) -> Registry:
    from portfolio_sdpo.registry import Registry

    return Registry.open(url)
