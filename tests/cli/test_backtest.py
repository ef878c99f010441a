"""`backtest`, as a user types it, on the bundled sample."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli

RANGE = ("--start", "2019-01-02", "--end", "2019-03-01")
QUICK = (*RANGE, "--strategies", "cash,equal-weight,inverse-volatility")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    return tmp_path


def call(*arguments: str):
    return CliRunner().invoke(cli.build_app(), ["backtest", *arguments])


def test_a_table_the_weights_and_the_path_of_the_report(home: Path):
    result = call(*QUICK, "--fee-bps", "5")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # no terminal, no progress
    for word in ("2019-01-02 to 2019-03-01, 40 sessions", "inverse-volatility", "Sharpe", "CVaR 15", "AAPL", "✓"):
        assert word in result.stdout
    assert "…" not in result.stdout  # everything fits
    report = Path(result.stdout.splitlines()[-1].removeprefix("Report").strip())
    assert report.parent.parent == home / "backtests"
    assert report.read_text().startswith("<!doctype html>")


def test_json_is_the_record(tmp_path: Path):
    out = tmp_path / "mine"
    result = call(
        *(*QUICK, "--json", "--out", str(out), "--cash", "0.02", "--alpha", "0.1", "--bound", "-0.03"),
        *("--horizon", "5", "--seeds", "3,4", "--max-weight", "0.1", "--max-turnover", "0.5"),
    )
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["folder"] == str(out)
    assert record["records"] == json.loads((out / "metrics.json").read_text())["records"]
    settings = record["config"]["settings"]
    assert settings["limit"] == {"alpha": 0.1, "bound": -0.03, "horizon": 5}
    assert settings["limits"] == {"max_weight": 0.1, "max_turnover": 0.5}
    assert settings["seeds"] == [3, 4] and settings["bootstrap"]["seed"] == 3 and settings["cash"] == 0.02
    cash, equal = record["records"][:2]
    assert cash["final_wealth"] > 1.0
    assert max(weight for asset, weight in equal["final_weights"].items() if asset != "CASH") < 0.12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--strategies", "magic"), "there is no 'magic'; there are cash, "),
        (("--snapshot", "nobody"), "There is no snapshot nobody"),
        (("--start", "soon"), "BacktestSettings.start: "),
        (("--start", "2019-03-01", "--end", "2019-01-02"), "start: must be before end"),
        (("--end", "2030-01-02"), "end: 2030-01-02 is outside the prices"),
        (("--cash", "gold"), "BacktestSettings.cash: must be zero, tbill or a yearly rate"),
        (("--alpha", "2"), "BacktestSettings.limit.alpha: "),
        (("--fee-bps", "-3"), "BacktestSettings.fee_bps: "),
        (("--seeds", "a"), "--seeds: must be whole numbers with commas between them"),
        (("--out", "."), "never overwritten"),
        (("--algo", "magic"), "there is no agent 'magic'"),
    ],
)
def test_mistakes_are_one_sentence(home: Path, arguments, message):
    result = call("--strategies", "cash", *arguments) if "--strategies" not in arguments else call(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert not (home / "backtests").exists()


def test_an_agent_has_the_limit_and_the_fee_of_the_backtest_and_is_there_once_per_seed():
    from portfolio_sdpo.backtest.run import BacktestSettings
    from portfolio_sdpo.cli.backtest import _with_agents

    given = BacktestSettings(seeds=(3, 4), fee_bps=5, limit={"alpha": 0.1, "bound": -0.03, "horizon": 10})
    settings, agents = _with_agents(given, "sdpo")
    assert [(agent.name, agent.seed) for agent in agents] == [("sdpo", 3), ("sdpo", 4)]
    assert all(agent.settings.limit == given.limit and agent.settings.fee == 0.0005 for agent in agents)
    assert settings.agents[0].settings["limit"] == {"alpha": 0.1, "bound": -0.03, "horizon": 10}
