"""The frame: order of the pages, what a page imports, errors as one sentence, the command."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli

ORDER = ["Live", "Backtest", "Compare", "Training", "Data", "Run"]


def test_pages_are_in_order_and_a_link_leads_to_each(visit: Callable, empty: str):
    visitor = visit()
    page = visitor.open(empty, "")
    links = page.locator("[data-testid=stSidebarNavLink]")
    links.first.wait_for()
    assert [text.strip().splitlines()[-1] for text in links.all_inner_texts()] == ORDER
    links.nth(1).click()
    page.wait_for_url("**/backtest")
    page.locator("h1", has_text="Backtest").wait_for()
    visitor.settle()


def test_an_error_of_ours_is_one_sentence(visit: Callable, tmp_path: Path, browser):
    """A registry that cannot be opened: no exception box, and what to do next."""
    from .conftest import serving

    (tmp_path / "registry.db").write_bytes(b"this is no database" * 100)
    with serving(tmp_path) as address:
        page = visit().open(address, "")
        alert = page.locator("[data-testid=stAlert]")
        assert "registry.db" in alert.first.inner_text()
        assert alert.first.inner_text().strip().endswith(".")
        page.close()  # before its server, whose absence it would report


def test_a_page_imports_only_what_it_needs():
    """Whoever looks at a backtest does not wait for torch, SQLAlchemy or the service."""
    script = (
        "import sys, portfolio_sdpo_app.dashboard.pages.backtest, portfolio_sdpo_app.dashboard.pages.compare\n"
        "print([name for name in ('torch', 'sqlalchemy', 'fastapi', 'skfolio', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_live_needs_no_fastapi():
    script = (
        "import sys; sys.modules['fastapi'] = None; sys.modules['uvicorn'] = None\n"
        "import portfolio_sdpo_app.dashboard.pages.live"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


@pytest.mark.parametrize("name", ["streamlit", "plotly"])
def test_the_command_names_the_extra(monkeypatch: pytest.MonkeyPatch, name: str):
    from portfolio_sdpo.common import plugins

    real = plugins.find_spec
    monkeypatch.setattr(plugins, "find_spec", lambda each: None if each == name else real(each))
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("the dashboard was started"))
    result = CliRunner().invoke(cli.build_app(), ["dashboard", "--no-open"])
    assert result.exit_code == 1
    assert name in result.stderr and "pip install 'portfolio_sdpo[dashboard]'" in result.stderr


def test_the_command_refuses_a_taken_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(cli.build_app(), ["dashboard", "--no-open", "--port", str(taken.getsockname()[1])])
    assert result.exit_code == 2
    assert "choose another port with --port" in result.stderr


def test_the_command_passes_the_registry_on(monkeypatch: pytest.MonkeyPatch):
    called: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, arguments: called.append(arguments))
    monkeypatch.setenv("PORTFOLIO_SDPO_REGISTRY", "before")
    result = CliRunner().invoke(
        cli.build_app(), ["dashboard", "--registry", "sqlite:///x.db", "--port", "0", "--no-open"]
    )
    assert result.exit_code == 0
    assert os.environ["PORTFOLIO_SDPO_REGISTRY"] == "sqlite:///x.db"
    ((_, *arguments, settings),) = called
    assert arguments == ["-m", "portfolio_sdpo_app.dashboard"]
    told = json.loads(settings)
    assert told["server.headless"] is True and told["browser.gatherUsageStats"] is False
    assert told["server.address"] == "127.0.0.1" and told["server.port"] > 0


@pytest.mark.parametrize(
    ("host", "opened"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "localhost"), ("::", "localhost"), ("::1", "[::1]")],
)
def test_a_browser_is_sent_to_the_server(monkeypatch: pytest.MonkeyPatch, host: str, opened: str):
    from portfolio_sdpo_app.dashboard import __main__ as server

    options = {"server.address": host, "server.port": 8600}
    monkeypatch.setattr(server.st, "get_option", options.get)
    assert server._address() == f"http://{opened}:8600"
