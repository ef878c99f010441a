"""The service as a process of its own: killed under load, ended in order, and promoted under load."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from portfolio_sdpo.registry import Registry

from .helpers import ANY_AGE

Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """`portfolio-sdpo serve` on a free port."""
    started: list[subprocess.Popen[str]] = []

    def run(*options: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "portfolio_sdpo", "serve", "--port", "0", "--rate", "0"]
        process = subprocess.Popen(
            [*command, "--max-age-sessions", str(ANY_AGE), *options], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        base = process.stdout.readline().removeprefix("Serving ").strip()
        assert base.startswith("http://127.0.0.1:")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{base}/ready", timeout=30).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        return process, base

    yield run
    for process in started:
        process.kill()
        process.communicate()


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
    assert process.wait(30) in (0, -signal.SIGTERM)
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
def test_a_start_that_is_refused():
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "portfolio_sdpo", "serve", *options]
        return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)

    done = run("--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 1 and "API key" in done.stderr and "Traceback" not in done.stderr
    problem_free = run("--audit", "never")
    assert problem_free.returncode == 1 and "audit" in problem_free.stderr
