"""A real server process under connections that send nothing, bodies that never end, and callers that take all turns."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import httpx
import pytest

from portfolio_sdpo.registry import Registry

from .helpers import save_snapshot, start_serve
from .routes.test_weights import body_of

FILES = 1024


@pytest.fixture
def process(forks: Any) -> Iterator[Callable[..., tuple[Any, httpx.Client]]]:
    """`portfolio-sdpo serve` with 1,024 file descriptors, once it is ready."""
    with contextlib.ExitStack() as stack:

        def start(*options: str, headers: dict[str, str] | None = None) -> tuple[Any, httpx.Client]:
            done, base = start_serve(forks, *options, files=FILES)
            stack.callback(done.end)
            return done, stack.enter_context(httpx.Client(base_url=base, timeout=60.0, headers=headers))

        yield start


@pytest.fixture
def more_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def address_of(http: httpx.Client) -> tuple[str, int]:
    return http.base_url.host, http.base_url.port or 0


def ask_anew(http: httpx.Client) -> tuple[int, Any]:
    """Status and content of the weights, by a connection of its own."""
    with contextlib.closing(HTTPConnection(*address_of(http), timeout=60.0)) as line:
        line.request("GET", "/api/v1/weights")
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())


def rss_of(process: Any) -> float:
    """Megabytes of memory."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.usefixtures("more_files")
def test_a_flood_of_half_open_connections_changes_no_answer(process: Any, champion: Callable[..., str]):
    save_snapshot("until-june", "2021-06-30")
    champion("june")
    _, http = process("--fail-to-cash")
    expected = http.get("/weights").json()
    assert expected["fail_safe"] is None
    with contextlib.ExitStack() as stack:
        for number in range(FILES + 300):
            line = stack.enter_context(socket.create_connection(address_of(http), timeout=5.0))
            with contextlib.suppress(OSError):  # closed already, in favour of a later one
                line.sendall(b"GET /api/v1/weights HTTP/1.1\r\n" if number % 2 else b"")
        until = time.monotonic() + 3.0  # several looks at champion and prices
        asked = 0
        while asked <= 10 or time.monotonic() < until:
            assert ask_anew(http) == (200, expected)
            asked += 1
            time.sleep(0.02)


def test_a_request_has_to_arrive_in_time(process: Any, champion: Callable[..., str]):
    champion()
    _, http = process("--header-timeout", "0.5", "--body-timeout", "0.7")
    head = b"POST /api/v1/weights HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for begun in (b"", b"GET /api", b"\r\n" * 3, head + b"Content-Length: 1000\r\n\r\n{"):
        with socket.create_connection(address_of(http), timeout=60.0) as line:
            line.sendall(begun)
            began = time.monotonic()
            with contextlib.suppress(ConnectionResetError):
                while line.recv(1000):
                    pass
            assert time.monotonic() - began > 0.3, begun
    with socket.create_connection(address_of(http), timeout=60.0) as line:  # drop by drop, over 3.5 seconds
        answer = b""
        with contextlib.suppress(ConnectionError):
            for letter in b"GET /api/v1/weights HTTP/1.1\r\nHost: localhost\r\nX-Padding: ......\r\n\r\n":
                line.sendall(bytes([letter]))
                time.sleep(0.05)
            answer = line.recv(1000)
        assert answer == b""
    with contextlib.closing(HTTPConnection(*address_of(http), timeout=60.0)) as line:
        opened = None  # who asks in time stays connected
        for _ in range(2):
            line.request("GET", "/api/v1/weights")
            answer = line.getresponse()
            assert answer.status == 200 and answer.read()
            assert line.sock is not None and line.sock is (opened or line.sock)
            opened = line.sock
            time.sleep(0.8)


@pytest.mark.usefixtures("more_files")
def test_withheld_bodies_take_a_bounded_memory(process: Any, champion: Callable[..., str], registry: Registry):
    champion()
    _, secret = registry.create_key("desk", "read")
    served, http = process("--max-bodies", "32000000", headers={"X-API-Key": secret})
    before = rss_of(served)
    head = (
        "POST /api/v1/weights HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"X-API-Key: {secret}\r\nContent-Length: 7900000\r\n\r\n"
    )
    body = b" " * 7_800_000

    def withhold(line: socket.socket) -> None:
        with contextlib.suppress(OSError):
            line.sendall(head.encode() + body)

    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(socket.create_connection(address_of(http), timeout=20.0)) for _ in range(100)]
        senders = [threading.Thread(target=withhold, args=(line,)) for line in lines]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        peak = max(rss_of(served) for _ in range(20) if time.sleep(0.05) is None)
        assert http.get("/weights").status_code == 200
        held = [line for line in http.get("/metrics").text.splitlines() if "body_bytes " in line and line[0] != "#"]
        assert 0 < float(held[0].split()[1]) <= 32e6 / 4
        # Bytes in flight, once more while a chunk is copied, and 64 KiB in each connection.
        assert peak - before < 2 * 32 + 100 * 0.3, (before, peak)


def test_a_caller_with_many_requests_does_not_starve_another(
    process: Any, champion: Callable[..., str], registry: Registry
):
    frame = save_snapshot("until-june", "2021-07-01")
    champion("june")
    (_, greedy), (_, modest) = registry.create_key("greedy", "read"), registry.create_key("modest", "read")
    _, http = process()
    body = body_of(frame)
    others = itertools.count(1)
    stop = threading.Event()

    def ask(line: HTTPConnection, secret: str) -> int:
        # Other prices each time: what was decided before would take no turn.
        closes = [[*body["closes"][0][:-1], body["closes"][0][-1] * (1 + 1e-6 * next(others))], *body["closes"][1:]]
        content = json.dumps(body | {"closes": closes})
        line.request("POST", "/api/v1/weights", content, {"X-API-Key": secret, "Content-Type": "application/json"})
        answer = line.getresponse()
        answer.read()
        return answer.status

    def insist() -> None:
        with contextlib.closing(HTTPConnection(*address_of(http), timeout=60.0)) as line:
            while not stop.is_set():
                with contextlib.suppress(OSError, HTTPException):
                    if ask(line, greedy) == 429:
                        time.sleep(0.01)

    threads = [threading.Thread(target=insist) for _ in range(12)]
    for thread in threads:
        thread.start()
    try:
        with contextlib.closing(HTTPConnection(*address_of(http), timeout=60.0)) as line:
            codes = [ask(line, modest) for _ in range(10)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert codes.count(200) >= 9, codes
