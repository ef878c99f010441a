"""`python -m portfolio_sdpo_app.dashboard '{"server.port": 8501}'`: Streamlit's server with settings of Streamlit.

What is added to it, by the means that it has for that: what a page needs is imported before somebody opens one, the
document of the Backtest page has its first screen in it, and the default page is found at its name too.
"""

from __future__ import annotations

import ipaddress
import json
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from .navigation import HOME


def make_app() -> st.App:
    """The application."""
    script = Path(__file__).parent / "server" / "script.py"
    return st.App(
        script, lifespan=_lifespan, routes=[Route("/backtest", serve_backtest_page), Route(f"/{HOME}", go_home)]
    )


async def go_home(request: Request) -> Response:
    """Streamlit knows its default page only at the root, and would say that there is none at its name."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"./{query}")


def serve_backtest_page(request: Request) -> Response:
    """The document of the Backtest page."""
    from .server.first_paint import make_document, read_streamlit_document

    # What is seen first does not depend on the strategy; Streamlit's own parameters change how a page looks.
    plain = set(request.query_params) <= {"run", "strategy", "seed"} and _is_own_host(request.url.hostname or "")
    text = make_document(request.query_params.get("run")) if plain else read_streamlit_document()
    return HTMLResponse(text, headers={"Cache-Control": "no-cache"})


def _is_own_host(host: str) -> bool:
    """Whether a page from elsewhere cannot have made a browser believe that it lives here, by a name of its own."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host in ("localhost", st.get_option("browser.serverAddress"))
    return True


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


if __name__ == "__main__":
    make_app().run(config=json.loads(sys.argv[1]))
