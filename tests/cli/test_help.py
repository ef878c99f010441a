"""`--help` of every command: a summary in one line, examples that are right, `--json` wherever something is said."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.cli._examples import HEADING, WIDTH
from portfolio_sdpo.cli._frame import PROGRAM
from portfolio_sdpo.portfolio.presets import plan

ROOT = typer.main.get_command(cli.build_app())
SPEAKS_ELSEWHERE = {"serve", "dashboard"}
"""These answer over HTTP and in a browser; what they print is an address."""


def commands(group=ROOT, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands())


def shown(command) -> list[str]:
    heading, *lines = (command.epilog or "").splitlines()
    assert heading == HEADING
    return [line.strip() for line in lines]


def parse(line: str):
    """Down to the command that a line ends in, with its options parsed and nothing run."""
    program, *arguments = shlex.split(line)
    assert program == PROGRAM
    context, command, path = ROOT.make_context(PROGRAM, list(arguments)), ROOT, []
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        path.append(name)
        context = command.make_context(name, rest, parent=context)
    return " ".join(path), context


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_of_the_command_and_are_understood(name: str):
    lines = shown(COMMANDS[name])
    assert lines
    for line in lines:
        assert len(line) <= WIDTH, line
        assert parse(line)[0] == name
        assert line in " ".join(CliRunner().invoke(cli.build_app(), [*name.split(), "--help"]).stdout.split())


@pytest.mark.parametrize("name", [name for name, command in ROOT.commands.items() if hasattr(command, "commands")])
def test_groups_have_examples_too(name: str):
    page = " ".join(CliRunner().invoke(cli.build_app(), [name, "--help"]).stdout.split())
    for line in shown(ROOT.commands[name]):
        assert parse(line)[0].split()[0] == name and line in page


@pytest.mark.parametrize("name", ["", "data", *COMMANDS])
def test_switches_are_shown_without_a_value(name: str):
    """Else one would type `--json true`."""
    page = CliRunner().invoke(cli.build_app(), [*name.split(), "--help"]).stdout
    assert "--help" in page and "bool" not in page


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_stands_for_it_where_it_is_left_out(name: str):
    page = CliRunner().invoke(cli.build_app(), [*name.split(), "--help"], env={"COLUMNS": "400"}).stdout
    lines = [line for line in page.splitlines() if line.startswith("│")]
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "option" and not parameter.required and not parameter.is_flag:
            (line,) = [line for line in lines if f" {parameter.opts[0]} " in line]
            assert "[default: " in line, line


def test_defaults_of_the_preset_are_told_as_they_are():
    """They are written down twice, so that help need not import what knows them."""
    chosen = plan("default")
    told = {parameter.opts[0]: parameter.show_default for parameter in COMMANDS["backtest"].params}
    known = {
        "--alpha": f"{chosen.limit.alpha:g}",
        "--bound": f"{chosen.limit.bound:g}",
        "--horizon": f"{chosen.limit.horizon}",
        "--fee-bps": f"{chosen.fee_bps:g}",
        "--cash": chosen.cash,
        "--execution": chosen.execution,
        "--algo": ",".join(chosen.agents),
        "--shield-form": chosen.shield_form,
    }
    assert {option: told[option] for option in known} == {
        option: f"{value} in the preset default" for option, value in known.items()
    }


def test_an_example_that_is_wrong_would_be_noticed():
    with pytest.raises(Exception, match="No such option"):
        parse(f"{PROGRAM} demo --no-such-option")
    with pytest.raises(Exception, match="No such command"):
        parse(f"{PROGRAM} data fech")


def test_the_first_page_is_in_order_and_one_line_each():
    page = CliRunner().invoke(cli.build_app(), ["--help"]).stdout
    headings = [panel for panel in (*cli.PANELS, "More") if f"─ {panel} ─" in page]
    assert headings == list(cli.PANELS)  # every command has its place
    assert [page.index(f"─ {panel} ─") for panel in headings] == sorted(page.index(f"─ {p} ─") for p in headings)
    for name, command in ROOT.commands.items():
        assert len(command.get_short_help_str(200)) <= 64, name
    for line in shown(ROOT):
        parse(line)


@pytest.mark.parametrize("name", COMMANDS)
def test_json_everywhere(name: str):
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert ("--json" in options) != (name in SPEAKS_ELSEWHERE)


def test_quick_examples_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Those of prices, keys and models that need no network and no trained agent, as they are shown."""
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
    monkeypatch.chdir(tmp_path)
    first = [shown(COMMANDS["data fetch"])[0].replace("nine", "mine"), *shown(COMMANDS["data export"])]
    names = ("data import", "data show", "data list", "data verify", "data update", "keys create", "keys list")
    ran = 0
    for line in [*first, *(line for name in names for line in shown(COMMANDS[name])), *shown(COMMANDS["models list"])]:
        if "@c46e8a3a" in line or "folder" in line or "f.csv" in line:
            continue
        result = CliRunner().invoke(cli.build_app(), shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.output)
        if "--json" in line:
            json.loads(result.stdout)
        ran += 1
    assert ran >= 10
