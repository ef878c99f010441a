"""Small champions, and the service on loopback in a thread of this process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pandas as pd
import uvicorn

from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.portfolio.limits import GroupLimit, Limits
from portfolio_sdpo.portfolio.shield import CvarLimit
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices
from portfolio_sdpo.prices.samples import load_sample
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import Registry
from portfolio_sdpo_app.api.config import ServeSettings
from portfolio_sdpo_app.api.main import create_app
from portfolio_sdpo_app.api.server import listen

# So tight a limit, and so light a barrier, that the shield has something to do.
QUICK = AgentSettings(
    limit=CvarLimit(bound=-0.00003),
    eta=(1e9, 1e9),
    history=60,
    paths=8,
    first=8,
    further=2,
    fee=0.0005,
    learner={"kind": "analytic", "hidden": (4, 4), "learning_rate": 0.1},
)
CAPPED = QUICK.model_copy(
    update={
        # A limit that leaves room, so that the caps bind.
        "limit": CvarLimit(bound=-0.2),
        "limits": Limits(
            max_weight=0.08,
            max_turnover=0.1,
            groups=[GroupLimit(name="tech", tickers=("AAPL", "CSCO", "MSFT"), max_weight=0.15)],
        ),
    }
)
ANY_AGE = 1_000_000


def save_snapshot(name: str, until: str, **changes: Any) -> pd.DataFrame:
    """The bundled prices up to a day, as a snapshot."""
    prices = load_sample("sample")
    cut = Prices(prices.frame.loc[:until], prices.column, prices.adjustment)
    cleaned = clean(cut)
    return Store().save(name, cleaned, cut, Request(source="file", **changes)).snapshot.frame


@dataclass
class Running:
    """A service, and who talks to it."""

    http: httpx.Client
    services: Any

    def settle(self, kind: str | None = None, seconds: float = 20.0) -> httpx.Response:
        """Ask for weights until they are there, or refused in this way."""
        deadline = time.monotonic() + seconds
        while True:
            answer = self.http.get("/weights")
            found = "" if answer.status_code == 200 else answer.json()["type"].rpartition(":")[2]
            if found == (kind or "") or time.monotonic() > deadline:
                assert found == (kind or ""), answer.text
                return answer
            time.sleep(0.02)

    def audited(self, number: int, seconds: float = 10.0) -> list[Any]:
        """The audit, once it has so many rows."""
        deadline = time.monotonic() + seconds
        while len(rows := self.services.registry.audit(limit=10_000)) < number and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(rows) >= number
        return rows


@contextlib.contextmanager
def serving(registry: Registry, **settings: Any) -> Iterator[Running]:
    """The service in a thread, on a free port of loopback."""
    chosen = ServeSettings(
        **{"port": 0, "max_age_sessions": ANY_AGE, "rate": 0.0, "check_every": 0.02, "lease": 5.0} | settings
    )
    app: Any = create_app(chosen, registry)
    listener = listen(chosen)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, proxy_headers=False, lifespan="on", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1"
    try:
        with httpx.Client(base_url=base, timeout=30.0) as http:
            yield Running(http, app.app.state.services)
    finally:
        server.should_exit = True
        thread.join(20.0)
        assert not thread.is_alive()


def start_serve(forks: Any, *options: str, files: int | None = None) -> tuple[Any, str]:
    """`portfolio-sdpo serve` on a free port, and its address, once it is ready."""
    command = ("serve", "--port", "0", "--rate", "0", "--max-age-sessions", str(ANY_AGE))
    process = forks.start(*command, *options, files=files, quiet=True)
    base = process.stdout.readline().removeprefix("Serving ").strip()
    assert base.startswith("http://127.0.0.1:")
    deadline = time.monotonic() + 120
    with httpx.Client(base_url=base, timeout=60.0) as http:
        while http.get("/ready").status_code != 200:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
    return process, base


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The answer is a problem of this kind, in the shape of all problems."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    content: dict[str, Any] = answer.json()
    assert content["status"] == status and content["title"] and content["detail"].endswith(".")
    assert content["request_id"] == answer.headers["x-request-id"]
    assert content["type"] == ("about:blank" if kind == "about:blank" else f"urn:problem-type:portfolio-sdpo:{kind}")
    return content
