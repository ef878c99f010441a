"""`demo`, with a control that hardly learns, from the crash of 2020 on."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.cli import demo
from portfolio_sdpo.portfolio import presets
from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.portfolio.presets import Preset


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    monkeypatch.setattr(demo, "START", "2020-02-18")
    monkeypatch.setattr(demo, "END", "2020-03-24")
    monkeypatch.setattr(demo, "RIVALS", ("equal-weight", "inverse-volatility", "cash"))
    usual = presets.PRESETS["default"]
    control = {**dict(usual.agents["ppo"]), "first": 2, "further": 1, "paths": 8, "episodes": 8}
    agents = {"sdpo": usual.agents["sdpo"], "ppo": AgentSettings(**control)}
    monkeypatch.setitem(presets.PRESETS, "default", Preset(**{**dict(usual), "agents": agents}))


def test_ends_with_results_the_report_and_what_to_do_next(tmp_path: Path):
    result = CliRunner().invoke(cli.build_app(), ["demo", "--jobs", "1"])
    assert result.exit_code == 0, result.output
    for text in ("SDPO (shared) + shield", "PPO", "equal-weight + shield", "2020-03-24", "CASH"):
        assert text in result.stdout
    (report,) = tmp_path.glob("backtests/*/report.html")
    assert str(report) in result.stdout.replace("\n", "")
    steps = result.stdout.partition("\nNext\n")[2].strip().splitlines()
    assert len(steps) == len(demo.NEXT) and steps[0].split("#")[0].strip() == "portfolio-sdpo dashboard"
    for step in steps:  # what it says can be typed
        program, *arguments = shlex.split(step, comments=True)
        assert program == "portfolio-sdpo" and "--help" not in arguments
        assert CliRunner().invoke(cli.build_app(), [*arguments, "--help"]).exit_code == 0


def test_the_shield_held_the_crash_and_the_bare_rival_did_not():
    """On the figures that the picture in the README is drawn from: one JSON object and nothing else."""
    result = CliRunner().invoke(cli.build_app(), ["demo", "--jobs", "1", "--json"])
    records = {record["strategy"]: record for record in json.loads(result.stdout)["records"]}
    assert records["equal-weight"]["max_drawdown"] < -0.3
    for name in ("sdpo + shield", "equal-weight + shield"):
        assert records[name]["max_drawdown"] > -0.1 and records[name]["cvar_window"] >= -0.055
