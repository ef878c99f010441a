"""`python -m portfolio_sdpo_app.dashboard '{"server.port": 8501}'`: Streamlit's server with settings of Streamlit.

What is added to it, by the means that it has for that: a gate before everything, what a page needs is imported before
somebody opens one, the document of the Backtest page has its first screen in it, and the default page is found at its
name too.
"""

from __future__ import annotations

import json
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from portfolio_sdpo.common.hosts import is_local_host, is_loopback

from .data.registry import open_registry
from .navigation import HOME
from .server.gate import Gate
from .server.login import Login


def make_app() -> st.App:
    """The application."""
    script = Path(__file__).parent / "server" / "script.py"
    routes = [Route("/backtest", serve_backtest_page), Route(f"/{HOME}", go_home)]
    return st.App(script, lifespan=_lifespan, routes=routes, middleware=[Middleware(guard)])


def guard(app: ASGIApp) -> Gate:
    """The gate for the address that the server listens on, which is known once it runs."""
    local = is_loopback(st.get_option("server.address") or "0.0.0.0")
    name = st.get_option("browser.serverAddress") or "localhost"
    return Gate(app, None if local else Login(open_registry), None if is_local_host(name.encode()) else name)


async def go_home(request: Request) -> Response:
    """Streamlit knows its default page only at the root, and would say that there is none at its name."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"./{query}")


def serve_backtest_page(request: Request) -> Response:
    """The document of the Backtest page."""
    from .server.first_paint import make_document, read_streamlit_document

    # What is seen first does not depend on the strategy; Streamlit's own parameters change how a page looks.
    plain = set(request.query_params) <= {"run", "strategy", "seed"}
    text = make_document(request.query_params.get("run")) if plain else read_streamlit_document()
    return HTMLResponse(text, headers={"Cache-Control": "no-cache"})


@asynccontextmanager
async def _lifespan(_: st.App) -> AsyncIterator[None]:
    threading.Thread(target=_warm_up, daemon=True).start()
    if not st.get_option("server.headless"):
        threading.Timer(0.5, webbrowser.open, [_address()]).start()
    yield


def _address() -> str:
    """Where a browser on this machine finds the server."""
    host = st.get_option("server.address")
    everywhere = host in (None, "0.0.0.0", "::")
    shown = "localhost" if everywhere else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{st.get_option('server.port')}"


def _warm_up() -> None:
    """Import what the first visitor would wait for; plotly imports its traces when it first sees one."""
    import plotly.graph_objects as go
    import pyarrow.parquet  # noqa: F401

    from .server import first_paint  # noqa: F401

    go.Figure({"data": [{"type": "scatter"}, {"type": "bar"}]})
    # The default page comes last, since it takes longest: it decides with the champion.
    import portfolio_sdpo.portfolio.shared_policy_agent  # noqa: F401

    from .pages import live  # noqa: F401


if __name__ == "__main__":
    make_app().run(config=json.loads(sys.argv[1]))
