"""Who may talk to the dashboard: foreign names, foreign pages and proxies are refused, visitors from outside log in."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from typer.testing import CliRunner
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from portfolio_sdpo import cli
from portfolio_sdpo.registry import Registry
from portfolio_sdpo_app.dashboard.server import gate, login
from portfolio_sdpo_app.dashboard.server.gate import Gate
from portfolio_sdpo_app.dashboard.server.login import Login

STREAM = "/_stcore/stream"


def open_stream(address: str, host: str, origin: str | None, headers: dict[str, str] | None = None) -> None:
    """What a page does first: open Streamlit's WebSocket, under this name."""
    _, _, port = address.rpartition(":")
    line = socket.create_connection(("127.0.0.1", int(port)), timeout=30.0)
    with connect(
        f"ws://{host}:{port}{STREAM}",
        sock=line,
        origin=origin,
        subprotocols=["streamlit"],
        additional_headers=headers,
        open_timeout=60,
    ):
        pass


def test_a_foreign_name_reads_nothing(filled: str):
    """DNS rebinding: a page of a foreign site makes its own name resolve to this machine."""
    port = filled.rpartition(":")[2]
    foreign = f"evil.example:{port}"
    for path in ("/", "/backtest", "/_stcore/host-config"):
        answer = httpx.get(f"{filled}{path}", headers={"Host": foreign})
        assert answer.status_code == 403 and "this machine only" in answer.text
    for host, origin in [
        ("evil.example", f"http://{foreign}"),  # by its own name
        ("evil.example", None),
        ("127.0.0.1", f"http://{foreign}"),  # by ours, from its page
        ("127.0.0.1", "http://127.0.0.1:1"),  # from another server of this machine
        ("127.0.0.1", "null"),
    ]:
        with pytest.raises(InvalidStatus) as refused:
            open_stream(filled, host, origin)
        assert refused.value.response.status_code == 403, (host, origin)
    for name in ("127.0.0.1", "localhost"):
        open_stream(filled, name, f"http://{name}:{port}")
    assert httpx.get(filled, headers={"X-Forwarded-For": "10.0.0.7"}).status_code == 403


def test_a_page_in_a_browser_cannot_reach_over(browser: Any, filled: str, empty: str):
    page = browser.new_page()
    page.goto(f"{empty}/_stcore/health")
    open_it = """address => new Promise(done => {
        const line = new WebSocket(address, ["streamlit"]);
        line.onopen = () => { line.close(); done("open"); };
        line.onerror = () => done("refused");
    })"""
    assert page.evaluate(open_it, f"{empty.replace('http', 'ws')}{STREAM}") == "open"
    assert page.evaluate(open_it, f"{filled.replace('http', 'ws')}{STREAM}") == "refused"
    page.close()


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
    with Registry.open() as opened:
        yield opened


async def talk(line: WebSocket) -> None:
    await line.accept()
    await line.send_text("weights")
    await line.close()


INSIDE = Starlette(
    routes=[
        Route("/", lambda _: PlainTextResponse("weights")),
        Route("/_stcore/health", lambda _: PlainTextResponse("ok")),
        WebSocketRoute(STREAM, talk),
    ]
)
DESK = {"Host": "desk.example"}


@contextlib.contextmanager
def standing(application: Gate) -> Iterator[str]:
    """The gate before a small application, on loopback; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(application, log_config=None, lifespan="off", ws="websockets-sansio")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30.0)


@pytest.fixture
def outside(registry: Registry) -> Iterator[str]:
    """A gate on an address that others reach."""
    with standing(Gate(INSIDE, Login(lambda: registry))) as address:
        yield address


@pytest.fixture
def http(outside: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=outside, headers=DESK) as client:
        yield client


def test_from_outside_one_logs_in(http: httpx.Client, outside: str, registry: Registry, monkeypatch: Any):
    monkeypatch.setattr(login, "CHECK_EVERY", 0.0)
    key, secret = registry.create_key("desk", "train")
    _, weak = registry.create_key("reader", "read")
    assert http.get("/_stcore/health").text == "ok"
    assert http.get("/").headers["location"] == "/login" and http.put("/").status_code == 401
    with pytest.raises(InvalidStatus):
        open_stream(outside, "desk.example", None)
    for wrong in ("", "psdpo_00000000_no", weak):
        answer = http.post("/login", data={"key": wrong})
        assert answer.status_code == 403 and "unknown, revoked or expired" in answer.text and not answer.cookies
    assert http.post("/login", content=b"key=" + b"x" * 10_000).status_code == 413
    answer = http.post("/login", data={"key": secret})
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and "secure" not in cookie and secret not in cookie
    assert http.get("/").text == "weights"
    session = {"Cookie": "; ".join(f"{name}={value}" for name, value in http.cookies.items())}
    own = f"http://desk.example:{outside.rpartition(':')[2]}"
    open_stream(outside, "desk.example", own, session)

    # Pages of other sites cannot use the visitor's session, and it does not hold for others.
    foreign = {"Origin": "http://evil.example"}
    assert http.get("/", headers=foreign).status_code == 403
    assert http.post("/login", data={"key": secret}, headers=foreign).status_code == 403
    with pytest.raises(InvalidStatus):
        open_stream(outside, "desk.example", foreign["Origin"], session)
    assert httpx.get(outside, headers=DESK).status_code == 303

    # A session ends with the visit, and with its key.
    answer = httpx.post(f"{outside}/login", data={"key": secret}, headers=DESK | {"X-Forwarded-Proto": "https"})
    assert "secure" in answer.headers["set-cookie"].lower()
    other = DESK | {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    assert httpx.get(outside, headers=other).text == "weights"
    assert httpx.get(f"{outside}/logout", headers=other).headers["location"] == "/login"
    assert httpx.get(outside, headers=other).status_code == 303
    registry.revoke_key(key.id)
    assert http.get("/").status_code == 303


def test_a_session_ends_with_its_time(http: httpx.Client, registry: Registry, monkeypatch: pytest.MonkeyPatch):
    _, secret = registry.create_key("desk", "train")
    monkeypatch.setattr(login, "LIFETIME", -1)
    http.post("/login", data={"key": secret})
    assert http.get("/").status_code == 303


def test_a_proxy_is_answered_by_the_name_that_it_was_given(monkeypatch: pytest.MonkeyPatch):
    passed_on = {"X-Forwarded-For": "10.0.0.7"}
    with standing(Gate(INSIDE, None, "Desk.example")) as address:
        assert httpx.get(address, headers=passed_on | DESK).text == "weights"
        assert httpx.get(address, headers=DESK | {"Origin": "http://evil.example"}).status_code == 403
        assert httpx.get(address, headers=passed_on | {"Host": "evil.example"}).status_code == 403
        assert httpx.get(address, headers=passed_on).status_code == 403
        assert httpx.get(address).text == "weights"
        monkeypatch.setattr(gate, "MAX_UPLOADS", 0)
        answer = httpx.put(f"{address}/_stcore/upload_file/session/file", content=b"prices")
        assert answer.status_code == 429 and "try again" in answer.text


def test_nobody_listens_for_others_without_a_key_to_log_in_with(registry: Registry, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.execv", lambda *_: None)

    def start() -> Any:
        return CliRunner().invoke(cli.build_app(), ["dashboard", "--no-open", "--host", "0.0.0.0", "--port", "0"])

    registry.create_key("reader", "read")
    assert start().exit_code == 2 and "no API key to log in with" in start().stderr
    registry.create_key("desk", "train")
    assert start().exit_code == 0
