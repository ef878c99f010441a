"""The service as a process of its own: killed under load, ended in order, and promoted under load."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from portfolio_sdpo.registry import Registry

from .helpers import start_serve

Start = Callable[..., tuple[Any, str]]


@pytest.fixture
def start(forks: Any) -> Iterator[Start]:
    """`portfolio-sdpo serve` on a free port."""
    with contextlib.ExitStack() as stack:

        def run(*options: str) -> tuple[Any, str]:
            process, base = start_serve(forks, *options)
            stack.callback(process.end)
            return process, base

        yield run


class Load:
    """Clients that ask for weights until told to stop; what they got, by request id."""

    def __init__(self, base: str, clients: int) -> None:
        self.base = base
        self.answers: dict[str, httpx.Response] = {}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(clients)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        with httpx.Client(timeout=30) as http:
            for turn in range(10**9):
                if self._stop.is_set():
                    return
                name = f"c{number}.{turn}"
                try:
                    self.answers[name] = http.get(f"{self.base}/weights", headers={"X-Request-ID": name})
                except httpx.TransportError:
                    return  # killed


def rows_of(registry: Registry) -> dict[str, Any]:
    return {row.entry.request_id: row.entry for row in registry.audit(limit=10**6)}


def test_sigkill_under_load_and_sigterm(start: Start, champion: Callable[..., str], registry: Registry):
    model_id = champion()
    process, base = start("--audit", "strict")
    load = Load(base, 4)
    while len(load.answers) < 100:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    load.end()
    assert all(answer.status_code == 200 for answer in load.answers.values())
    rows = rows_of(registry)
    # Strict: whatever was heard is noted.
    for name, answer in load.answers.items():
        assert rows[name].response_hash == hashlib.sha256(answer.content).hexdigest()
    assert registry.verify_audit().sound and registry.champion().model_id == model_id  # type: ignore[union-attr]

    process, base = start()
    load = Load(base, 4)
    while len(load.answers) < 100:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) in (0, -signal.SIGTERM)
    load.end()
    # Batched, ended in order: whatever was heard is noted as well.
    heard = {name for name, answer in load.answers.items() if answer.status_code == 200}
    assert heard <= rows_of(registry).keys()
    assert registry.verify_audit().sound


def test_champions_promoted_under_load_are_served_whole(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry
):
    ids = [champion("a"), champion("b")]
    running = serve(lease=60.0)
    running.settle()
    load = Load(str(running.http.base_url).rstrip("/"), 6)
    expected: dict[str, Any] = {}
    try:
        for turn in range(12):
            chosen = ids[turn % 2]
            number = registry.promote(chosen, f"turn {turn}", by="test").seq
            while True:
                answer = running.http.get("/weights")
                assert answer.status_code == 200, answer.text
                told = answer.json()
                if told["model"]["promotion"] >= number:
                    break
            expected.setdefault(chosen, told["weights"])
    finally:
        load.end()
    assert expected[ids[0]] != expected[ids[1]]
    seen = set()
    for answer in load.answers.values():
        content = answer.json()
        assert answer.status_code == 200
        assert content["weights"] == expected[content["model"]["id"]]  # wholly one model's
        assert answer.headers["etag"] == f'"{hashlib.sha256(answer.content).hexdigest()}"'
        seen.add(content["model"]["promotion"])
    assert len(seen) > 3


@pytest.mark.usefixtures("registry")
def test_a_start_that_is_refused(forks: Any):
    def run(*options: str, code: int = 2) -> str:
        process = forks.start("serve", *options)
        _, errors = process.communicate()
        process.end()
        assert process.returncode == code and "Traceback" not in errors
        return errors

    assert "API key" in run("--host", "0.0.0.0", "--port", "0")
    assert "audit" in run("--audit", "never")
    assert "log-format: must be text or json" in run("--log-format", "xml")
    assert "no model" in run("--shadow", "20990101-00000000", code=1).lower()
