"""The commands of "What people do next", as the README has them, one after the other in a fresh home."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from portfolio_sdpo.prices.samples import load_sample

ROOT = Path(__file__).parents[2]
KEPT = 3
"""How `retrain` ends when the champion stays."""


def commands() -> list[str]:
    """Indented lines of the section without their comments, in order."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    section = page.partition("## What people do next")[2].partition("\n## ")[0]
    section = re.sub(r"(?ms)^```.*?^```$", "", section)
    return [line.partition("  #")[0].strip() for line in re.findall(r"(?m)^ {4}(\S.*)$", section)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    # A year before the first decision that the README asks for, and some months from there.
    load_sample("sample").frame.loc["2017-11":"2019-04"].rename_axis("Date").to_csv(tmp_path / "prices.csv")
    return tmp_path


@pytest.fixture
def environment(place: Path) -> dict[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PORTFOLIO_SDPO_")}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PORTFOLIO_SDPO_HOME": str(place / "home"),
        # Other work of this machine may have 8000.
        "PORTFOLIO_SDPO_SERVE_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }


@contextmanager
def staying(command: str, place: Path, environment: dict[str, str]) -> Iterator[None]:
    """A command that runs until it is told to end."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=place,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def wait_for(address: str) -> None:
    deadline = time.monotonic() + 180.0
    while True:
        with suppress(httpx.TransportError):
            if httpx.get(address).status_code == 200:
                return
        assert time.monotonic() < deadline, f"{address} does not answer"
        time.sleep(0.2)


def test_they_run_in_order(place: Path, environment: dict[str, str]):
    ran: list[str] = []

    def run(line: str) -> str:
        done = subprocess.run(["bash", "-c", line], cwd=place, env=environment, capture_output=True, text=True)
        allowed = (0, KEPT) if "retrain" in line else (0,)
        assert done.returncode in allowed, f"{line}: {done.stdout} {done.stderr}"
        ran.append(line)
        return done.stdout

    port = environment["PORTFOLIO_SDPO_SERVE_PORT"]
    lines = commands()
    assert len(lines) == 9
    serve, ask, order = lines[-3:]
    for line in lines[:-3]:
        if "yfinance" in line:
            continue  # the only one that needs a network; its source is tested against a local server
        if line == "portfolio-sdpo dashboard":
            with staying(f"{line} --no-open --port {int(port)}", place, environment):
                wait_for(f"http://127.0.0.1:{port}/_stcore/health")
            ran.append(line)
        else:
            run(line)
    assert serve.endswith(" &")
    with staying(serve.removesuffix(" &"), place, environment):
        answer: dict[str, Any] = json.loads(run(ask.replace("localhost:8000", f"localhost:{port}")))
        assert sum(answer["weights"].values()) == pytest.approx(1.0)
        assert "To be traded: " in run(order)
    assert len(ran) == len(lines) - 2  # without the one that needs a network, and the service
