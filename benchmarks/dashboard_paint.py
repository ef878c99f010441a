"""First paint of the dashboard's Backtest page in Chromium. Prints one JSON object.

python benchmarks/dashboard_paint.py [--visits 5] [--stocks 400]

A year of the bundled sample with all benchmark strategies, and a year of as many made-up stocks (geometric random
walks) with those that need no solver. The dashboard runs as a process of its own. Every visit is a new browser profile,
so nothing is cached; the time goes from the navigation until the figure of wealth is drawn and visible. Beside it
stands the processor time of the page's main thread, which other work on the machine stretches much less. The very first
visit of a server, which also imports the packages, is told apart.
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
from typing import Any

import numpy as np
import pandas as pd

DRAWN = """() => {
  const plot = document.querySelector('.st-key-equity .main-svg .scatterlayer .trace');
  return plot !== null && plot.getBoundingClientRect().width > 0 && performance.now();
}"""
PATIENCE = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument("--stocks", type=int, default=400)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["PORTFOLIO_SDPO_HOME"] = home
        os.environ.pop("PORTFOLIO_SDPO_REGISTRY", None)
        runs = {"sample": sample(), "many_stocks": many_stocks(options.stocks)}
        with serving() as address, chromium() as browser:
            first = paint(browser, address, runs["sample"])
            found = {name: [paint(browser, address, run) for _ in range(options.visits)] for name, run in runs.items()}
            again = [switch(browser, address, runs["many_stocks"]) for _ in range(options.visits)]
    result: dict[str, Any] = {
        "stocks": options.stocks,
        "first_visit_of_the_server_s": round(first[0], 2),
        **{f"{name}_s": round(statistics.median(wall for wall, _ in times), 2) for name, times in found.items()},
        **{f"{name}_cpu_s": round(statistics.median(cpu for _, cpu in times), 2) for name, times in found.items()},
        "many_stocks_other_strategy_s": round(statistics.median(again), 2),
        "all_s": {name: [round(wall, 2) for wall, _ in times] for name, times in found.items()},
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(result, indent=2))


def sample() -> str:
    """Nine stocks through 2019."""
    from portfolio_sdpo.backtest.run import BacktestSettings, run_backtest

    return run_backtest(BacktestSettings(start="2019-01-02", end="2019-12-31")).folder.name


def many_stocks(count: int) -> str:
    """As many stocks through a year."""
    from portfolio_sdpo.backtest.run import BacktestSettings, run_backtest
    from portfolio_sdpo.market.cleaning import clean
    from portfolio_sdpo.market.manifest import Request
    from portfolio_sdpo.market.prices import Prices
    from portfolio_sdpo.market.snapshots import Store

    days = pd.bdate_range("2017-12-01", "2019-12-31", unit="us")
    steps = np.random.default_rng(0).normal(3e-4, 0.015, (len(days), count))
    frame = pd.DataFrame(100.0 * np.exp(steps.cumsum(0)), index=days, columns=[f"S{n:03d}" for n in range(count)])
    prices = Prices(frame, "Close", "none")
    Store().save("made-up", clean(prices), prices, Request(source="file"))
    chosen = ("equal-weight", "buy-and-hold", "inverse-volatility", "cash")
    settings = BacktestSettings(snapshot="made-up", strategies=chosen, start="2019-01-02", end="2019-12-31")
    return run_backtest(settings).folder.name


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The dashboard on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "portfolio_sdpo", "dashboard", "--port", str(port), "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/_stcore/health"):
                break
            assert process.poll() is None, "the dashboard ended"
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


def paint(browser: Any, address: str, run: str) -> tuple[float, float]:
    """Seconds until the curves are there, and seconds of processor time that the main thread took for it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    inspector = context.new_cdp_session(page)
    inspector.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(f"{address}/backtest?run={run}", wait_until="commit", timeout=PATIENCE)
    drawn: float = page.wait_for_function(DRAWN, timeout=PATIENCE).json_value()
    measured = {each["name"]: each["value"] for each in inspector.send("Performance.getMetrics")["metrics"]}
    context.close()
    return drawn / 1000, measured["TaskDuration"]


def switch(browser: Any, address: str, run: str) -> float:
    """Seconds from choosing another strategy until its weights are there."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}/backtest?run={run}")
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
