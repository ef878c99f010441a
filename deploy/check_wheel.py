"""Build the wheel, and use it in a fresh environment of every Python that is given, with the packages of the lock.

    python deploy/check_wheel.py --python python3.11 --python python3.12 --python python3.13

In each: every package by its hash, then the wheel without the source beside it: `doctor`, a backtest and a retrain on
the bundled prices, the service and the dashboard, asked over loopback. Prints one line for each step; the exit code is
1 if one failed. `--keep FOLDER` keeps the environments there and uses those that it finds, since torch alone is large.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "deploy" / "requirements.lock"
PATIENCE = 600.0
"""Seconds for a door to answer."""
TINY = """
history = 60
paths = 8
first = 5
further = 1
limit = {horizon = 5, alpha = 0.2, bound = -0.3}
learner = {kind = "analytic", hidden = [4, 4]}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", action="append", metavar="COMMAND", help="an interpreter; may be repeated")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the environments stay")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        wheel = build_wheel(place)
        print(f"wheel: {wheel.name}", flush=True)
        for python in options.python or [sys.executable]:
            try:
                check(python, wheel, (options.keep or place).resolve(), place)
            except (subprocess.CalledProcessError, OSError, AssertionError) as error:
                print(f"{python}: FAILED: {describe(error)}", flush=True)
                failed = 1
    return failed


def build_wheel(place: Path) -> Path:
    """Of a copy of what is under version control, so that no left-over build gets into it."""
    source = place / "source"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(source)]
    subprocess.run(command, check=True)
    shutil.rmtree(source)
    (wheel,) = place.glob("portfolio_sdpo-*.whl")
    return wheel


def check(python: str, wheel: Path, environments: Path, place: Path) -> None:
    """All steps with one interpreter."""
    version = run(python, "-c", "import platform; print(platform.python_version())").stdout.strip()
    folder = environments / f"python-{version}"
    inside = str(folder / "bin" / "python")

    def step(name: str, do: Callable[[], Any]) -> None:
        began = time.monotonic()
        do()
        print(f"Python {version}: {name}: {time.monotonic() - began:.0f} s", flush=True)

    if not folder.exists():
        step("environment", lambda: run(python, "-m", "venv", str(folder)))
    pip = (inside, "-m", "pip", "--disable-pip-version-check")
    step("locked packages", lambda: run(*pip, "install", "--quiet", "--require-hashes", "-r", str(LOCK)))
    step("wheel", lambda: run(*pip, "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel)))
    step("consistent", lambda: run(*pip, "check"))

    home = place / f"home-{version}"
    home.mkdir()
    (home / "tiny.toml").write_text(TINY)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PORTFOLIO_SDPO_", "PYTHON"))}
    environment = kept | {"PORTFOLIO_SDPO_HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    program = str(folder / "bin" / "portfolio-sdpo")

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(program, *arguments, environment=environment, folder=home)

    where = "import portfolio_sdpo; print(portfolio_sdpo.__file__)"
    assert str(folder) in run(inside, "-c", where, folder=home).stdout, "another portfolio_sdpo is imported"
    step("doctor", lambda: call("doctor"))
    bundled = ("--algo", "none", "--strategies", "equal-weight,cash", "--start", "2021-07-01")
    step("backtest", lambda: call("backtest", *bundled))
    step("retrain", lambda: call("retrain", "--config", "tiny.toml", "--holdout", "20"))
    step("serve", lambda: ask_service(program, environment, home))
    step("dashboard", lambda: ask_dashboard(program, environment, home))


def ask_service(program: str, environment: dict[str, str], home: Path) -> None:
    with open_door(program, ["serve", "--max-age-sessions", "1000000"], environment, home) as address:
        weights = json.loads(fetch(f"{address}/api/v1/weights"))["weights"]
        assert abs(sum(weights.values()) - 1.0) < 1e-9, weights
        assert b"portfolio_sdpo_ready 1" in fetch(f"{address}/api/v1/metrics")


def ask_dashboard(program: str, environment: dict[str, str], home: Path) -> None:
    with open_door(program, ["dashboard", "--no-open"], environment, home) as address:
        assert fetch(f"{address}/_stcore/health") == b"ok"
        assert b'<div id="root">' in fetch(address)


@contextmanager
def open_door(program: str, command: list[str], environment: dict[str, str], home: Path) -> Iterator[str]:
    """A server on a free port of loopback; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [program, *command, "--port", str(port)], env=environment, cwd=home, stdout=log, stderr=log
        )
        try:
            address = f"http://127.0.0.1:{port}"
            fetch(f"{address}/{'api/v1/ready' if command[0] == 'serve' else '_stcore/health'}", process)
            yield address
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read()[-4000:])
            raise
        finally:
            process.terminate()
            process.wait(60)


def fetch(address: str, process: subprocess.Popen[Any] | None = None) -> bytes:
    """What is at an address; with a process, once it answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urlopen(Request(address), timeout=60) as answer:
                content: bytes = answer.read()
                return content
        except (URLError, OSError):
            if process is None or process.poll() is not None or time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def run(
    *command: str, environment: dict[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=folder)


def describe(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"{' '.join(map(str, error.cmd))} ended with {error.returncode}: {(error.stderr or '')[-2000:]}"
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
