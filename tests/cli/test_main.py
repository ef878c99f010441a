"""The frame of the command line: version, help without heavy imports, errors as one sentence."""

import importlib
import json
import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from portfolio_sdpo import __version__, cli
from portfolio_sdpo.errors import SettingsError

HEAVY = ("pydantic", "torch", "pandas", "matplotlib", "gymnasium", "scipy", "pyarrow")


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """The real application plus three commands that fail, each in its own way."""
    monkeypatch.delenv("PORTFOLIO_SDPO_DEBUG", raising=False)
    app = cli.build_app()
    group = typer.Typer()
    app.add_typer(group, name="fail")

    @group.command("ours")
    def ours() -> None:
        raise SettingsError("CVaR.alpha: must lie strictly between 0 and 1 (got 1.5).")

    @group.command("bug")
    def bug() -> None:
        raise ZeroDivisionError

    @group.command("interrupted")
    def interrupted() -> None:
        raise KeyboardInterrupt

    return app


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "portfolio_sdpo", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_version():
    result = run("--version")
    assert result.returncode == 0
    assert result.stdout == f"portfolio-sdpo {__version__}\n"


def test_help_loads_nothing_heavy():
    script = f"""
import json, sys
from portfolio_sdpo.cli import main
sys.argv = ["portfolio-sdpo", "--help"]
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code, [name for name in {HEAVY!r} if name in sys.modules]]), file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Usage: portfolio-sdpo" in result.stdout
    assert json.loads(result.stderr) == [0, []]


def test_every_command_has_help():
    """No command without a sentence that says what it does, at any depth."""

    def walk(command, path):
        assert command.help, f"`{' '.join(path)}` has no help"
        for name, child in getattr(command, "commands", {}).items():
            walk(child, [*path, name])

    for name, command in typer.main.get_command(cli.build_app()).commands.items():
        walk(command, [name])


def test_a_wrong_setting_is_one_sentence_and_exit_code_2(app: typer.Typer):
    result = CliRunner().invoke(app, ["fail", "ours"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "Error: CVaR.alpha: must lie strictly between 0 and 1 (got 1.5).\n"


def test_error_is_red_on_a_terminal(app: typer.Typer):
    result = CliRunner().invoke(app, ["fail", "ours"], color=True)
    assert result.stderr.startswith("\x1b[31mError:")


@pytest.mark.parametrize(
    ("arguments", "environment"), [(["--debug"], {}), ([], {"PORTFOLIO_SDPO_DEBUG": "1"})], ids=["option", "variable"]
)
def test_debug_lets_the_traceback_through(app: typer.Typer, arguments, environment):
    result = CliRunner().invoke(app, [*arguments, "fail", "ours"], env=environment)
    assert isinstance(result.exception, SettingsError)


def test_bug_is_not_dressed_up(app: typer.Typer):
    result = CliRunner().invoke(app, ["fail", "bug"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_interrupt_exits_with_130(app: typer.Typer):
    assert CliRunner().invoke(app, ["fail", "interrupted"]).exit_code == 130


def test_unknown_command_is_a_usage_error():
    result = run("no-such-command")
    assert result.returncode == 2
    assert "no-such-command" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_in_the_folder_is_a_command_group(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "newcomer.py").write_text(
        "import typer\n"
        "def register(app: typer.Typer) -> None:\n"
        "    app.command('newcomer')(lambda: typer.echo('registered'))\n"
    )
    (tmp_path / "_helper.py").write_text("raise AssertionError('helpers are not groups')\n")
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    try:
        result = CliRunner().invoke(cli.build_app(), ["newcomer"])
    finally:
        sys.modules.pop("portfolio_sdpo.cli.newcomer", None)
    assert result.stdout == "registered\n"
