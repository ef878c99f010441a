"""`experiment run, show, figures stocks`, as a user types them, on a week of the bundled sample."""

import json
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.experiments.catalogue import STUDIES
from portfolio_sdpo.experiments.stocks.declared import STOCKS, StocksExperiment
from portfolio_sdpo.experiments.stocks.study import StocksStudy


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> StocksExperiment:
    """The declared experiment with a week, small networks and windows of three sessions."""

    def small(agent):
        settings = agent.model_dump()
        settings |= {"limit": {**settings["limit"], "horizon": 3}, "episodes": 4}
        settings["learner"]["actor"]["hidden"] = settings["learner"]["critic"]["hidden"] = (4, 4)
        settings["learner"]["critic"] |= {"atoms": 4, "dimension": 4}
        return settings

    changes = {
        "algorithms": {label: small(agent) for label, agent in STOCKS.algorithms.items()},
        "strategies": ("cash", "equal-weight"),
        "limit": {**STOCKS.limit.model_dump(), "horizon": 3},
        "end": date(2019, 1, 9),
    }
    experiment = StocksExperiment(**{**dict(STOCKS), **changes})
    monkeypatch.setitem(STUDIES._items, "stocks", StocksStudy(experiment))
    return experiment


def call(*arguments: str):
    return CliRunner().invoke(cli.build_app(), ["experiment", *arguments])


QUICK = ("run", "stocks", "--seeds", "0,1", "--algorithms", "ppo,sdpo-0.1", "--iterations", "2", "--jobs", "1")


def test_run_show_figures_and_run_again(home: Path):
    result = call(*QUICK)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # no terminal, no progress
    for word in (
        "2019-01-02 to 2019-01-09",
        "sdpo-0.1",
        "equal-weight",
        "All SDPO agents end with more wealth than PPO.",
        "seeds",
    ):
        assert word in result.stdout
    folder = home / "experiments" / "stocks"
    assert {path.name for path in folder.iterdir()} == {"benchmarks", "ppo-0", "sdpo-0.1-0", "summary.json"}
    assert not list((home / "walks").iterdir())

    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/*")}
    again = call(*QUICK, "--json")
    assert again.exit_code == 0, again.output
    record = json.loads(again.stdout)
    assert [(each["run"], each["status"]) for each in record["outcomes"]] == [
        ("benchmarks", "skipped"),
        ("ppo", "skipped"),
        ("sdpo-0.1", "skipped"),
    ]
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/*")} == before
    summary = record["summary"]
    assert list(summary["labels"]) == ["ppo", "sdpo-0.1", "cash", "equal-weight"]
    sdpo = summary["labels"]["sdpo-0.1"]
    assert sdpo["seeds"] == [0, 1] and sdpo["updates"] == 2 and sdpo["limit"]["alpha"] == 0.1
    # The start has as much cash as the bound on the logits allows: 1 / (1 + 9 e^(−6)).
    assert sdpo["final_wealth"]["mean"] == pytest.approx(1.0, abs=0.01)
    assert sdpo["cash"]["mean"] == pytest.approx(0.978, abs=0.005)
    assert sdpo["to_ppo"]["low"] <= sdpo["to_ppo"]["mean"] <= sdpo["to_ppo"]["high"]
    assert [claim["key"] for claim in summary["claims"]] == [f"D{number}" for number in range(1, 8)]

    # Declared is one update a day, and `show` says so.
    shown = json.loads(call("show", "stocks", "--json").stdout)
    assert shown == {**summary, "outdated": ["ppo", "sdpo-0.1"]}
    one = json.loads(call("show", "stocks", "--json", "--seeds", "1", "--algorithms", "ppo").stdout)
    assert [(each["strategy"], each["seed"]) for each in one["walks"] if each["seed"] is not None] == [("ppo", 1)]
    assert "made with settings other than those declared now: ppo, sdpo-0.1" in call("show", "stocks").stdout

    files = call("figures", "stocks").stdout.split()
    assert [Path(file).name for file in files] == ["stocks.png", "stocks.svg"]
    assert all(Path(file).stat().st_size > 1000 and Path(file).parent == folder for file in files)

    other = call("run", "stocks", "--seeds", "0", "--algorithms", "ppo", "--iterations", "3", "--jobs", "1", "--json")
    assert other.exit_code == 1
    told = json.loads(other.stderr)
    assert told["error"].startswith("ppo: ") and "add --restart" in told["error"]
    assert json.loads(other.stdout)["summary"] is None
    replaced = call(
        *("run", "stocks", "--seeds", "0", "--algorithms", "ppo", "--iterations", "3", "--jobs", "1", "--json"),
        "--restart",
    )
    assert replaced.exit_code == 0, replaced.output
    assert json.loads(replaced.stdout)["summary"]["labels"]["ppo"]["updates"] == 3


def test_the_list_has_it(tiny: StocksExperiment):
    assert "stocks" in call("list").stdout
    assert StocksExperiment(**json.loads(call("list", "--json").stdout)["stocks"]) == tiny


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "stock"), "there is no experiment 'stock' (did you mean 'stocks'?); `portfolio-sdpo experiment list`"),
        (("run", "stocks", "--cmdp-seeds", "1"), "--cmdp-seeds: stocks is on stocks and has no CMDP; leave it out."),
        (("run", "stocks", "--seeds", "a"), "--seeds: must be whole numbers separated by commas"),
        (("run", "stocks", "--seeds", "3,3"), "seeds: must be at least one number, all different, none negative"),
        (("run", "stocks", "--algorithms", "dqn"), "algorithms: stocks has no 'dqn'; it has ppo, sdpo-0.01, "),
        (("run", "stocks", "--iterations", "0"), "--iterations: must be at least 1 (got 0)."),
        (("show", "stocks"), "holds no such runs yet: start them with `portfolio-sdpo experiment run stocks`."),
        (("show", "stocks", "--algorithms", "dqn"), "stocks has no 'dqn'"),
        (("figures", "stocks"), "holds no such runs yet"),
    ],
)
def test_mistakes_are_one_sentence(home: Path, arguments, message):
    result = call(*arguments)
    assert result.exit_code == (1 if "holds no such runs" in message else 2)
    assert message in result.stderr
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    assert result.stdout == "" and not (home / "experiments").exists()
