"""`retrain`, as cron runs it: exit codes and one sentence."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.retrain_lock import hold_retrain_lock

TINY = """
history = 60
paths = 8
first = {first}
further = 2
limit = {{horizon = 5, alpha = 0.2, bound = -0.3}}
learner = {{kind = "analytic", hidden = [4, 4], learning_rate = 0.1}}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
    return tmp_path / "home"


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY.format(first=6))
    return str(path)


def call(*arguments: str, code: int = 0):
    result = CliRunner().invoke(cli.build_app(), ["retrain", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_exit_codes(config: str):
    done = call("--config", config, "--holdout", "20")
    assert done.stdout.startswith("Promoted: ") and done.stdout.count("\n") == 1
    again = json.loads(call("--json", "--holdout", "20").stdout)
    assert again["outcome"] == "promoted" and again["new"] is False and again["model_id"] == again["champion_id"]
    # Limits from options count before those of the file. Nothing but cash keeps within nothing.
    strict = call("--config", config, "--holdout", "20", "--bound", "-0.000001", "--fee-bps", "9000", code=3)
    assert strict.stdout.startswith("Kept: ") and "the limit of −0.0001\xa0%" in strict.stdout
    failed = call("--snapshot", "nowhere", code=1)
    assert "Error: " in failed.stderr and "nowhere" in failed.stderr
    with Registry.open() as registry:
        assert [run.status for run in registry.runs()] == ["failed", "done", "done"]
        with hold_retrain_lock(registry.database):
            busy = call("--holdout", "20", code=4)
        assert "Another retrain of this registry is running (process" in busy.stderr
    for option in ("0 promoted, 3 kept, 4 another", "--update", "--holdout"):
        assert option in " ".join(call("--help").stdout.split())


def hear_interrupts() -> None:
    """Also where the tests themselves run in the background, whose processes ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_in_order(tmp_path: Path, home: Path, sent: signal.Signals):
    """The run is noted as interrupted, the lock is free, and nobody was promoted."""
    endless = tmp_path / "long.toml"
    endless.write_text(TINY.format(first=10_000_000))
    command = [sys.executable, "-m", "portfolio_sdpo", "retrain", "--config", str(endless)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts
    )
    try:
        with Registry.open() as registry:
            while not registry.runs(status="running"):
                assert process.poll() is None, process.communicate()
                time.sleep(0.1)
            process.send_signal(sent)
            process.communicate(timeout=120)
            # Python ends itself by the signal where the interrupt comes too late for the command line: 130 to a shell.
            assert process.returncode in ((143,) if sent == signal.SIGTERM else (130, -signal.SIGINT))
            (run,) = registry.runs()
            assert (run.status, run.reason) == (
                "failed",
                "The retrain was interrupted.",
            ) and registry.champion() is None
            with hold_retrain_lock(registry.database):
                pass
    finally:
        process.kill()
        process.communicate()
