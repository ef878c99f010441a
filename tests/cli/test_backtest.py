"""`backtest`, as a user types it, on the bundled sample."""

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import Store

RANGE = ("--start", "2019-01-02", "--end", "2019-03-01")
QUICK = (*RANGE, "--algo", "none", "--strategies", "cash,equal-weight,inverse-volatility")
TOML = """
first = 4
further = 1
paths = 16
episodes = 16
history = 100
"""


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
    assert "decided at the close of 2019-03-01, to be traded at the" in result.stdout
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
    assert settings["limits"] == {"max_weight": 0.1, "max_turnover": 0.5, "groups": []}
    assert all(agent["settings"]["limits"] == settings["limits"] for agent in settings["agents"])
    assert settings["seeds"] == [3, 4] and settings["bootstrap"]["seed"] == 3 and settings["cash"] == 0.02
    cash, equal = record["records"][:2]
    assert cash["final_wealth"] > 1.0
    assert max(weight for asset, weight in equal["final_weights"].items() if asset != "CASH") < 0.12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--strategies", "magic"), "there is no 'magic'; there are cash, "),
        (("--snapshot", "nobody"), "There is no snapshot nobody"),
        (("--start", "soon"), "start: "),
        (("--start", "2019-03-01", "--end", "2019-01-02"), "start: must be before end"),
        (("--end", "2030-01-02"), "end: 2030-01-02 is outside the prices"),
        (("--cash", "gold"), "cash: must be zero, tbill or a yearly rate"),
        (("--alpha", "2"), "--alpha: "),
        (("--preset", "magic"), "there is no 'magic'; there are default, lstm, lstm-same-close, paper-stocks"),
        (("--config", "nowhere.toml"), "nowhere.toml cannot be read"),
        (("--fee-bps", "-3"), "--fee-bps: "),
        (("--seeds", "a"), "--seeds: must be whole numbers separated by commas"),
        (("--out", "."), "never overwritten"),
        (("--algo", "magic"), "there is no agent 'magic'"),
    ],
)
def test_mistakes_are_one_sentence(home: Path, arguments, message):
    more = [] if "--strategies" in arguments else ["--strategies", "cash"]
    more += [] if "--algo" in arguments else ["--algo", "none"]
    result = call(*more, *arguments)
    there = ("--snapshot", "--out")
    assert result.exit_code == (1 if arguments[0] in there or "outside the prices" in message else 2)
    assert message in result.stderr
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert not (home / "backtests").exists()


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "quick.toml"
    path.write_text(TOML)
    return str(path)


def test_agents_have_the_limit_and_the_fee_of_the_backtest_and_are_there_once_per_seed(home: Path, config: str):
    result = call(
        *("--algo", "sdpo,ppo", "--seeds", "3,4", "--fee-bps", "10", "--alpha", "0.1", "--bound", "-0.03"),
        *("--horizon", "5", "--start", "2019-01-02", "--end", "2019-01-15", "--strategies", "cash", "--json"),
        *("--preset", "lstm", "--config", config),
    )
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    keys = [(each["strategy"], each["seed"]) for each in record["records"]]
    assert keys == [
        *((name, seed) for label in ("sdpo", "ppo") for seed in (3, 4) for name in (label, f"{label} + shield")),
        ("cash", None),
    ]
    settings = record["config"]["settings"]
    limit = {"alpha": 0.1, "bound": -0.03, "horizon": 5}
    assert settings["limit"] == limit and settings["shield"] and settings["fee_bps"] == 10
    for agent, kind in zip(settings["agents"], ("analytic", "ppo"), strict=True):
        assert agent["settings"]["limit"] == limit and agent["settings"]["fee"] == 0.001
        assert agent["settings"]["learner"]["kind"] == kind and agent["settings"]["first"] == 4
    assert not list((home / "walks").iterdir())


def test_the_paper_s_protocol_is_a_preset(config: str):
    result = call(
        *("--preset", "paper-stocks", "--start", "2019-01-02", "--end", "2019-01-04", "--strategies", "cash", "--json"),
        *("--alpha", "0.01", "--config", config),
    )
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert [each["strategy"] for each in record["records"]] == ["sdpo", "ppo", "cash"]
    assert record["config"]["settings"]["fee_bps"] == 0
    sdpo = record["records"][0]
    assert sdpo["next"]["as_of"] == "2019-01-04" and sdpo["next"]["weights"]["CASH"] > 0.99


def save(name: str, frame: pd.DataFrame) -> None:
    prices = Prices(to_wide(frame), "close", "total-return")
    Store().save(name, clean(prices, calendar=None, carry=0), prices, Request(source="file", calendar=None))


@pytest.fixture
def snapshots() -> None:
    """50 sessions; and 300, of which one stock has the first 200 and another the rest, none those in between."""
    days = pd.bdate_range("2019-01-02", periods=300)
    save("short", pd.DataFrame({"A": 1.0, "B": range(1, 51)}, index=days[:50]))
    gone = pd.DataFrame({"A": 2.0, "B": 3.0}, index=days)
    gone.iloc[180:, 0] = None
    gone.iloc[:200, 1] = None
    save("gone", gone)


@pytest.mark.usefixtures("snapshots")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--snapshot", "short", "--start", "2019-01-10"), "a window of 15 sessions needs"),
        (("--snapshot", "short", "--horizon", "60", "--start", "2019-03-01"), "a window of 60 sessions needs"),
        (
            ("--snapshot", "short", "--scenarios", "window", "--horizon", "60", "--start", "2019-03-01"),
            "a window of 124",
        ),
        (("--horizon", "1100", "--start", "2019-01-02"), "history of 1008 sessions is shorter than the window of 1100"),
        (("--snapshot", "gone", "--start", "2019-10-15"), "no stock listed on 2019-10-15 has been so for"),
        (("--snapshot", "gone", "--start", "2019-09-12", "--end", "2019-09-20"), "no session between"),
        (("--snapshot", "short"), "50 sessions, and a backtest begins after 252"),
    ],
)
def test_prices_that_are_not_enough_are_one_sentence(home: Path, arguments, message):
    # Before the shield and benchmarks have something to say about it.
    result = call(*arguments, "--preset", "lstm", "--strategies", "cash", "--no-shield")
    assert result.exit_code == 1, result.output
    assert message in result.stderr and result.stderr.count("\n") == 1 and result.stdout == ""
    assert not any((home / name).exists() for name in ("backtests", "walks"))
