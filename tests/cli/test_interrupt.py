"""Ctrl-C, sent to real processes as a terminal does it: work is saved, one sentence says so, and the command goes on.

Every command runs in a process group of its own, and the signal goes to the whole group, workers included.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.registry import Registry

from ..forks import Forked, Forks

Interrupted = Callable[[str, Callable[[], object]], str]
PROGRESS = re.compile(r" \(\d+% done(, about .+ left)?\)$")
PATIENCE = 300.0
"""Seconds; a machine may be busy."""
AGENT = """
history = 60
paths = 8
first = {first}
further = {further}
limit = {{horizon = 5, alpha = 0.2, bound = -0.3}}
learner = {{kind = "analytic", hidden = [4, 4], learning_rate = 0.1}}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PORTFOLIO_SDPO_PROGRESS", str(tmp_path / "progress.json"))
    for variable in ("PORTFOLIO_SDPO_REGISTRY", "PORTFOLIO_SDPO_DEBUG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def interrupted(forks: Forks) -> Iterator[Callable[[str, Callable[[], object]], str]]:
    """What a command says on stderr when it is interrupted once something is true."""
    started: list[Forked] = []

    def run(line: str, when: Callable[[], object]) -> str:
        process = forks.start(*shlex.split(line))
        started.append(process)
        until = time.monotonic() + PATIENCE
        while not when():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until, "it never came so far"
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, out + errors
        assert "Traceback" not in errors + out
        # A slow machine may have told the progress before.
        return "".join(each for each in errors.splitlines(keepends=True) if not PROGRESS.search(each))

    yield run
    for process in started:
        process.end()


def sentence(errors: str, line: str) -> str:
    """The only line of stderr, which ends in the command that goes on."""
    assert errors.startswith("Interrupted: ") and errors.count("\n") == 1, errors
    assert errors.endswith(f"; continue with `portfolio-sdpo {line}`.\n")
    return errors.removeprefix("Interrupted: ")


def share() -> float:
    try:
        return float(json.loads(Path("progress.json").read_bytes())[0])
    except FileNotFoundError:
        return 0.0


def finished(line: str) -> None:
    result = CliRunner().invoke(cli.build_app(), shlex.split(line))
    assert result.exit_code == 0, result.output


def test_train_goes_on_to_the_same_bytes(interrupted: Interrupted, home: Path):
    Path("agent.toml").write_text(AGENT.format(first=600, further=1))
    line = "train --config agent.toml --out interrupted"
    told = sentence(interrupted(line, lambda: 0.02 < share() < 0.9), line)
    updates = int(told.split(" of 600 updates are saved")[0])
    assert 20 <= updates < 600
    assert not Path("interrupted").exists() and len(list((home / "walks").iterdir())) == 1

    finished(line)
    finished(line.replace("interrupted", "straight"))
    first, second = (Path(name) for name in ("interrupted", "straight"))
    assert (first / "policy.safetensors").read_bytes() == (second / "policy.safetensors").read_bytes()
    assert (first / "metrics.parquet").read_bytes() == (second / "metrics.parquet").read_bytes()
    assert not list((home / "walks").iterdir())


def test_train_for_machines(interrupted: Interrupted, home: Path):
    Path("agent.toml").write_text(AGENT.format(first=10_000_000, further=1))
    told = json.loads(interrupted("train --config agent.toml --json", lambda: share() > 0))
    assert told["kind"] == "Interrupted" and "updates are saved; continue with `portfolio-sdpo train" in told["error"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_backtest_keeps_its_decisions(interrupted: Interrupted, home: Path, jobs: int):
    Path("agent.toml").write_text(AGENT.format(first=20, further=100))
    line = f"backtest --config agent.toml --algo sdpo --seeds 0,1 --strategies cash --start 2019-01-02 --jobs {jobs}"
    decisions = sentence(interrupted(line, lambda: share() > 0.02), line)
    number, _, rest = decisions.partition(" decision")
    assert int(number) >= 1 and "saved" in rest
    assert list((home / "walks").iterdir()) and not (home / "backtests").exists()


@pytest.mark.parametrize(("jobs", "number"), [(1, "one has"), (2, "2 have")])
def test_an_experiment_keeps_its_runs(interrupted: Interrupted, home: Path, jobs: int, number: str):
    runs = home / "experiments" / "cmdp-variance-binding"
    line = f"experiment run cmdp-variance-binding --algorithms ppo --seeds 0,1 --iterations 100000 --jobs {jobs}"
    told = sentence(interrupted(line, lambda: len(list(runs.glob("*/checkpoint-*.safetensors"))) >= jobs), line)
    assert told.startswith(f"0 runs of cmdp-variance-binding are done and {number} a checkpoint; ")
    with Registry.open() as registry:
        assert {run.status for run in registry.runs()} <= {"failed"}


def test_retrain_keeps_the_champion_and_the_walk(interrupted: Interrupted):
    Path("agent.toml").write_text(AGENT.format(first=10_000_000, further=1))
    line = "retrain --config agent.toml"

    def running() -> bool:
        with Registry.open() as registry:
            return bool(registry.runs(status="running"))

    told = sentence(interrupted(line, running), line)
    assert told.startswith("the champion is unchanged, and the training of the challenger so far is saved; ")
    with Registry.open() as registry:
        (run,) = registry.runs()
        assert (run.status, run.reason) == ("failed", "The retrain was interrupted.") and registry.champion() is None


def test_where_there_is_nothing_to_save_it_says_so(interrupted: Interrupted):
    """A database that takes the call and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0.01)
        heard: list[socket.socket] = []

        def asked() -> bool:
            with suppress(TimeoutError):
                heard.append(silent.accept()[0])
            return bool(heard)

        port = silent.getsockname()[1]
        errors = interrupted(f"keys list --registry postgresql://nobody@127.0.0.1:{port}/none", asked)
        for connection in heard:
            connection.close()
    assert errors == "Interrupted: no work had to be saved.\n"


def test_exit_code_where_generated_code_was_interrupted():
    """A module of dataclasses may be on its way in at that moment; Python itself would end by the signal."""
    Path("stopped.py").write_text(
        "from portfolio_sdpo import cli\n"
        "app = cli.build_app()\n"
        "@app.command()\n"
        "def stop():\n"
        "    exec('raise KeyboardInterrupt')\n"
        "app(['stop'])\n"
    )
    ended = subprocess.run([sys.executable, "-m", "stopped"], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "Interrupted: no work had to be saved.\n")
