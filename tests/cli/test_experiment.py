"""`experiment list, run, show, figures`, as a user types them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.experiments.catalogue import STUDIES
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment, CmdpSettings
from portfolio_sdpo.experiments.cmdp.study import CmdpStudy
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl import ActorSettings, CriticSettings, PpoSettings, Problem, SdpoSettings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> CmdpExperiment:
    """An experiment that takes no time, known to the command line."""
    actor = ActorSettings(hidden=(), learning_rate=1e-2)
    critic = {"hidden": (8,), "epochs": 1, "minibatches": 1, "warm_up": 1}
    experiment = CmdpExperiment(
        name="tiny",
        title="A tiny noisy CMDP",
        question="Does it run?",
        cmdp=CmdpSettings(states=20, actions=3, noise_scale=1.0, horizon=10),
        problem=Problem(constraints=(Constraint.from_spec("variance of reward <= 3 eta=1 margin=0.3"),)),
        algorithms={
            "ppo": PpoSettings(actor=actor, critic=CriticSettings(kind="mean", **critic), epochs=1),
            "sdpo": SdpoSettings(
                actor=actor, critic=CriticSettings(kind="quantile", atoms=8, dimension=8, **critic), epochs=1
            ),
        },
        iterations=3,
        episodes=4,
        seeds=(0,),
        cmdp_seeds=(11,),
        fresh_episodes=20,
        tensorboard=False,
    )
    monkeypatch.setitem(STUDIES._items, "tiny", CmdpStudy(experiment))
    return experiment


def call(*arguments: str):
    return CliRunner().invoke(cli.build_app(), [*arguments])


def test_list_names_every_experiment():
    result = call("experiment", "list")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in ("cmdp-cvar-binding", "cmdp-variance-binding", "tiny"))


def test_list_as_json_is_the_whole_declaration(tiny: CmdpExperiment):
    declared = json.loads(call("experiment", "list", "--json").stdout)
    assert CmdpExperiment(**declared["tiny"]) == tiny


def test_run_then_show_then_figures(home: Path):
    result = call("experiment", "run", "tiny", "--jobs", "1")
    assert result.exit_code == 0
    assert "A tiny noisy CMDP" in result.stdout and "SDPO" in result.stdout
    assert result.stderr == ""  # no terminal, no progress
    folder = home / "experiments" / "tiny"
    assert {path.name for path in folder.iterdir()} >= {"ppo-11-0", "sdpo-11-0", "references-11.json", "summary.json"}

    again = json.loads(call("experiment", "run", "tiny", "--jobs", "1", "--json").stdout)
    assert [outcome["status"] for outcome in again["outcomes"]] == ["skipped", "skipped"]
    shown = json.loads(call("experiment", "show", "tiny", "--json").stdout)
    assert shown == again["summary"] == json.loads((folder / "summary.json").read_text())
    assert shown["algorithms"].keys() == {"ppo", "sdpo"}

    files = call("experiment", "figures", "tiny").stdout.split()
    assert len(files) == 4
    assert all(Path(file).stat().st_size > 1000 and Path(file).parent == folder for file in files)


def test_options_choose_runs(home: Path):
    result = call(
        *("experiment", "run", "tiny", "--jobs", "1", "--json"),
        *("--seeds", "0,1", "--cmdp-seeds", "7", "--algorithms", "ppo", "--iterations", "1"),
    )
    record = json.loads(result.stdout)
    assert [outcome["run"] for outcome in record["outcomes"]] == ["ppo-7-0", "ppo-7-1"]
    assert record["summary"]["algorithms"]["ppo"]["iterations"] == [1]
    shown = json.loads(call("experiment", "show", "tiny", "--json", "--seeds", "1", "--cmdp-seeds", "7").stdout)
    assert [run["seed"] for run in shown["runs"]] == [1]


def test_a_failed_run_is_a_sentence_and_a_non_zero_exit():
    assert call("experiment", "run", "tiny", "--jobs", "1", "--algorithms", "ppo").exit_code == 0
    arguments = ("experiment", "run", "tiny", "--jobs", "1", "--iterations", "2", "--json")
    result = call(*arguments)
    assert result.exit_code == 1
    told = json.loads(result.stderr)
    assert told["kind"] == "RunError" and told["error"].startswith("ppo-11-0: ") and "add --restart" in told["error"]
    record = json.loads(result.stdout)
    assert [outcome["status"] for outcome in record["outcomes"]] == ["failed", "finished"]
    # What the folder holds of the run that failed belongs to other settings and is not summed up.
    assert record["summary"]["algorithms"].keys() == {"sdpo"}
    assert call(*arguments, "--restart").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "nope"), "there is no experiment 'nope'; `portfolio-sdpo experiment list` names all of them."),
        (("show", "nope"), "there is no experiment 'nope'"),
        (("figures", "nope"), "there is no experiment 'nope'"),
        (
            ("run", "tiny", "--seeds", "1,x"),
            "--seeds: must be whole numbers separated by commas, such as 0,1,2 (got '1,x').",
        ),
        (("run", "tiny", "--seeds", ""), "--seeds: must be whole numbers"),
        (("run", "tiny", "--seeds", "-1"), "--seeds: must be at least one number, all different"),
        (("run", "tiny", "--cmdp-seeds", "3,3"), "--cmdp-seeds: must be at least one number"),
        (("run", "tiny", "--algorithms", "dqn"), "algorithms: tiny has no 'dqn'; it has ppo, sdpo."),
        (("run", "tiny", "--iterations", "0"), "--iterations: must be at least 1 (got 0)."),
        (("show", "tiny"), "holds no such runs yet: start them with `portfolio-sdpo experiment run tiny`."),
        (("figures", "tiny"), "holds no such runs yet"),
    ],
)
def test_mistakes_are_one_sentence(arguments, message):
    result = call("experiment", *arguments)
    assert result.exit_code == (1 if "holds no such runs" in message else 2)
    assert message in result.stderr
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_no_jobs_is_a_usage_error():
    assert call("experiment", "run", "tiny", "--jobs", "0").exit_code == 2
