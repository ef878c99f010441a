"""Real servers on loopback that speak Yahoo's and Nasdaq Data Link's protocols and can be told to misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from zoneinfo import ZoneInfo

import pytest


@dataclass(frozen=True)
class Answer:
    """One answer of a server. claims: the length to announce, if not the true one. delay: seconds before it."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    claims: int | None = None
    delay: float = 0.0

    @classmethod
    def json(cls, content: Any, status: int = 200, **headers: str) -> Answer:
        return cls(status, json.dumps(content).encode(), headers)

    @property
    def cut(self) -> Answer:
        """Well formed as HTTP, half of it as JSON."""
        return Answer(self.status, self.body[: len(self.body) // 2], self.headers)

    @property
    def broken_off(self) -> Answer:
        """The connection ends before the body does."""
        return Answer(self.status, self.body[: len(self.body) // 2], self.headers, claims=len(self.body))


@dataclass(frozen=True)
class Asked:
    """One request that a server got."""

    path: str
    query: Mapping[str, str]
    headers: Message


class Server:
    """Serves until the test is over. `disturb` puts answers before the usual ones, each is used once."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._disturbances: list[tuple[str, Answer | Callable[[Asked], Answer]]] = []
        self._over = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
                asked = Asked(unquote(parts.path), query, self.headers)
                owner.asked.append(asked)
                owner._send(self, owner._disturbance(asked) or owner.answer(asked))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.do_GET()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, asked: Asked) -> Answer:
        raise NotImplementedError

    def disturb(self, path: str, *answers: Answer | Callable[[Asked], Answer]) -> None:
        """The next requests whose path ends so get these answers."""
        self._disturbances += [(path, answer) for answer in answers]

    def asked_for(self, path: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.path.endswith(path)]

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _disturbance(self, asked: Asked) -> Answer | None:
        for item in self._disturbances:
            if asked.path.endswith(item[0]):
                self._disturbances.remove(item)
                return item[1] if isinstance(item[1], Answer) else item[1](asked)
        return None

    def _send(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        if answer.delay and self._over.wait(answer.delay):
            return
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(answer.body) if answer.claims is None else answer.claims))
        with suppress(ConnectionError):  # who did not want to wait is gone
            handler.end_headers()
            handler.wfile.write(answer.body)


@dataclass
class Listing:
    """A ticker at Yahoo: its exchange's time zone and, per day, close and adjusted close (None = an empty bar)."""

    bars: dict[date, tuple[float | None, float | None]]
    zone: str = "America/New_York"
    opens: time = time(9, 30)
    session_ends: int | None = None

    def opened(self, day: date) -> int:
        return int(datetime.combine(day, self.opens, ZoneInfo(self.zone)).timestamp())


class YahooServer(Server):
    """Cookie, crumb and chart: no chart without the crumb that belongs to the cookie."""

    def __init__(self) -> None:
        self.listings: dict[str, Listing] = {}
        self.cookie, self.crumb = "A3=d=biscuit", "crumb.1"
        self.empty_charts = False
        super().__init__()

    def answer(self, asked: Asked) -> Answer:
        match asked.path:
            case "/":  # fc.yahoo.com has no page there and sets the cookie all the same
                return Answer(404, b"not found", {"Set-Cookie": f"{self.cookie}; Path=/"})
            case "/v1/test/getcrumb":
                fits = self.cookie in asked.headers.get("Cookie", "")
                return Answer(200, self.crumb.encode()) if fits else Answer(401, b"")
            case "/consent":
                form = '<input name="csrfToken" value="t"><input name="sessionId" value="s">'
                return Answer(200, f"<html><form>{form}</form></html>".encode())
            case "/v2/collectConsent" | "/copyConsent":
                return Answer(200, b"", {"Set-Cookie": f"{self.cookie}; Path=/"})
        if asked.path.startswith("/v8/finance/chart/"):
            if asked.query.get("crumb") != self.crumb or self.cookie not in asked.headers.get("Cookie", ""):
                error = {"code": "Unauthorized", "description": "Invalid Crumb"}
                return Answer.json({"finance": {"result": None, "error": error}}, 401)
            return self.chart(asked)
        return Answer(404, b"<html>no such page</html>")

    def chart(self, asked: Asked) -> Answer:
        listing = self.listings.get(asked.path.rpartition("/")[2])
        if listing is None:
            error = {"code": "Not Found", "description": "No data found, symbol may be delisted"}
            return Answer.json({"chart": {"result": None, "error": error}}, 404)
        first, last = int(asked.query["period1"]), int(asked.query["period2"])
        days = [day for day in sorted(listing.bars) if first <= listing.opened(day) < last]
        meta: dict[str, Any] = {
            "currency": "USD",
            "instrumentType": "EQUITY",
            "exchangeTimezoneName": listing.zone,
            "validRanges": ["1d", "max"],
            "priceHint": 2,
        }
        if listing.session_ends is not None:
            times = {"start": listing.opened(max(listing.bars)), "end": listing.session_ends}
            times |= {"timezone": "UTC", "gmtoffset": 0}
            meta["currentTradingPeriod"] = {"pre": times, "regular": times, "post": times}
        if not days and not self.empty_charts:
            description = f"Data doesn't exist for startDate = {first}, endDate = {last}"
            return Answer.json(
                {"chart": {"result": None, "error": {"code": "Bad Request", "description": description}}}, 400
            )
        if not days:
            result: dict[str, Any] = {"meta": meta, "indicators": {"quote": [{}], "adjclose": [{}]}}
            return Answer.json({"chart": {"result": [result], "error": None}})
        closes = [listing.bars[day][0] for day in days]
        volumes = [None if close is None else 1000 for close in closes]
        quote = {"open": closes, "high": closes, "low": closes, "close": closes, "volume": volumes}
        adjusted = [listing.bars[day][1] for day in days]
        result = {
            "meta": meta,
            "timestamp": [listing.opened(day) for day in days],
            "indicators": {"quote": [quote], "adjclose": [{"adjclose": adjusted}]},
        }
        return Answer.json({"chart": {"result": [result], "error": None}})


class DataLinkServer(Server):
    """Datasets and tables as JSON. key: asked for if given. page: rows of a table per answer."""

    def __init__(self) -> None:
        self.datasets: dict[str, tuple[list[str], list[list[Any]]]] = {}
        self.tables: dict[str, tuple[list[tuple[str, str]], list[list[Any]]]] = {}
        self.key: str | None = None
        self.page = 2
        super().__init__()

    def answer(self, asked: Asked) -> Answer:
        given = asked.headers.get("x-api-token")
        if self.key is not None and given is None:
            return refusal("QEPx04", "A valid API key is required to retrieve data. Please check it.", 403)
        if self.key is not None and given != self.key:
            return refusal("QEAx01", f"We could not recognize your API key {given}. Please check it.", 400)
        kind, _, code = asked.path.removeprefix("/api/v3/").partition("/")
        if kind == "datasets":
            return self.dataset(code.removesuffix("/data"), asked.query)
        return self.table(code, asked.query)

    def dataset(self, code: str, query: Mapping[str, str]) -> Answer:
        if code not in self.datasets:
            return refusal("QECx02", "You have submitted an incorrect Quandl code. Please check it.", 404)
        names, rows = self.datasets[code]
        first, last = query.get("start_date", ""), query.get("end_date", "9")
        data = [row for row in rows if first <= row[0] <= last]
        return Answer.json({"dataset_data": {"column_names": names, "data": data, "order": query.get("order")}})

    def table(self, code: str, query: Mapping[str, str]) -> Answer:
        if code not in self.tables:
            return refusal("QECx02", "You have submitted an incorrect Quandl code. Please check it.", 404)
        columns, rows = self.tables[code]
        names = [name for name, _ in columns]
        first, last = query.get("date.gte", ""), query.get("date.lte", "9")
        rows = [
            row
            for row in rows
            if row[names.index("ticker")] == query["ticker"] and first <= row[names.index("date")] <= last
        ]
        at = int(query.get("qopts.cursor_id", 0))
        after = at + int(query.get("qopts.per_page", self.page))
        data = {"data": rows[at:after], "columns": [{"name": name, "type": kind} for name, kind in columns]}
        cursor = str(after) if after < len(rows) else None
        return Answer.json({"datatable": data, "meta": {"next_cursor_id": cursor}})


def refusal(code: str, message: str, status: int) -> Answer:
    """An error as Nasdaq Data Link words it."""
    return Answer.json({"quandl_error": {"code": code, "message": message}}, status)


@pytest.fixture
def yahoo() -> Iterator[YahooServer]:
    server = YahooServer()
    yield server
    server.close()


@pytest.fixture
def data_link() -> Iterator[DataLinkServer]:
    server = DataLinkServer()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key of the developer's, and a proxy that is not there: whatever goes through it fails."""
    for name in ("PORTFOLIO_SDPO_QUANDL_KEY", "NASDAQ_DATA_LINK_API_KEY", "QUANDL_API_KEY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.fixture
def answer() -> type[Answer]:
    return Answer


@pytest.fixture
def listing() -> type[Listing]:
    return Listing


@pytest.fixture
def refuse() -> Callable[[str, str, int], Answer]:
    return refusal
