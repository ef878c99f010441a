"""`demo`, with agents that hardly learn and a fortnight instead of a quarter."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.cli import demo
from portfolio_sdpo.portfolio import presets
from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.portfolio.presets import Preset


def test_ends_with_results_todays_weights_and_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    monkeypatch.setattr(demo, "END", "2019-01-16")
    usual = presets.PRESETS["default"]
    quick = {
        algo: AgentSettings(**{**dict(agent), "first": 2, "further": 1, "paths": 8, "episodes": 8})
        for algo, agent in usual.agents.items()
    }
    monkeypatch.setitem(presets.PRESETS, "default", Preset(**{**dict(usual), "agents": quick}))
    result = CliRunner().invoke(cli.build_app(), ["demo", "--jobs", "1"])
    assert result.exit_code == 0, result.output
    for text in ("SDPO (shared)", "PPO", "equal-weight", "maximum-return", "2019-01-16", "CASH"):
        assert text in result.stdout
    (report,) = tmp_path.glob("backtests/*/report.html")
    assert str(report) in result.stdout.replace("\n", "")
