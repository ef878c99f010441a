"""Pages of whoever has nothing yet: useful, and the bundled sample is one button away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from portfolio_sdpo.backtest.record import list_records
from portfolio_sdpo_app.dashboard.navigation import PAGES

from ..conftest import at_home

PAGE = """
import streamlit as st
from portfolio_sdpo_app.dashboard.pages import backtest
from portfolio_sdpo_app.dashboard.navigation import PAGES, get_page

st.navigation([get_page(name) for name in PAGES])
backtest.render()
"""


OFFERS = {
    "live": ("No model is champion yet", "Train on the bundled sample"),
    "backtest": ("There is no backtest yet", "Try it on the bundled sample"),
    "compare": ("There is no backtest to compare yet", "Try it on the bundled sample"),
    "training": ("Nothing has been trained yet", "Train on the bundled sample"),
    "data": ("There is no snapshot yet", "Use the bundled sample"),
    "run": ("There are no prices of your own yet, so the bundled sample is used", "Start the backtest"),
}
"""What each page says where there is nothing, and the button to the sample."""


def test_every_page_is_covered():
    assert list(OFFERS) == list(PAGES)


@pytest.mark.parametrize(("width", "scheme"), [("laptop", "light"), ("phone", "dark")])
def test_every_page_opens_and_offers_the_sample(visit: Callable, empty: str, width: str, scheme: str):
    visitor = visit(width, scheme)
    for name, (said, button) in OFFERS.items():
        page = visitor.open(empty, "" if name == "live" else name)
        assert page.locator("h1").inner_text() == PAGES[name][0]
        assert said in visitor.alerts()[0]
        page.get_by_role("button", name=button).wait_for()
        visitor.no_sideways()
        visitor.keep(f"{name}-empty-{width}-{scheme}")


def test_live_leads_to_a_retrain(visit: Callable, empty: str):
    page = visit().open(empty, "")
    assert page.get_by_role("link", name="Choose prices and settings").get_attribute("href") == "run"


def test_the_sample_becomes_a_backtest(tmp_path: Path):
    with at_home(tmp_path):
        script = AppTest.from_string(PAGE, default_timeout=300).run()
        assert not script.exception
        script.button(key="sample").click().run()
        assert not script.exception
        (folder,) = list_records(tmp_path / "backtests")
        assert folder.name[-8:] in script.selectbox(key="backtest").options[0]
