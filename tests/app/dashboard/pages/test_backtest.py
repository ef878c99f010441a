"""*Backtest* in a browser: its figures are those of metrics.json, its files those of the folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from portfolio_sdpo.backtest.record import group_by_strategy, list_records, read_config, read_metrics, select_main
from portfolio_sdpo.common.numbers import percent, span
from portfolio_sdpo.report.sections import COLUMNS


@pytest.fixture
def run(filled_home: Path) -> Path:
    """The older backtest, with two seeds."""
    return list_records(filled_home / "backtests")[-1]


def test_figures_are_those_of_the_run(visit: Callable, filled: str, run: Path):
    visitor = visit()
    page = visitor.open(filled, f"backtest?run={run.name}")
    page.locator(".cards").first.wait_for()
    found = group_by_strategy(read_metrics(run))
    main = select_main(found).median

    large = dict(visitor.figures(".cards"))
    # The track is shorter than a year: its whole return stands in the place of a yearly rate.
    assert main["cagr"] is None and "in all, below a year" in visitor.page.locator(".cards").first.inner_text()
    shown = ("final_wealth", "total_return", "sharpe", "max_drawdown", "cvar_window")
    assert large == {name: main[name] for name in shown if main[name] is not None}
    for group in found:
        row = f"table:has(th:text('Final wealth')) tr[data-row='{group.name}']"
        told = visitor.page.locator(row).first
        shown = group.median
        cells = told.locator("data[data-name]")
        values = {cell.get_attribute("data-name"): float(cell.get_attribute("value")) for cell in cells.all()}
        fields = ["total_return" if field == "cagr" else field for field, *_ in COLUMNS]
        assert values == {field: shown[field] for field in fields if shown[field] is not None}
        low, high = shown["intervals"]["total_return"]
        if low is not None:
            assert span(low, high, percent) in told.inner_text()


def test_every_picture_is_drawn(visit: Callable, filled: str, run: Path):
    visitor = visit()
    page = visitor.open(filled, f"backtest?run={run.name}")
    for name in ("equity", "weights", "distribution", "exposure", "rolling", "trading", "cvar-years"):
        page.locator(f".st-key-{name} .main-svg").first.wait_for()
    above, below = (
        page.locator(".st-key-equity .js-plotly-plot").evaluate(
            "(plot, axis) => plot.data.filter(each => each.name && (each.yaxis ?? 'y') == axis)"
            ".map(each => [each.name, each.y.length, each.y.at(-1), Math.min(...each.y)])",
            axis,
        )
        for axis in ("y", "y2")
    )
    equity = pd.read_parquet(run / "equity.parquet")
    expected = {group.title: group.median for group in group_by_strategy(read_metrics(run), read_config(run))}
    assert {"SDPO (analytic)", "SDPO (analytic) + shield"} <= set(expected)
    assert {name for name, *_ in above} == {name for name, *_ in below} == set(expected)
    for name, count, last, _ in above:
        assert count == expected[name]["sessions"] + 1 == equity["date"].nunique()
        assert last == pytest.approx(expected[name]["final_wealth"], abs=1e-6)
    for name, _, _, deepest in below:
        assert deepest == pytest.approx(expected[name]["max_drawdown"], abs=1e-6)
    marked = page.locator(".st-key-distribution .js-plotly-plot").evaluate(
        "plot => plot.layout.shapes.filter(each => each.type == 'line').map(each => each.x0)"
    )
    promise = select_main(group_by_strategy(read_metrics(run))).median["promise"]
    assert marked == [promise["bound"], promise["realised"]]
    # The switch to a logarithmic scale redraws the curves and nothing else.
    page.get_by_text("Logarithmic").click()
    page.wait_for_function(
        "() => document.querySelector('.st-key-equity .js-plotly-plot')?.layout?.yaxis?.type == 'log'"
    )
    visitor.settle()
    visitor.keep("backtest-laptop-light")


def test_downloads_are_the_files_of_the_folder(visit: Callable, filled: str, run: Path, tmp_path: Path):
    page = visit().open(filled, f"backtest?run={run.name}")

    def download(label: str) -> Path:
        with page.expect_download() as waiting:
            page.get_by_role("button", name=label, exact=False).first.click()
        target = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(target)
        return target

    metrics = download("Metrics")
    assert metrics.name == f"{run.name}-metrics.json"
    assert metrics.read_bytes() == (run / "metrics.json").read_bytes() and json.loads(metrics.read_text())["records"]
    assert download("Report").read_bytes() == (run / "report.html").read_bytes()
    assert download("Weights, Parquet").read_bytes() == (run / "weights.parquet").read_bytes()
    table = pd.read_csv(download("Equity, CSV"))
    pd.testing.assert_series_equal(table["wealth"], pd.read_parquet(run / "equity.parquet")["wealth"])


@pytest.mark.parametrize(("width", "scheme"), [("laptop", "dark"), ("phone", "light")])
def test_it_fits_and_is_readable(visit: Callable, filled: str, run: Path, width: str, scheme: str):
    visitor = visit(width, scheme)
    page = visitor.open(filled, f"backtest?run={run.name}")
    page.locator(".st-key-distribution .main-svg").first.wait_for()
    visitor.no_sideways()
    ink, paper = page.evaluate(
        "() => [getComputedStyle(document.querySelector('.sdpo')).color, "
        "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor]"
    )
    assert contrast(ink, paper) >= 7.0
    assert (_luminance(paper) < 0.2) == (scheme == "dark")
    visitor.keep(f"backtest-{width}-{scheme}")


def test_the_address_has_the_strategy_and_the_scale(visit: Callable, filled: str, run: Path):
    page = visit().open(filled, f"backtest?run={run.name}&strategy=equal-weight&log=1")
    page.wait_for_function(
        "() => document.querySelector('.st-key-equity .js-plotly-plot')?.layout?.yaxis?.type == 'log'"
    )
    page.get_by_text("equal-weight by calendar year").wait_for()
    assert all(part in page.url for part in (f"run={run.name}", "strategy=equal-weight", "log=1"))


def test_another_run_can_be_chosen_and_an_unknown_one_is_said(visit: Callable, filled: str, filled_home: Path):
    visitor = visit()
    newest = list_records(filled_home / "backtests")[0]
    page = visitor.open(filled, "backtest?run=nothing")
    assert "The backtest nothing no longer exists" in page.locator("[data-testid=stAlert]").first.inner_text()
    assert page.url.endswith(f"run={newest.name}")


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)
