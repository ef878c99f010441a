"""`train`, as a user types it, on the bundled sample."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.portfolio.market import load_latest
from portfolio_sdpo.portfolio.store import load_agent


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def quick(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "quick.toml"
    path.write_text("first = 5\npaths = 16\n[learner]\nhidden = [8, 8]\nlearning_rate = 0.1\n")
    return "--preset", "lstm", "--config", str(path)


def call(*arguments: str):
    return CliRunner().invoke(cli.build_app(), ["train", *arguments])


def test_weights_before_and_after_the_shield_and_the_promise(home: Path, quick):
    result = call(*quick)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # no terminal, no progress
    for word in (
        "decided at the close of 2021-10-14, to be traded at",
        "its own",
        "shielded",
        "limit −5.0\xa0%",
        "promised",
        "CASH",
    ):
        assert word in result.stdout
    folder = Path(result.stdout.splitlines()[-1].removeprefix("Agent").strip())
    assert folder.parent == home / "agents"


def test_json_is_what_the_agent_decides(tmp_path: Path, quick):
    out = tmp_path / "mine"
    result = call(*quick, "--json", "--out", str(out), "--seeds", "3", "--alpha", "0.1", "--fee-bps", "0")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["folder"] == str(out) and record["seed"] == 3
    assert record["settings"]["limit"]["alpha"] == 0.1 and record["settings"]["fee"] == 0.0
    market, _ = load_latest(None, "zero")
    weights = load_agent(out).decide(market, np.eye(len(market.assets))[0])
    assert record["today"]["weights"] == {a: w for a, w in zip(market.assets, weights, strict=True) if w > 0}


def test_caps_are_part_of_the_agent(tmp_path: Path):
    groups = tmp_path / "groups.csv"
    groups.write_text("ticker,group,max_weight\nAAPL,tech,0.1\nMSFT,tech,\nCSCO,tech,\n")
    caps = ("--max-weight", "0.08", "--max-turnover", "0.5", "--groups", str(groups))
    result = call("--json", "--out", str(tmp_path / "mine"), *caps)
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    stored = {"name": "tech", "tickers": ["AAPL", "MSFT", "CSCO"], "max_weight": 0.1}
    assert record["settings"]["limits"] == {"max_weight": 0.08, "max_turnover": 0.5, "groups": [stored]}
    today = record["today"]["weights"]
    assert max(weight for name, weight in today.items() if name != "CASH") == 0.08
    assert sum(today[name] for name in stored["tickers"]) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--algo", "magic"), "there is no agent 'magic' in the preset default"),
        (("--algo", "none"), "--algo: there is nothing to train"),
        (("--snapshot", "nobody"), "There is no snapshot nobody"),
        (("--cash", "gold"), "cash: must be zero, tbill or a yearly rate"),
        (("--max-weight", "25"), "--max-weight: must be a share above 0 and at most 1, such as 0.25 (got 25)"),
        (("--groups", "nowhere.csv"), "groups: there is no file nowhere.csv"),
        (("--out", "."), "never overwritten"),
        (("--preset", "lstm", "--horizon", "1100"), "a history of 1008 sessions is shorter than the window of 1100"),
        (
            ("--preset", "lstm", "--horizon", "5000", "--scenarios", "window"),
            "a window of 10004 sessions needs 10005 closes",
        ),
        (("--scenarios", "window"), "scenarios: it says how a policy is trained"),
    ],
)
def test_mistakes_are_one_sentence(home: Path, arguments, message):
    result = call(*arguments)
    # What is there, prices or a folder, is another matter than what was typed.
    assert result.exit_code == (1 if arguments[0] in ("--snapshot", "--out") or "window of" in message else 2)
    assert message in result.stderr
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    assert result.stdout == "" and not (home / "agents").exists()
