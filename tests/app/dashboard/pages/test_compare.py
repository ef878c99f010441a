"""*Compare* in a browser: figures of each run as written, differences as the package reckons them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from portfolio_sdpo.backtest.record import group_by_strategy, list_records, read_metrics
from portfolio_sdpo.backtest.run import BacktestSettings
from portfolio_sdpo.common.numbers import share
from portfolio_sdpo.report.result import run_backtest
from portfolio_sdpo.report.sections import COLUMNS
from portfolio_sdpo_app.dashboard.data.backtests import list_backtests, open_backtest
from portfolio_sdpo_app.dashboard.data.comparison import (
    MIN_SESSIONS,
    cut_to_span,
    find_common_span,
    make_lines,
    pair_returns,
)

from ..conftest import at_home

PAGE = """
from portfolio_sdpo_app.dashboard.pages import compare

compare.render()
"""


def test_runs_side_by_side(visit: Callable, filled: str, filled_home: Path):
    visitor = visit()
    page = visitor.open(filled, "compare")
    page.locator(".st-key-equity .main-svg").first.wait_for()
    page.locator(".st-key-risk .main-svg").first.wait_for()
    hidden = set()
    for letter, run in zip("AB", list_records(filled_home / "backtests"), strict=True):
        for group in group_by_strategy(read_metrics(run)):
            shown = group.median
            row = page.locator(f"table:has(th:text('Final wealth')) tr[data-row='{letter} · {group.name}']")
            if row.count() == 0:
                hidden.add(group.name)  # only some are shown at first
                continue
            values = {
                cell.get_attribute("data-name"): float(cell.get_attribute("value"))
                for cell in row.locator("data[data-name]").all()
            }
            assert shown["cagr"] is None  # below a year: the whole return stands in its place
            fields = ["total_return" if field == "cagr" else field for field, *_ in COLUMNS]
            assert values == {field: shown[field] for field in fields if shown[field] is not None}
            assert row.locator("td").first.inner_text() == share(shown["alpha"])
    assert hidden and all(name.startswith(("buy-and-hold", "equal-weight + shield")) for name in hidden)
    names = page.locator(".st-key-equity .js-plotly-plot").evaluate("plot => plot.data.map(each => each.name)")
    assert {"A · SDPO (analytic)", "B · SDPO (analytic)", "B · SDPO (analytic) + shield"} <= set(names)
    headings = page.locator("table:has(th:text('Final wealth')) tbody th").all_inner_texts()
    assert any(heading.startswith("B · SDPO (analytic) + shield") for heading in headings)
    assert not any("sdpo" in heading for heading in headings)
    assert page.locator("[data-tag]:has-text('SDPO (analytic) + shield')").count() > 0
    visitor.keep("compare-laptop-light")


def test_a_difference_is_the_one_of_the_backtest(visit: Callable, filled: str, filled_home: Path):
    """Against 1/N within one run, it is what metrics.json has, interval included."""
    visitor = visit()
    page = visitor.open(filled, "compare")
    run = list_records(filled_home / "backtests")[0]
    for group in group_by_strategy(read_metrics(run)):
        if group.kind != "benchmark":
            row = page.locator(f"table:has(th:text('Excess growth')) tr[data-row='A · {group.name}']")
            figure = row.locator("data[data-name=growth]")
            assert float(figure.get_attribute("value")) == group.median["against"]["equal-weight"]["growth"]
            low, high = group.median["against"]["equal-weight"]["interval"]
            assert f"{abs(low) * 100:.1f}" in row.inner_text() and f"{abs(high) * 100:.1f}" in row.inner_text()


def test_every_seed_by_itself_on_a_phone_in_the_dark(visit: Callable, filled: str):
    visitor = visit("phone", "dark")
    page = visitor.open(filled, "compare")
    page.get_by_text("Every seed").click()
    page.locator("tr[data-row='B · seed 1 · sdpo']").first.wait_for()
    visitor.settle()
    visitor.no_sideways()
    visitor.keep("compare-phone-dark")


def _track(first: str, sessions: int, start: float = 0.0) -> pd.DataFrame:
    days = pd.bdate_range(first, periods=sessions)
    returns = start + np.arange(sessions) / 1000
    return pd.DataFrame({"date": days, "return": np.where(np.arange(sessions) == 0, np.nan, returns)})


def test_sessions_are_paired_where_both_have_them():
    """Of days 0…59 and 20…99 both have returns on days 21…59: each value stays with its day."""
    one, other = _track("2019-01-01", 60), _track("2019-01-29", 80, start=1.0)
    assert one["date"].iloc[20] == other["date"].iloc[0]
    first, second = pair_returns(one, other) or pytest.fail("they overlap")
    assert first == pytest.approx(np.arange(21, 60) / 1000)
    assert second == pytest.approx(1 + np.arange(1, 40) / 1000)


def test_other_sessions_are_not_paired():
    assert pair_returns(_track("2019-01-01", 60), _track("2020-01-01", 60)) is None
    assert pair_returns(_track("2019-01-01", MIN_SESSIONS), _track("2019-01-01", MIN_SESSIONS)) is None
    assert pair_returns(_track("2019-01-01", MIN_SESSIONS + 1), _track("2019-01-01", MIN_SESSIONS + 1)) is not None
    gap = _track("2019-01-01", 60).drop(index=30)
    assert pair_returns(_track("2019-01-01", 60), gap) is None


def test_common_sessions_have_figures_of_their_own(filled_home: Path):
    """Over all days they are the record's; over a part of them those of that part."""
    with at_home(filled_home):
        run = open_backtest(list_backtests()[-1])
    lines = make_lines(run, "", ["sdpo", "equal-weight"], every_seed=False)
    assert find_common_span(lines) is None
    first, last = (lines[0].rows["date"].iloc[place].date() for place in (0, -1))
    for line, whole in zip(lines, cut_to_span(lines, (first, last)), strict=True):
        for record, measured in zip(line.group.records, whole.group.records, strict=True):
            for field in ("final_wealth", "max_drawdown", "cvar_window", "turnover", "cost", "sharpe", "volatility"):
                assert measured[field] == pytest.approx(record[field], abs=1e-12), field
            assert measured["promise"]["realised"] == pytest.approx(record["promise"]["realised"])
    middle = lines[1].rows["date"].iloc[20]
    _, part = cut_to_span(lines, (middle.date(), last))
    wealth = lines[1].rows["wealth"].iloc[20:].to_numpy()
    assert part.group.median["final_wealth"] == pytest.approx(wealth[-1] / wealth[0])
    assert part.group.median["sessions"] == len(wealth) - 1
    assert part.group.median["max_drawdown"] == pytest.approx((wealth / np.maximum.accumulate(wealth)).min() - 1.0)
    assert part.rows["drawdown"].min() == pytest.approx(part.group.median["max_drawdown"])
    assert part.group.median["intervals"] == {}


def test_the_address_has_what_is_selected(visit: Callable, filled: str):
    """Opened by somebody else, it shows the same."""
    page = visit().open(filled, "compare")
    page.get_by_text("Every seed").click()
    page.locator("tr[data-row='B · seed 1 · sdpo']").first.wait_for()
    page.wait_for_url("**seeds=1**")
    page.get_by_text("Logarithmic").click()
    page.wait_for_url("**log=1**")
    other = visit()
    copy = other.open(filled, page.url.rpartition("/")[2])
    copy.locator("tr[data-row='B · seed 1 · sdpo']").first.wait_for()
    copy.wait_for_function(
        "() => document.querySelector('.st-key-equity .js-plotly-plot')?.layout?.yaxis?.type == 'log'"
    )
    assert "seeds=1" in copy.url and "log=1" in copy.url


def test_one_backtest_and_one_strategy_can_be_named_in_the_address(visit: Callable, filled: str, filled_home: Path):
    run = list_records(filled_home / "backtests")[0].name
    page = visit().open(filled, f"compare?run={run}&strategy=cash&strategy=equal-weight&against=cash")
    rows = page.locator("table:has(th:text('Final wealth')) tbody tr")
    rows.first.wait_for()
    assert [row.get_attribute("data-row") for row in rows.all()] == ["equal-weight", "cash"]
    page.locator("table:has(th:text('Excess growth')) tbody tr").first.wait_for()
    assert page.locator("table:has(th:text('Excess growth')) tbody tr").count() == 1


def test_who_has_none_of_the_days_is_named(tmp_path: Path):
    """A track that ends on 2019-02-15 needs two sessions to be shown."""
    with at_home(tmp_path):
        for end in ("2019-02-15", "2019-03-29"):
            names = ("equal-weight", "cash")
            run_backtest(BacktestSettings(strategies=names, start="2019-01-02", end=end, bootstrap=None))
        short = next(run.id for run in list_backtests() if "2019-02-15" in str(open_backtest(run).record.config))
        for first, without in (("2019-02-19", True), ("2019-02-15", True), ("2019-02-14", False)):
            script = AppTest.from_string(PAGE, default_timeout=300)
            script.query_params["from"] = first
            script.run()
            assert not script.exception
            letter = "AB"[list(script.multiselect(key="runs").value).index(short)]
            told = [each.value for each in script.caption if "left out" in each.value]
            left_out = f"Without these days, and left out: {letter} · equal-weight, {letter} · cash."
            assert told == ([left_out] if without else [])
