"""`portfolio-sdpo dashboard`: weights, backtests, training and data in a browser."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from typing import Annotated

import typer

from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._registry import Place
from portfolio_sdpo.common.hosts import is_loopback
from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.errors import MissingExtraError, SettingsError

NEEDED = ("streamlit", "plotly")
SETTINGS: dict[str, str | bool | int] = {
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "minimal",
    "server.fileWatcherType": "none",
    "server.showEmailPrompt": False,
    "theme.light.primaryColor": "#0072B2",
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.textColor": "#1d2329",
    "theme.dark.primaryColor": "#1d7ab6",
    "theme.dark.backgroundColor": "#12161a",
    "theme.dark.secondaryBackgroundColor": "#1f262d",
    "theme.dark.textColor": "#e7ebee",
}
"""Settings of Streamlit: no usage statistics, no prompts, and the colours of the reports."""


def dashboard(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0: any free port.")
    ] = 8501,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; others can reach any address but loopback.")
    ] = "127.0.0.1",
    place: Place = None,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the dashboard in a browser.")] = True,
) -> None:
    """Show weights, backtests, training and data in a browser.

    Backtests and retraining can be started from there as well. On an address that others can reach, visitors log in
    with an API key of the scope `train`.
    """
    for name in NEEDED:
        require_extra("The dashboard", name, "dashboard")
    if importlib.util.find_spec("portfolio_sdpo_app.dashboard") is None:
        raise MissingExtraError("The dashboard is not installed: install portfolio_sdpo again.")
    port = _check_port(host, port)
    if not is_loopback(host):
        _check_keys(host, place)
    if place is not None:
        os.environ["PORTFOLIO_SDPO_REGISTRY"] = place
    options = SETTINGS | {
        "server.address": host,
        "server.port": port,
        "server.headless": not browser,
    }
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "portfolio_sdpo_app.dashboard", json.dumps(options)])


def _check_keys(host: str, place: str | None) -> None:
    """Refuse to listen for other machines unless somebody can log in."""
    from portfolio_sdpo.registry import Registry

    with Registry.open(place, create=False) as registry:
        if not any(key.allows("train") for key in registry.api_keys()):
            raise SettingsError(
                f"host: {host} can be reached from other machines, and the registry has no API key to log in with: "
                "create one with `portfolio-sdpo keys create NAME --scope train`, or stay on 127.0.0.1."
            )


def _check_port(host: str, port: int) -> int:
    """The port, if it is free; Streamlit would only mention it in passing if it is not."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((host, port), family=family) as listener:
            return int(listener.getsockname()[1])
    except OSError as error:
        raise SettingsError(
            f"port: {host}:{port} is not available ({error.strerror}): choose another port with --port."
        ) from None


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    root.command("dashboard", epilog=examples("dashboard", "dashboard --port 8600 --no-open"))(dashboard)
