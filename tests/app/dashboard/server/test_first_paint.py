"""What is seen before plotly, and before Streamlit: the run's own figures and curves, where the page will have them."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest.record import (
    group_by_strategy,
    list_records,
    read_config,
    read_metrics,
    select_main,
    split_by_track,
)
from portfolio_sdpo.report import figures
from portfolio_sdpo_app.dashboard.widgets.figures import prepare_figure
from portfolio_sdpo_app.dashboard.widgets.sketch import draw_sketch

from ..conftest import WIDTHS
from ..pages.test_backtest import contrast

HEADLINE = ("final_wealth", "total_return", "max_drawdown", "cvar_window")
"""Of a run below a year whose main track is next to all cash: no yearly growth and no Sharpe ratio."""
FIRST = "<div id='first'"
CURVES = ".sketch .panel img"


@pytest.fixture
def run(filled_home: Path) -> Path:
    """The older backtest, with two seeds."""
    return list_records(filled_home / "backtests")[-1]


def drawn(source: str) -> dict[str, Any]:
    """Days since the first and values by strategy, from the address of a picture; "" has the bands."""
    svg = ElementTree.fromstring(base64.b64decode(source.partition(",")[2]))
    paths = svg.findall("{http://www.w3.org/2000/svg}path")
    named = {path.get("data-name", ""): path.get("d", "") for path in paths}
    return {
        name: np.array([[float(part) for part in point.split(",")] for point in course.strip("Mz").split()]) * [1, -1]
        for name, course in named.items()
        if "h" not in course
    }


def check_curves(sources: list[str], run: Path) -> None:
    """Every strategy's middle seed, day by day, as the tables of the run have it."""
    tracks = split_by_track(pd.read_parquet(run / "equity.parquet"))
    found = group_by_strategy(read_metrics(run), read_config(run))
    for source, column in zip(sources, ("wealth", "drawdown"), strict=True):
        curves = drawn(source)
        assert set(curves) - {""} == {group.title for group in found}
        for group in found:
            rows = tracks[group.key]
            days, values = curves[group.title].T
            assert list(days) == list((rows["date"] - rows["date"].iloc[0]).dt.days)
            assert values == pytest.approx(rows[column], abs=1e-4)


@pytest.mark.parametrize(("width", "scheme"), [("laptop", "light"), ("phone", "dark")])
def test_the_document_has_figures_and_curves(
    browser: Any, filled: str, run: Path, screenshots: Path, width: str, scheme: str
):
    """Without a line of JavaScript: what is seen can only have come with the document."""
    wide, high = WIDTHS[width]
    context = browser.new_context(
        java_script_enabled=False,
        viewport={"width": wide, "height": high},
        color_scheme=scheme,
        is_mobile=width == "phone",
    )
    page = context.new_page()
    page.goto(f"{filled}/backtest?run={run.name}")
    shown = select_main(group_by_strategy(read_metrics(run))).median
    figures_shown = page.locator("#first .cards data[data-name]")
    values = {cell.get_attribute("data-name"): float(cell.get_attribute("value")) for cell in figures_shown.all()}
    assert values == {name: shown[name] for name in HEADLINE}
    assert figures_shown.first.is_visible()
    pictures = page.locator(f"#first {CURVES}")
    check_curves([picture.get_attribute("src") for picture in pictures.all()], run)
    assert all(picture.is_visible() for picture in pictures.all())
    assert page.locator("#first figure").get_attribute("aria-label").startswith("Wealth of every strategy")
    first = page.locator("#first")
    ink, paper = first.evaluate("each => [getComputedStyle(each).color, getComputedStyle(each).backgroundColor]")
    assert contrast(ink, paper) >= 7.0
    assert first.evaluate("each => each.scrollWidth <= each.clientWidth")
    page.screenshot(path=screenshots / f"backtest-first-{width}-{scheme}.png")
    context.close()


@contextlib.contextmanager
def without(page: Any, files: str) -> Iterator[None]:
    """What the page asks for of these is held back meanwhile."""
    held: list[Any] = []
    page.route(files, lambda route: held.append(route))
    yield
    for route in held:
        route.continue_()
    page.unroute(files)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_takes_over_where_it_was(visit: Callable, filled: str, run: Path, width: str):
    """First the document, then Streamlit without plotly, then plotly: the same in the same place."""
    visitor = visit(width)
    page = visitor.page

    def places(within: str) -> list[float]:
        """Left, top, width and height of the title, the figures and the curves."""
        boxes = [page.locator(f"{within} {part}").first.bounding_box() for part in ("h1", ".cards", ".sketch")]
        return [box[edge] for box in boxes for edge in ("x", "y", "width", "height")]

    def sources(within: str) -> list[str]:
        return [picture.get_attribute("src") for picture in page.locator(f"{within} {CURVES}").all()]

    def tall() -> int:
        return page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollHeight")

    with without(page, "**/PlotlyChart*"):
        with without(page, "**/js/index*"):
            page.goto(f"{filled}/backtest?run={run.name}", wait_until="commit")
            page.locator(f"#first {CURVES}").first.wait_for()
            page.evaluate("async () => { await document.fonts.ready }")
            before, curves = places("#first"), sources("#first")
        page.locator("#first").wait_for(state="detached")
        assert places("#root") == pytest.approx(before, abs=2)
        assert sources("#root") == curves
        page.get_by_role("button", name="Metrics").wait_for()  # all that needs no plotly is there
        page.locator(".st-key-equity").wait_for(state="attached")
        visitor.settle()
        assert page.locator(f"#root {CURVES}").first.is_visible()
        height = tall()
        visitor.keep(f"backtest-before-plotly-{width}")
    for name in ("equity", "weights", "distribution"):
        page.locator(f".st-key-{name} .main-svg").first.wait_for(state="attached")
    assert not page.locator(f"#root {CURVES}").first.is_visible()
    after = page.locator(".st-key-equity .js-plotly-plot").bounding_box()
    assert [after["y"], after["height"]] == pytest.approx([before[-3], before[-1]], abs=2)
    assert tall() == height


@pytest.mark.parametrize("late", ["Checkbox", "Selectbox"])
def test_the_page_takes_over_when_all_above_is_there(visit: Callable, filled: str, run: Path, late: str):
    """Streamlit fetches every kind of element by itself, and keeps a place of another height for it meanwhile."""
    page = visit("phone").page

    def place(within: str) -> dict[str, float]:
        return page.locator(f"{within} .sketch").first.bounding_box()

    with without(page, f"**/{late}*"):
        page.goto(f"{filled}/backtest?run={run.name}", wait_until="commit")
        before = place("#first")
        page.locator("#root .sketch").first.wait_for(state="attached")
        page.locator("#root .cards").first.wait_for(state="attached")
        assert page.locator("#first").count() == 1
    page.locator("#first").wait_for(state="detached")
    assert place("#root") == pytest.approx(before, abs=2)


def test_a_chosen_theme_is_that_of_the_first_screen(visit: Callable, filled: str):
    page = visit("laptop", "light").open(filled, "backtest")
    page.evaluate("""() => localStorage.setItem("stActiveTheme-/backtest-v2", '"Dark"')""")
    with without(page, "**/js/index*"):
        page.goto(f"{filled}/backtest", wait_until="commit")
        page.wait_for_function(
            "() => document.getElementById('first')"
            " && getComputedStyle(document.getElementById('first')).backgroundColor == 'rgb(18, 22, 26)'"
        )
    page.locator("#first").wait_for(state="detached")


def test_other_documents_are_streamlits_own(filled: str, empty: str, run: Path):
    """Nothing to show, or an unknown run."""
    ours = httpx.get(f"{filled}/backtest", params={"run": run.name})
    assert FIRST in ours.text and ours.headers["cache-control"] == "no-cache"
    assert FIRST in httpx.get(f"{filled}/backtest").text  # the newest
    assert httpx.get(f"{filled}/live").has_redirect_location  # the default page's own address is the root
    plain = httpx.get(f"{filled}/compare").text
    assert FIRST not in plain
    assert httpx.get(f"{filled}/backtest", params={"run": "nothing"}).text == plain
    assert httpx.get(f"{filled}/backtest", params={"run": run.name, "embed": "true"}).text == plain
    assert httpx.get(f"{empty}/backtest").text == plain


def test_seeds_are_a_band(run: Path):
    """Between the lowest and the highest seed of a day."""
    found = [group for group in group_by_strategy(read_metrics(run)) if len(group.records) > 1][:1]
    tracks = split_by_track(pd.read_parquet(run / "equity.parquet"))
    spec = figures.draw_curves(tracks, found, "wealth", percent=False)
    html = draw_sketch(*prepare_figure(spec, legend=True), "wealth")
    curves = html.partition("class='panels'")[2]  # after the legend, which has pictures too
    band = drawn(curves.partition("src='")[2].partition("'")[0])[""]
    values = np.stack([tracks[found[0].name, record["seed"]]["wealth"] for record in found[0].records])
    assert band[:, 1] == pytest.approx([*values.max(0), *values.min(0)[::-1]], abs=1e-4)


def test_names_of_users_stay_words(run: Path):
    tracks = split_by_track(pd.read_parquet(run / "equity.parquet"))
    (record,) = (each for each in read_metrics(run) if each["strategy"] == "cash")
    record = record | {"strategy": "<img src=x>'&\""}
    found = group_by_strategy([record])
    renamed = {(record["strategy"], record["seed"]): tracks["cash", record["seed"]]}
    html = draw_sketch(
        *prepare_figure(figures.draw_curves(renamed, found, "wealth", percent=False), legend=True), "it's"
    )
    assert "&lt;img src=x&gt;" in html and "<img src=x>" not in html and "it&#x27;s" in html
    # A line that never moves has room above and below.
    assert ">1</span>" in html


def test_no_days_no_curves():
    layout = {"height": 100, "yaxis": {}}
    assert draw_sketch([], layout, "nothing") == "<div class='sketch' style='height:100px'></div>"
