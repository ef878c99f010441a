"""First paint of the dashboard's Backtest and Live pages in Chromium. Prints one JSON object.

python benchmarks/dashboard_paint.py [--visits 5] [--stocks 400] [--slowdown 1]

A year of the bundled sample with all benchmark strategies, and a year of as many made-up stocks (geometric random
walks) with those that need no solver. The dashboard runs as a process of its own. Every visit is a new browser profile,
so nothing is cached, and every time goes from the navigation until a frame has been painted in which

- `first_paint`: the headline figures and the curves of wealth and drawdown can be seen, with the run's data in them, as
  the server sends them with the document;
- `live`: Streamlit has taken over: the same, tables and downloads are there and can be used;
- `complete`: plotly has drawn all three figures, which can be hovered and zoomed.

`live_page` is the Live page of a champion that was trained on the sample: `weights` when the cards and the weights to
hold are there, `complete` when their bars and what the champion earned are drawn as well. Its very first visit, in
which the champion decides and is simulated up to the last close, is told apart too.

Beside the times stands the processor time of the page's main thread until then, which other work on the machine
stretches much less. `empty_streamlit` is a page of Streamlit with nothing but a title, in the same browser: what any
page of Streamlit takes until it shows anything. The very first visit of a server, which may have to wait for imports,
is told apart. `--slowdown 3` has the browser compute at a third of its speed, as an older machine does.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import contextlib
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SEEN = """selectors => {
  const there = selectors.every(selector => {
    const found = [...document.querySelectorAll(selector)].find(each => each.getBoundingClientRect().width > 0);
    return found && (found.tagName !== "IMG" || (found.complete && found.naturalWidth > 0));
  });
  // The frame after the next one begins when the next one has been drawn; and the browser says when it first painted.
  return there && new Promise(then => requestAnimationFrame(() => requestAnimationFrame(function seen(now) {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    if (paint) then(Math.max(now, paint.startTime)); else requestAnimationFrame(seen);
  })));
}"""
MOMENTS = {
    "first_paint": [".card data[data-name=final_wealth]", ".sketch .panel img"],
    "live": ["#root .card data[data-name=final_wealth]", "#root .sketch .panel img", "#root .stDownloadButton"],
    "complete": [f".st-key-{name} .main-svg .trace" for name in ("equity", "weights", "distribution")],
}
"""What can be seen at each of them."""
LIVE = {
    "weights": ["#root .card data[data-name=past_cvar]", "#root tr[data-row=CASH]"],
    "complete": [".st-key-weights .main-svg .point", "tr[data-earned=champion]"],
}
"""The same of the Live page."""
EMPTY = "import streamlit as st\nst.title('Nothing else')\n"
PATIENCE = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument("--stocks", type=int, default=400)
    parser.add_argument("--slowdown", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["PORTFOLIO_SDPO_HOME"] = home
        os.environ.pop("PORTFOLIO_SDPO_REGISTRY", None)
        os.environ["PORTFOLIO_SDPO_SERVE_MAX_AGE_SESSIONS"] = "1000000"
        runs = {"sample": sample(), "many_stocks": many_stocks(options.stocks)}
        promote()
        script = Path(home) / "empty.py"
        script.write_text(EMPTY)
        dashboard = ["portfolio_sdpo", "dashboard", "--no-open", "--port"]
        empty = ["streamlit", "run", str(script), "--server.headless=true", "--browser.gatherUsageStats=false"]
        with chromium() as browser:
            with serving([*empty, "--server.port"]) as address:
                floor = visits(browser, address, {"seen": ["h1"]}, options)
            with serving(dashboard) as address:
                pages = {name: f"{address}/backtest?run={run}" for name, run in runs.items()}
                first = visit(browser, pages["sample"], MOMENTS, options.slowdown)
                found = {name: visits(browser, page, MOMENTS, options) for name, page in pages.items()}
                first_live = visit(browser, f"{address}/", LIVE, options.slowdown)
                found["live_page"] = visits(browser, f"{address}/", LIVE, options)
                again = [switch(browser, pages["many_stocks"]) for _ in range(options.visits)]
    result: dict[str, Any] = {
        "stocks": options.stocks,
        "slowdown": options.slowdown,
        "empty_streamlit": summary(floor)["seen"],
        **{name: summary(times) for name, times in found.items()},
        "first_visit_of_the_server_s": {moment: round(wall, 2) for moment, (wall, _) in first.items()},
        "first_visit_of_live_s": {moment: round(wall, 2) for moment, (wall, _) in first_live.items()},
        "many_stocks_other_strategy_s": round(statistics.median(again), 2),
        "load_average": os.getloadavg()[0],
    }
    result["first_paint_against_empty_streamlit"] = round(
        result["sample"]["first_paint"]["s"] / result["empty_streamlit"]["s"], 2
    )
    print(json.dumps(result, indent=2))


def summary(times: list[dict[str, tuple[float, float]]]) -> dict[str, Any]:
    """Medians over visits, and the range."""
    return {
        moment: {
            "s": round(statistics.median(each[moment][0] for each in times), 2),
            "cpu_s": round(statistics.median(each[moment][1] for each in times), 2),
            "range_s": [round(edge(each[moment][0] for each in times), 2) for edge in (min, max)],
        }
        for moment in times[0]
    }


def sample() -> str:
    """Nine stocks through 2019."""
    from portfolio_sdpo.backtest.run import BacktestSettings
    from portfolio_sdpo.report.result import run_backtest

    return run_backtest(BacktestSettings(start="2019-01-02", end="2019-12-31")).folder.name


def promote() -> None:
    """A champion on the sample, with its hold-out."""
    from portfolio_sdpo.registry import Registry
    from portfolio_sdpo.registry.retrain import RetrainSettings, retrain

    with Registry.open() as registry:
        done = retrain(RetrainSettings(), registry=registry)
        assert done.outcome == "promoted", done.reason


def many_stocks(count: int) -> str:
    """As many stocks through a year."""
    from portfolio_sdpo.backtest.run import BacktestSettings
    from portfolio_sdpo.prices.cleaning import clean
    from portfolio_sdpo.prices.manifest import Request
    from portfolio_sdpo.prices.prices import Prices
    from portfolio_sdpo.prices.snapshots import Store
    from portfolio_sdpo.report.result import run_backtest

    days = pd.bdate_range("2017-12-01", "2019-12-31", unit="us")
    steps = np.random.default_rng(0).normal(3e-4, 0.015, (len(days), count))
    frame = pd.DataFrame(100.0 * np.exp(steps.cumsum(0)), index=days, columns=[f"S{n:03d}" for n in range(count)])
    prices = Prices(frame, "Close", "none")
    Store().save("made-up", clean(prices), prices, Request(source="file"))
    chosen = ("equal-weight", "buy-and-hold", "inverse-volatility", "cash")
    settings = BacktestSettings(snapshot="made-up", strategies=chosen, start="2019-01-02", end="2019-12-31")
    return run_backtest(settings).folder.name


@contextlib.contextmanager
def serving(command: list[str]) -> Iterator[str]:
    """A module with its arguments, to which a free port is added."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", *command, str(port)], stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/_stcore/health"):
                break
            assert process.poll() is None, "the server ended"
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


Moments = dict[str, list[str]]


def visits(
    browser: Any, page: str, moments: Moments, options: argparse.Namespace
) -> list[dict[str, tuple[float, float]]]:
    """As many visits as asked for, after one that is not counted."""
    visit(browser, page, moments, options.slowdown)
    return [visit(browser, page, moments, options.slowdown) for _ in range(options.visits)]


def visit(browser: Any, address: str, moments: Moments, slowdown: float) -> dict[str, tuple[float, float]]:
    """Seconds until each moment, and seconds of processor time that the main thread took for it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    inspector = context.new_cdp_session(page)
    inspector.send("Performance.enable", {"timeDomain": "threadTicks"})
    inspector.send("Emulation.setCPUThrottlingRate", {"rate": slowdown})
    page.goto(address, wait_until="commit", timeout=PATIENCE)
    found = {}
    for moment, selectors in moments.items():
        seen: float = page.wait_for_function(SEEN, arg=selectors, timeout=PATIENCE).json_value()
        measured = {each["name"]: each["value"] for each in inspector.send("Performance.getMetrics")["metrics"]}
        found[moment] = seen / 1000, measured["TaskDuration"]
    context.close()
    return found


def switch(browser: Any, address: str) -> float:
    """Seconds from choosing another strategy until its weights are there."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector(".st-key-weights .main-svg .scatterlayer .trace", state="attached")
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
    before = page.locator(".st-key-weights .js-plotly-plot").evaluate("plot => plot.data.at(-1).y.at(-1)")
    strategy = page.get_by_role("combobox", name="Strategy")
    strategy.scroll_into_view_if_needed()
    page.wait_for_timeout(1000)  # an open list closes when the page still moves
    strategy.click()
    option = page.get_by_role("option", name="inverse-volatility")
    option.wait_for()
    began = time.monotonic()
    option.click()
    page.wait_for_function(
        "before => { const plot = document.querySelector('.st-key-weights .js-plotly-plot');"
        " return plot?.data && plot.data.at(-1).y.at(-1) !== before }",
        arg=before,
    )
    took = time.monotonic() - began
    context.close()
    return took


if __name__ == "__main__":
    main()
