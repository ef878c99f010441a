"""`experiment list, run, show, figures` on Safety Gym, as a user types them."""

import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.envs.safety.tasks import TASKS
from portfolio_sdpo.experiments.catalogue import STUDIES
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment, WorldSettings
from portfolio_sdpo.experiments.safety.study import SafetyStudy
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl import ActorSettings, CriticSettings, PpoSettings, Problem, SdpoSettings

needs_suite = pytest.mark.skipif(
    importlib.util.find_spec("safety_gymnasium") is None, reason="Safety-Gymnasium is not installed"
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> SafetyExperiment:
    """An experiment that takes no time, known to the command line."""
    actor = ActorSettings(hidden=(8,), initial_std=0.1)
    critic = {"hidden": (8,), "epochs": 1, "minibatches": 1, "warm_up": 1}
    experiment = SafetyExperiment(
        name="safety-toy",
        title="A toy of PointGoal1",
        question="Does it run?",
        world=WorldSettings(task="PointGoal1", horizon=10),
        problem=Problem(constraints=(Constraint.from_spec("expectation of cost <= 2 discount=1"),)),
        algorithms={
            "ppo": PpoSettings(actor=actor, critic=CriticSettings(kind="mean", **critic), epochs=1),
            "sdpo": SdpoSettings(
                actor=actor, critic=CriticSettings(kind="quantile", atoms=8, dimension=8, **critic), epochs=1
            ),
        },
        iterations=1,
        lengths={"sdpo": 2},
        episodes=2,
        lane=1,
        seeds=(0,),
        tensorboard=False,
    )
    monkeypatch.setitem(STUDIES._items, "safety-toy", SafetyStudy(experiment))
    return experiment


def call(*arguments: str):
    return CliRunner().invoke(cli.build_app(), [*arguments])


def test_list_has_the_eighteen_tasks_in_one_entry():
    result = call("experiment", "list")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in ("safety-b-<task>", "safety-c", "safety-toy", "cmdp-cvar", "stocks"))
    assert result.stdout.count("safety-b-") == 3  # the paper's table, short runs, the suite's own worlds


def test_list_as_json_is_the_whole_declaration(toy: SafetyExperiment):
    declared = json.loads(call("experiment", "list", "--json").stdout)
    assert SafetyExperiment(**declared["safety-toy"]) == toy
    assert {f"safety-b-{task.lower()}" for task in TASKS} < declared.keys()


@needs_suite
def test_run_then_show_then_figures(home: Path):
    result = call("experiment", "run", "safety-toy", "--jobs", "1", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert "A toy of PointGoal1" in result.stdout and "SDPO" in result.stdout
    assert result.stderr == ""  # no terminal, no progress
    folder = home / "experiments" / "safety-toy"
    assert {path.name for path in folder.iterdir()} == {"ppo-0", "sdpo-0", "summary.json"}

    again = json.loads(call("experiment", "run", "safety-toy", "--jobs", "1", "--json").stdout)
    assert [outcome["status"] for outcome in again["outcomes"]] == ["skipped", "skipped"]
    shown = json.loads(call("experiment", "show", "safety-toy", "--json").stdout)
    assert shown == again["summary"] == json.loads((folder / "summary.json").read_text())
    assert (shown["equal_steps"], shown["algorithms"]["sdpo"]["end"]["steps"]) == (20, 40)

    files = call("experiment", "figures", "safety-toy").stdout.split()
    assert [Path(file).name for file in files] == [
        *("learning.png", "learning.svg"),
        *("equal-steps.png", "equal-steps.svg"),
    ]
    assert len(call("experiment", "figures", "safety-toy", "--algorithms", "ppo").stdout.split()) == 2
    only = json.loads(call("experiment", "show", "safety-toy", "--json", "--algorithms", "ppo").stdout)
    assert list(only["algorithms"]) == ["ppo"]

    records = home / "records"
    written = json.loads(call("experiment", "summarise", "safety-toy", "--out", str(records), "--json").stdout)
    assert [Path(path).name for path in written["records"]] == ["ppo-0.json", "sdpo-0.json"]
    kept = json.loads(call("experiment", "show", "safety-toy", "--from", str(records), "--json").stdout)
    assert kept["equal_steps"] == 20 and list(kept["algorithms"]) == ["ppo", "sdpo"]
    drawn = call("experiment", "figures", "safety-toy", "--from", str(records), "--algorithms", "ppo").stdout.split()
    assert [Path(path).parent for path in drawn] == 2 * [folder]

    refused = call("experiment", "run", "safety-toy", "--jobs", "1", "--iterations", "2", "--json")
    assert refused.exit_code == 1
    told = json.loads(refused.stderr)
    assert told["kind"] == "RunError" and told["error"].startswith("ppo-0: ") and "add --restart" in told["error"]
    assert [outcome["status"] for outcome in json.loads(refused.stdout)["outcomes"]] == ["failed", "skipped"]
    replaced = call("experiment", "run", "safety-toy", "--jobs", "1", "--iterations", "2", "--json", "--restart")
    assert json.loads(replaced.stdout)["summary"]["equal_steps"] == 40


@needs_suite
def test_runs_in_parallel():
    arguments = ("--jobs", "2", "--seeds", "4,5", "--algorithms", "ppo", "--json")
    result = call("experiment", "run", "safety-toy", *arguments)
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert [outcome["run"] for outcome in record["outcomes"]] == ["ppo-4", "ppo-5"]
    assert record["summary"]["algorithms"]["ppo"]["seeds"] == [4, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("run", "safety-d"),
            "there is no experiment 'safety-d' (did you mean 'safety-c'?); `portfolio-sdpo",
        ),
        (("show", "safety-d"), "there is no experiment 'safety-d'"),
        (("figures", "safety-d"), "there is no experiment 'safety-d'"),
        (("run", "safety-toy", "--algorithms", "dqn"), "algorithms: safety-toy has no 'dqn'; it has ppo, sdpo."),
        (
            ("show", "safety-toy", "--seeds", "x"),
            "--seeds: must be whole numbers separated by commas, such as 0,1,2 (got 'x').",
        ),
        (("run", "safety-toy", "--cmdp-seeds", "1"), "--cmdp-seeds: safety-toy is on Safety Gym and has no CMDP"),
        (("run", "cmdp-cvar", "--workers", "2"), "--workers: cmdp-cvar collects in the run's own process"),
        (("run", "stocks", "--workers", "2"), "--workers: stocks collects in the run's own process"),
        (("run", "safety-toy", "--iterations", "0"), "--iterations: must be at least 1 (got 0)."),
        (("show", "safety-toy"), "holds no such runs yet: start them with `portfolio-sdpo experiment run safety-toy`."),
        (("figures", "safety-toy"), "holds no such runs yet"),
        (("summarise", "safety-toy", "--out", "x"), "holds no such runs yet"),
        (("summarise", "cmdp-cvar", "--out", "x"), "cmdp-cvar has no records that stand for its runs; keep its folder"),
        (("overview",), "holds no finished run of any task yet"),
    ],
)
def test_mistakes_are_one_sentence(arguments, message):
    result = call("experiment", *arguments)
    assert result.exit_code == (1 if "holds no" in message else 2)
    assert message in result.stderr
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_negative_number_of_workers_is_a_usage_error():
    assert call("experiment", "run", "safety-toy", "--workers", "-1").exit_code == 2
