"""Mistakes, faults of the machine and errors for machines: one sentence with the next step, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.errors import SettingsError

TOML = {
    "bad.toml": "first = \n",
    "typo.toml": "histroy = 504\n",
    "inner.toml": "[learner]\nlerning_rate = 1\n",
    "limit.toml": "[limit]\nbond = -0.1\n",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    for variable in ("PORTFOLIO_SDPO_REGISTRY", "PORTFOLIO_SDPO_DEBUG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    for name, content in TOML.items():
        (tmp_path / name).write_text(content)
    return tmp_path / "home"


NOT_TYPED = (
    "train --out typo.toml/agent",
    "data import nowhere.csv --name x",
    "data import typo.toml --name x --layout logn",
    "data show nien",
    "models show champion",
    "models list --registry typo.toml/registry.db",
)
"""Right as they were typed, but for what they find there."""


def call(line: str, code: int = 1):
    result = CliRunner().invoke(cli.build_app(), line.split())
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("train --algo sdop", "algo: there is no agent 'sdop' (did you mean 'sdpo'?)"),
        ("train --preset DEFUALT", "(did you mean 'default'?)"),
        ("train --config bad.toml", "bad.toml is not TOML"),
        ("train --config typo.toml", "histroy: there is no such field (did you mean 'history'?)"),
        ("train --preset lstm --config inner.toml", "there is no such field (did you mean 'learning_rate'?)"),
        ("train --config limit.toml", "bond: there is no such field (did you mean 'bound'?)"),
        ("train --out typo.toml/agent", "name another folder"),
        ("backtest --strategies equal-wieght", "(did you mean 'equal-weight'?)"),
        ("data fetch --source sampel --name x", "(did you mean 'sample'?)"),
        ("backtest --bound 0.05", "--bound: a loss is negative, and a share: give -0.05 for 5 % (got 0.05)."),
        ("retrain --bound 5", "--bound: a loss is negative"),
        ("data import typo.toml --name x --layout logn", "(did you mean 'long'?)"),
        ("data import nowhere.csv --name x", "there is no such file; check the path."),
        ("data show nien", "There is no snapshot nien"),
        ("experiment run cmdp-varaince", "(did you mean 'cmdp-variance'?)"),
        ("experiment run safety-b-pointgaol1", "(did you mean 'safety-b-pointgoal1'?)"),
        ("experiment run stocsk", "(did you mean 'stocks'?)"),
        ("experiment run cmdp-variance --algorithms sdop", "(did you mean 'sdpo'?)"),
        ("models show champion", "promote one with `models promote ID`"),
        ("models list --registry typo.toml/registry.db", "correct its permissions or name another place"),
        ("retrain --preset defualt", "(did you mean 'default'?)"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_next_step(line: str, told: str):
    result = call(line, 1 if line in NOT_TYPED else 2)
    assert told in result.stderr
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1 and result.stdout == ""


def test_a_wrong_ticker_gets_the_right_one():
    refused = call("data fetch --source sample --name x --tickers APPL")
    assert "There is no ticker APPL (did you mean 'AAPL'?)" in refused.stderr


@pytest.mark.parametrize(
    ("line", "code", "kind", "told"),
    [
        ("train --json --algo sdop", 2, "SettingsError", "did you mean 'sdpo'?"),
        ("data show nien --json", 1, "SnapshotError", "There is no snapshot nien"),
        ("models show xyz --json", 1, "NotRegisteredError", "xyz"),
        ("train --json --seeds minus", 2, "UsageError", "--seeds"),
        ("models promote --json", 2, "UsageError", "Missing"),
        ("bakctest --json", 2, "UsageError", "Did you mean 'backtest'?"),
    ],
)
def test_errors_for_machines_are_one_json_object_on_stderr(line: str, code: int, kind: str, told: str):
    result = call(line, code)
    error = json.loads(result.stderr)
    assert error.keys() == {"error", "kind"} and error["kind"] == kind and told in error["error"]
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "train --fee-bps -3",
            "--fee-bps: must be hundredths of a percent from 0 to below 10,000, such as 5 (got -3).",
        ),
        ("retrain --alpha 5", "--alpha: must be a share between 0 and 1, such as 0.05 for 5 % (got 5)."),
        ("train --bound 0.05", "--bound: a loss is negative, and a share: give -0.05 for 5 % (got 0.05)."),
        ("backtest --max-turnover -1", "--max-turnover: must be a share of the account from 0 on (got -1)."),
        ("backtest --strategies magic", "strategies: there is no 'magic'; there are cash, equal-weight"),
        ("orders", "There is no account: give its value with --account, its holdings with --holdings, or both."),
    ],
)
def test_a_wrong_command_line_is_told_in_its_own_words(line: str, told: str):
    result = call(line, 2)
    assert result.stderr.startswith(f"Error: {told}") and result.stderr.count("\n") == 1 and result.stdout == ""


@pytest.fixture
def app() -> typer.Typer:
    """Three faults that can strike any command."""
    app = cli.build_app()

    @app.command("full")
    def full(as_json: bool = typer.Option(False, "--json")) -> None:
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"x")

    @app.command("locked")
    def locked() -> None:
        Path("typo.toml/inside").write_text("x")

    @app.command("bare")
    def bare() -> None:
        raise ModuleNotFoundError("No module named 'streamlit'", name="streamlit")

    @app.command("broken")
    def broken() -> None:
        raise ModuleNotFoundError("No module named 'portfolio_sdpo.nothing'", name="portfolio_sdpo.nothing")

    return app


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("full", "No space left on device; make room and run the command again."),
        ("locked", "typo.toml/inside: Not a directory; move the file that is in the way, or name another place."),
        ("bare", "This needs the package streamlit: pip install 'portfolio_sdpo[dashboard]'."),
    ],
)
def test_faults_of_the_machine_are_told_wherever_they_strike(app: typer.Typer, command: str, told: str):
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 1 and result.stderr == f"Error: {told}\n"
    assert CliRunner().invoke(app, ["--debug", command]).exception is not None


def test_a_full_disk_for_machines(app: typer.Typer):
    assert json.loads(CliRunner().invoke(app, ["full", "--json"]).stderr)["kind"] == "OSError"


def test_a_module_of_ours_that_is_missing_is_a_bug(app: typer.Typer):
    assert isinstance(CliRunner().invoke(app, ["broken"]).exception, ModuleNotFoundError)


def test_an_old_python_is_told_before_anything_else():
    script = """
import sys
sys.version_info = (3, 9, 18)
sys.modules["typer"] = None  # whatever is imported first must not hide it
import portfolio_sdpo.cli
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("Error: portfolio_sdpo needs Python 3.11 or newer")
    assert result.stderr.count("\n") == 1


def test_stdout_can_be_closed_early():
    """`portfolio-sdpo ... | head -1` is no error to talk about."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "portfolio_sdpo", "keys", "list", "--json"]
    process = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert "Traceback" not in process.stderr


def test_an_error_of_ours_names_its_class():
    assert json.loads(call("retrain --json --preset magic", 2).stderr)["kind"] == SettingsError.__name__
