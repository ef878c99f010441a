"""*Run* in a browser: settings are checked before anything starts, and what is started finishes and appears."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portfolio_sdpo.backtest.record import group_by_strategy, list_records, read_config, read_metrics, select_main
from portfolio_sdpo_app.dashboard.data import jobs

from ..conftest import at_home


def start(page: Any) -> None:
    page.get_by_role("button", name="Start the backtest").click()


def fill_caps(page: Any, groups: Path) -> None:
    """All caps that the commands have."""
    page.get_by_text("Caps and more", exact=True).click()
    for label, text in (("Maximum weight per stock", "0.20"), ("Maximum turnover per decision", "0.50")):
        field = page.get_by_label(label, exact=True)
        field.fill(text)
        field.press("Tab")
    page.locator("[data-testid=stFileUploader] input[type=file]").set_input_files(groups)
    page.get_by_text(groups.name, exact=True).wait_for()


def test_a_backtest_started_here_finishes_and_appears(visit: Callable, work: str, work_home: Path, tmp_path: Path):
    visitor = visit()
    groups = tmp_path / "groups.csv"
    groups.write_text("ticker,group,max_weight\nGS,banks,0.1\nJPM,banks,\n")
    page = visitor.open(work, "run")
    # Two of the six: the others can be simulated just as well, but take longer; so does the agent, which is chosen.
    for name in ("SDPO (shared)", "minimum-variance", "minimum-cvar", "maximum-return", "buy-and-hold"):
        tag = page.locator("[data-testid=stMultiSelect] [data-tag]", has_text=name)
        tag.get_by_role("button").click()
        tag.wait_for(state="detached")
    limit = page.get_by_label("CVaR limit", exact=True)
    limit.fill("-0.080")
    limit.press("Tab")
    fill_caps(page, groups)
    start(page)
    page.get_by_text("Backtest of benchmarks on the bundled sample").first.wait_for()
    link = page.get_by_role("link", name="Open the results")
    link.wait_for()
    visitor.settle()
    visitor.keep("run-finished-laptop-light")
    with at_home(work_home):
        (job,) = jobs.list_jobs()
    assert job.job.status == "done"
    (folder,) = list_records(work_home / "backtests")
    settings = read_config(folder)["settings"]
    assert settings["strategies"] == ["equal-weight", "cash"] and settings["limit"]["bound"] == -0.08
    banks = {"name": "banks", "tickers": ["GS", "JPM"], "max_weight": 0.1}
    assert settings["limits"] == {"max_weight": 0.2, "max_turnover": 0.5, "groups": [banks]}
    link.click()
    page.wait_for_url(f"**/backtest?run={folder.name}")
    page.locator(".cards").first.wait_for()
    page.locator(".st-key-equity .main-svg").first.wait_for()
    visitor.settle()
    main = select_main(group_by_strategy(read_metrics(folder))).median
    assert dict(visitor.figures(".cards")) == {
        name: main[name] for name in ("final_wealth", "total_return", "sharpe", "max_drawdown", "cvar_window")
    }
    # It can be chosen on the other pages as well.
    visitor.open(work, "compare")
    page.locator(f"[data-tag]:has-text('{folder.name[-8:]}')").wait_for()


@pytest.mark.parametrize(
    "label, value, words",
    [
        ("Tail α", "2.000", "Tail α: must be less than 1"),
        ("CVaR limit", "-1.500", "CVaR limit: must be greater than -1"),
        ("Seeds", "a, b", "Seeds: must be whole numbers separated by commas"),
        ("Fee, basis points", "-1.00", "Fee, basis points: must be at least 0"),
    ],
)
def test_wrong_settings_start_nothing(
    visit: Callable, empty: str, empty_home: Path, label: str, value: str, words: str
):
    visitor = visit()
    page = visitor.open(empty, "run")
    field = page.get_by_label(label, exact=True)
    field.fill(value)
    field.press("Tab")
    start(page)
    error = page.locator("[data-testid=stAlert]", has_text=words)
    error.first.wait_for()
    visitor.settle()
    assert error.first.inner_text().strip().endswith(".")
    with at_home(empty_home):
        assert jobs.list_jobs() == []


@pytest.mark.parametrize(
    ("content", "words", "advice"),
    [
        (b"ticker,group,max_weight\nAAPLE,tech,0.4\n", "AAPLE of the group tech", "did you mean 'AAPL'?"),
        ("ticker,group,max_weight\nAAPL,größte,0.4\n".encode("latin-1"), "this is not text", "save it as CSV in UTF-8"),
    ],
    ids=["unknown-ticker", "latin-1"],
)
@pytest.mark.parametrize("kind", ["backtest", "retrain"])
def test_a_wrong_group_starts_nothing(
    visit: Callable, empty: str, empty_home: Path, tmp_path: Path, kind: str, content: bytes, words: str, advice: str
):
    groups = tmp_path / "groups.csv"
    groups.write_bytes(content)
    visitor = visit()
    page = visitor.open(empty, f"run?what={kind}")
    fill_caps(page, groups)
    button = page.get_by_role("button", name=f"Start the {kind}")
    button.click()
    error = page.locator("[data-testid=stAlert]", has_text=f"Groups of stocks, CSV: {words}")
    error.first.wait_for()
    visitor.settle()
    assert advice in error.first.inner_text()
    assert button.is_visible()  # to try again
    with at_home(empty_home):
        assert jobs.list_jobs() == []


@pytest.mark.parametrize(("width", "scheme"), [("laptop", "light"), ("laptop", "dark"), ("phone", "light")])
def test_both_forms_fit(visit: Callable, filled: str, width: str, scheme: str):
    visitor = visit(width, scheme)
    page = visitor.open(filled, "run")
    page.get_by_role("button", name="Start the backtest").wait_for()
    visitor.no_sideways()
    visitor.keep(f"run-{width}-{scheme}")
    page.get_by_text("Retrain", exact=True).click()
    page.get_by_role("button", name="Start the retrain").wait_for()
    visitor.settle()
    visitor.no_sideways()
    visitor.keep(f"run-retrain-{width}-{scheme}")
