"""Homes with real runs, servers of the real command on them, and a real browser that fails on any exception box."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from portfolio_sdpo.backtest.run import BacktestSettings, DeclaredAgent
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.store import train_agent
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices
from portfolio_sdpo.prices.samples import load_sample
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.report.result import run_backtest

# So light a barrier that it leaves cash at once.
QUICK = AgentSettings(
    eta=(1e9, 1e9),
    history=60,
    paths=8,
    first=30,
    further=2,
    learner={"kind": "analytic", "hidden": (4, 4), "learning_rate": 0.2},
)
ANY_AGE = "1000000"
PATIENCE = 120_000
"""Milliseconds that a page may take where other work has the machine."""
WIDTHS = {"laptop": (1280, 900), "phone": (390, 844)}
NO_FAULT = re.compile(r"/_stcore/(health|host-config)")
"""Streamlit looks for its server below the page's address first, which is not there."""


def missing(what: str) -> None:
    """Skip; where continuous integration promised that it is there, fail."""
    if os.environ.get("PORTFOLIO_SDPO_CI"):
        pytest.fail(what)
    pytest.skip(what)


@contextlib.contextmanager
def at_home(folder: Path) -> Iterator[None]:
    """The package keeps its things in this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PORTFOLIO_SDPO_HOME", str(folder))
        patch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
        yield


def fill(folder: Path) -> None:
    """Two small backtests with different α, prices, and two models of which the later one is champion."""
    with at_home(folder):
        for alpha, seeds in ((0.05, (0, 1)), (0.1, (0,))):
            learning = QUICK.model_copy(update={"limit": QUICK.limit.model_copy(update={"alpha": alpha})})
            run_backtest(
                BacktestSettings(
                    strategies=("equal-weight", "buy-and-hold", "cash"),
                    agents=(DeclaredAgent(label="sdpo", settings=learning.model_dump(mode="json")),),
                    start="2019-01-02",
                    end="2019-03-29",
                    fee_bps=5.0,
                    limit=learning.limit,
                    shield=True,
                    seeds=seeds,
                    bootstrap={"draws": 200},
                ),
                agents=[Agent(learning, seed, "sdpo") for seed in seeds],
            )
            # Names of backtests have the second in them, and in their order the later one is the newer one.
            time.sleep(1.1)
        save_prices("prices", -2)
        with Registry.open() as registry:
            for seed in (3, 4):
                trained = train_agent(QUICK, snapshot="prices", seed=seed, label=f"small-{seed}")
                model = registry.add_model(trained.folder)
                registry.promote(model.id, f"the one with seed {seed}", by="test")
        # Two more sessions: the champion knows the close before the last, and so there is a change to tell.
        save_prices("prices", None)


def save_prices(name: str, until: int | None) -> None:
    """The bundled prices up to a session, as a snapshot."""
    prices = load_sample("sample")
    cut = Prices(prices.frame.iloc[:until], prices.column, prices.adjustment)
    Store().save(name, clean(cut), cut, Request(source="file"))


@pytest.fixture(scope="session")
def filled_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Filled once, by whichever test process comes first; nobody adds backtests, prices or models to it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, done = shared / "filled", shared / "filled.done"
    with (shared / "filled.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            fill(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


@contextlib.contextmanager
def serving(home: Path, **environment: str) -> Iterator[str]:
    """The dashboard as a process on a free port; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "portfolio_sdpo", "dashboard", "--port", str(port), "--no-open"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PORTFOLIO_SDPO_")}
    told = kept | {"PORTFOLIO_SDPO_HOME": str(home), "OMP_NUM_THREADS": "1"} | environment
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, env=told, stdout=log, stderr=subprocess.STDOUT)
        address = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + PATIENCE / 1000
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f"{address}/_stcore/health").status_code == 200:
                        break
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    pytest.fail(f"the dashboard does not answer: {log.read()}")
                time.sleep(0.1)
            yield address
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="session")
def filled(filled_home: Path) -> Iterator[str]:
    """Address of a dashboard with runs and a champion, whose prices may be of any age."""
    with serving(filled_home, PORTFOLIO_SDPO_SERVE_MAX_AGE_SESSIONS=ANY_AGE) as address:
        yield address


@pytest.fixture(scope="session")
def empty(empty_home: Path) -> Iterator[str]:
    """Address of a dashboard with nothing."""
    with serving(empty_home) as address:
        yield address


@pytest.fixture(scope="session")
def work_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def work(work_home: Path) -> Iterator[str]:
    """Address of a dashboard that tests upload to and start jobs on."""
    with serving(work_home) as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = shutil.which("chromium")
    if found is None:
        missing("Chromium is not installed (Debian: chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where they are kept."""
    folder = Path(os.environ.get("PORTFOLIO_SDPO_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Visitor:
    """A page in the browser, with what every visit looks for."""

    def __init__(self, page: Any, screenshots: Path) -> None:
        self.page = page
        self.screenshots = screenshots
        self.faults: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.faults.append(f"error in the page: {error}"))
        page.on("console", self._heard)
        page.on("requestfailed", self._failed)

    def open(self, address: str, name: str) -> Any:
        """Open a page of the dashboard and wait until its script has ended."""
        self.page.goto(f"{address}/{name}")
        self.page.wait_for_selector("h1")
        self.page.wait_for_selector("#first", state="detached")
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until the server has drawn what was asked for, and look for exception boxes."""
        self.page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
        boxes = self.page.locator("[data-testid=stException]")
        assert boxes.count() == 0, boxes.first.inner_text()

    def choose(self, label: str, option: str | re.Pattern[str]) -> None:
        """Open a list and take one of its options; again if the page was drawn anew meanwhile, which closes it."""
        from playwright.sync_api import TimeoutError as NotThere

        for last in (False,) * 5 + (True,):
            self.page.get_by_role("combobox", name=label).click()
            try:
                self.page.get_by_role("option", name=option, exact=isinstance(option, str)).click(timeout=10_000)
                return
            except NotThere:
                if last:
                    raise
                self.page.keyboard.press("Escape")

    def wait_for_text(self, selector: str, text: str) -> None:
        """Until the first of these elements says so; the page is not opened anew meanwhile."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector).first).to_contain_text(text, timeout=PATIENCE)

    def alerts(self) -> list[str]:
        """What the page says in boxes."""
        return [text.strip() for text in self.page.locator("[data-testid=stAlert]").all_inner_texts()]

    def keep(self, name: str) -> None:
        """A screenshot of the whole page."""
        size = self.page.viewport_size
        height = self.page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollHeight")
        self.page.set_viewport_size({"width": size["width"], "height": min(max(height, size["height"]), 8000)})
        self.page.screenshot(path=self.screenshots / f"{name}.png")
        self.page.set_viewport_size(size)

    def figures(self, scope: str = "") -> list[tuple[str, float]]:
        """Name and value, at full precision, of the figures within a CSS selector."""
        found = self.page.eval_on_selector_all(
            f"{scope} data[data-name]".strip(),
            "all => all.map(each => [each.dataset.name, each.getAttribute('value')])",
        )
        return [(name, float(value)) for name, value in found]

    def no_sideways(self) -> None:
        """The page is no wider than the window; tables scroll within themselves."""
        wide, window = self.page.evaluate(
            "() => { const main = document.querySelector('[data-testid=stMain]'); "
            "return [main.scrollWidth, main.clientWidth] }"
        )
        assert wide <= window

    def _heard(self, message: Any) -> None:
        if message.type == "error" and not NO_FAULT.search(message.location.get("url", "")):
            self.faults.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _failed(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1", "blob:", "data:")):
            self.faults.append(f"the page asks the internet: {request.url}")


@pytest.fixture
def visit(browser: Any, screenshots: Path) -> Iterator[Callable[..., Visitor]]:
    """A visitor with a new browser profile: `visit("phone", "dark")`."""
    visitors = []

    def start(width: str = "laptop", scheme: str = "light") -> Visitor:
        wide, high = WIDTHS[width]
        context = browser.new_context(
            viewport={"width": wide, "height": high},
            color_scheme=scheme,
            is_mobile=width == "phone",
            has_touch=width == "phone",
            accept_downloads=True,
        )
        visitors.append(Visitor(context.new_page(), screenshots))
        return visitors[-1]

    yield start
    for visitor in visitors:
        visitor.page.context.close()
        assert visitor.faults == []
