"""The report as a page: nothing is cut off on paper or on a phone, and all of it is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from portfolio_sdpo.backtest.record import list_records

A4 = (794 - 2 * 45, 1123)
"""Pixels at 96 to the inch, within margins of 12 mm."""


@pytest.mark.parametrize(("name", "size", "medium"), [("a4", A4, "print"), ("phone", (390, 844), "screen")])
def test_no_column_is_cut_off(browser: Any, filled_home: Path, screenshots: Path, name: str, size: Any, medium: str):
    run = list_records(filled_home / "backtests")[-1]
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, is_mobile=name == "phone")
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.emulate_media(media=medium)
    page.goto((run / "report.html").as_uri())
    for place in page.locator("[data-figure]").all():
        place.locator(".main-svg").first.wait_for(state="attached")
    cut = page.evaluate(
        "() => [...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth + 1)"
        ".map((each) => each.querySelector('caption').textContent)"
    )
    assert cut == []
    assert page.evaluate("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth + 1")
    cells = page.locator("table").first.locator("tbody tr").first.locator("td")
    assert cells.count() == 10 and all(cell.is_visible() for cell in cells.all())
    # A cell has a few lines, and no empty ones: as a list on a phone, each once was 220 pixels high.
    assert max(cell.bounding_box()["height"] for cell in cells.all()) < 100
    page.screenshot(path=screenshots / f"report-{name}.png", full_page=True)
    context.close()
    assert faults == []


def test_a_drawdown_shows_its_days_in_every_figure(browser: Any, filled_home: Path):
    """And all days again, when its button is pressed a second time."""
    run = list_records(filled_home / "backtests")[-1]
    page = browser.new_page()
    page.goto((run / "report.html").as_uri())
    shown = "[data-figure=equity]", "[data-figure=time-exposure]", "[data-figure=time-risk]"

    def read_days() -> list[list[str]]:
        return [
            page.locator(name).evaluate("plot => plot.data.map((each) => [each.x.at(0), each.x.at(-1)]).sort()[0]")
            for name in shown
        ]

    for name in shown:
        page.locator(f"{name} .main-svg").first.wait_for(state="attached")
    select = page.locator("select[data-detail=time]")
    select.select_option(label="equal-weight")
    whole = read_days()
    button = page.locator("[data-panel=time]:not([hidden]) button.zoom").first
    first, last = button.get_attribute("data-from"), button.get_attribute("data-to")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    for low, high in read_days():
        assert first <= low <= high <= last
    assert read_days() != whole
    button.click()
    assert read_days() == whole and button.get_attribute("aria-pressed") == "false"
    page.close()


def test_a_month_has_its_bar_if_any_of_its_days_is_shown(browser: Any, filled_home: Path):
    """And bars that stand for calendar years stay."""
    run = list_records(filled_home / "backtests")[-1]
    page = browser.new_page()
    page.goto((run / "report.html").as_uri())
    for name in ("time-trading", "cvar"):
        page.locator(f"[data-figure={name}] .main-svg").first.wait_for(state="attached")
    read = "plot => plot.data.filter((each) => each.type === 'bar').map((each) => each.x)"
    years = page.locator("[data-figure=cvar]").evaluate(read)
    assert years and all(years)
    button = page.locator("[data-panel=time]:not([hidden]) button.zoom").first
    for first, last, months in (
        ("2019-02-19", "2019-03-20", ["2019-02-01", "2019-03-01"]),
        ("2019-03-04", "2019-03-08", ["2019-03-01"]),
    ):
        button.evaluate("(button, days) => [button.dataset.from, button.dataset.to] = days", [first, last])
        button.click()
        assert page.locator("[data-figure=time-trading]").evaluate(read) == [months]
        bars = page.locator("[data-figure=time-trading] .bars path")
        widths = bars.evaluate_all("all => all.map((each) => each.getBoundingClientRect().width)")
        assert len(widths) == len(months) and min(widths) > 100
        assert page.locator("[data-figure=cvar]").evaluate(read) == years
        button.click()
    page.close()
