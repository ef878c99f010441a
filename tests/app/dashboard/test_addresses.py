"""What is selected on a page is in its address, and the address shows the same to whoever opens it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from portfolio_sdpo.backtest.record import group_by_strategy, list_records, read_metrics, select_main

from .conftest import Visitor

STATE = """() => {
  const main = document.querySelector("[data-testid=stMain]");
  const texts = (selector) => [...main.querySelectorAll(selector)].map((each) => each.innerText.trim());
  const plots = [...main.querySelectorAll(".js-plotly-plot")].map((plot) => [
    plot.closest("[class*=st-key-]").className.match(/st-key-([\\w-]+)/)[1],
    plot.data.map((each) => [each.name, each.x?.length, each.x?.at(0), each.x?.at(-1), each.y?.at(-1)]),
    plot.layout.yaxis?.type,
  ]);
  const fields = [...main.querySelectorAll("input:not([type=file])")].map((each) =>
    [each.getAttribute("aria-label"), each.type === "checkbox" ? each.checked : each.value]);
  return {plots, fields, headings: texts("h1, h3"), tables: texts("table"), tags: texts("[data-tag]"),
    buttons: texts("button[aria-checked=true], button[data-selected=true]"), cards: texts(".cards")};
}"""
"""What can be told apart on a page: figures and their days, fields, tables, cards."""


def see(visitor: Visitor) -> dict[str, Any]:
    """The page as it is seen, once all of it has been drawn."""
    visitor.settle()
    page = visitor.page
    page.wait_for_function(
        "() => !document.querySelector('#root [data-testid=stSkeleton]') && "
        "[...document.querySelectorAll('#root .js-plotly-plot')].every((plot) => plot.data && "
        "plot.querySelector('.main-svg'))"
    )
    seen: dict[str, Any] = page.evaluate(STATE)
    # How long ago something was.
    seen["cards"] = [re.sub(r"\d+ \w+ ago", "", text) for text in seen["cards"]]
    return seen


def check_reproduced(visit: Callable[..., Visitor], filled: str, visitor: Visitor, asked: dict[str, list[str]]) -> None:
    """The address has what was asked for, and shows the same in a browser that knows nothing."""
    page = visitor.page
    for name, values in asked.items():
        page.wait_for_function(
            "([name, values]) => JSON.stringify(new URL(location).searchParams.getAll(name)) === values",
            arg=[name, "[" + ",".join(f'"{value}"' for value in values) + "]"],
        )
    seen = see(visitor)
    other = visit()
    other.open(filled, page.url.removeprefix(f"{filled}/"))
    assert see(other) == seen
    assert parse_qs(urlsplit(other.page.url).query) == parse_qs(urlsplit(page.url).query)


@pytest.fixture
def run(filled_home: Path) -> Path:
    """The older backtest, with two seeds."""
    return list_records(filled_home / "backtests")[-1]


def test_backtest(visit: Callable, filled: str, run: Path):
    """Run, strategy and seed, the strategies whose curves are drawn, the scale, and the days of a drawdown."""
    visitor = visit()
    main = select_main(group_by_strategy(read_metrics(run)))
    other = next(record["seed"] for record in main.records if record is not main.median)
    page = visitor.open(filled, f"backtest?run={run.name}&strategy=sdpo&seed={other}")
    whole = see(visitor)
    page.get_by_text("Logarithmic").click()
    visitor.settle()
    page.locator(".st-key-zoom-1 button").click()
    page.wait_for_url("**from=**")
    visitor.settle()
    page.get_by_role("button", name="Strategies").click()
    page.locator("[data-tag]:has-text('cash') button").first.click()
    page.wait_for_url("**show=**")
    page.keyboard.press("Escape")
    shown = parse_qs(urlsplit(page.url).query)["show"]
    assert "cash" not in shown and "equal-weight" in shown
    seen = see(visitor)
    days = {name: [rows[2] for rows in data] for name, data, _ in seen["plots"]}
    assert days["equity"] != {name: [rows[2] for rows in data] for name, data, _ in whole["plots"]}["equity"]
    assert days["equity"][0] == days["weights"][0] == parse_qs(urlsplit(page.url).query)["from"][0]
    assert seen["cards"] == whole["cards"]  # these are about all days
    check_reproduced(visit, filled, visitor, {"run": [run.name], "strategy": ["sdpo"], "log": ["1"], "show": shown})
    assert f"seed={other}" in page.url
    page.locator(".st-key-zoom-all button").click()
    page.wait_for_function("() => !new URL(location).searchParams.has('from')")


def test_compare(visit: Callable, filled: str, filled_home: Path):
    """Runs, even where they are the usual ones; strategies, even none; days, rival and the switches."""
    runs = [each.name for each in list_records(filled_home / "backtests")]
    visitor = visit()
    page = visitor.open(filled, "compare?from=2019-01-22&to=2019-03-15&strategy=cash&strategy=equal-weight")
    page.get_by_text("Logarithmic").click()
    visitor.settle()
    visitor.choose("Compared with", "B · cash")
    page.wait_for_url("**against=**")
    seen = see(visitor)
    assert {rows[2] for name, data, _ in seen["plots"] if name == "equity" for rows in data} == {"2019-01-22"}
    assert "2019-01-22 to 2019-03-15" in seen["tables"][0]
    check_reproduced(visit, filled, visitor, {"run": runs, "log": ["1"], "strategy": ["cash", "equal-weight"]})
    other = visit()
    other.open(filled, "compare?strategy=")
    assert "Choose one or more strategies." in other.alerts()[0]


def test_data(visit: Callable, filled: str):
    visitor = visit()
    page = visitor.open(filled, "data")
    page.get_by_text("Logarithmic").click()
    visitor.settle()
    page.locator("[data-tag]:has-text('AAPL') button").first.click()
    page.wait_for_url("**ticker=**")
    tickers = parse_qs(urlsplit(page.url).query)["ticker"]
    assert "AAPL" not in tickers and len(tickers) > 1
    check_reproduced(visit, filled, visitor, {"snapshot": ["prices"], "log": ["1"], "ticker": tickers})


def test_training(visit: Callable, filled: str, run: Path):
    visitor = visit()
    page = visitor.open(filled, "training")
    visitor.choose("Run", re.compile(f"{run.name}.*seed 1"))
    page.wait_for_url("**log=backtests**")
    visitor.wait_for_text(".cards", "Return")
    check_reproduced(visit, filled, visitor, {"log": [f"backtests/{run.name}/sdpo/1"]})


def test_run(visit: Callable, filled: str):
    visitor = visit()
    page = visitor.open(filled, "run")
    for label, option in (("Prices", "prices"), ("Preset", "lstm")):
        visitor.choose(label, option)
        visitor.settle()
    check_reproduced(visit, filled, visitor, {"snapshot": ["prices"], "preset": ["lstm"], "what": []})
    page.get_by_text("Retrain", exact=True).click()
    page.get_by_role("button", name="Start the retrain").wait_for()
    other = visit()
    other.open(filled, "run?what=retrain").get_by_role("button", name="Start the retrain").wait_for()


def test_live(visit: Callable, filled: str):
    """The account and what is asked of its orders; what it holds is a file, which no address has."""
    visitor = visit()
    page = visitor.open(filled, "live")
    for key, text in (("account", "50000"), ("threshold", "0.1"), ("lot", "10")):
        field = page.locator(f".st-key-{key} input")
        field.fill(text)
        field.press("Enter")
        visitor.settle()
    page.locator("tr[data-order]").first.wait_for()
    check_reproduced(visit, filled, visitor, {"account": ["50000"], "threshold": ["0.1"], "lot": ["10"]})


@pytest.mark.parametrize(
    "address",
    [
        "backtest?from=nonsense&to=1999-01-01&show=nobody&log=2&seed=x&strategy=y",
        "compare?from=2030-01-01&to=1999-01-01&run=x",
        "data?ticker=x&snapshot=y",
        "run?what=x&preset=y&snapshot=z",
        "live?account=-5&threshold=1000&lot=nan",
        "training?log=x",
    ],
)
def test_nonsense_in_an_address_shows_what_is_usual(visit: Callable, filled: str, address: str):
    visitor = visit()
    visitor.open(filled, address)
    assert visitor.page.locator("h1").inner_text().lower() in address
    assert not any("Error" in text or "Traceback" in text for text in visitor.alerts())
