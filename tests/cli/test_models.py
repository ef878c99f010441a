"""`models`, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.portfolio.store import train_agent
from portfolio_sdpo.registry import AuditEntry, Registry

QUICK = {"history": 60, "paths": 8, "first": 2, "learner": {"kind": "analytic", "hidden": (4, 4), "learning_rate": 0.1}}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("agents")
    changes = [{"label": "one"}, {"label": "two", "seed": 1}]
    return [
        train_agent(AgentSettings(**QUICK, shrink=0.5 * number), folder=root / str(number), **change).folder
        for number, change in enumerate(changes)
    ]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
    return tmp_path / "home"


@pytest.fixture
def ids(folders: list[Path]) -> list[str]:
    return [record("add", str(folder))["id"] for folder in folders]


def call(*arguments: str, code: int = 0):
    result = CliRunner().invoke(cli.build_app(), ["models", *arguments])
    assert result.exit_code == code, result.output
    return result


def record(*arguments: str, code: int = 0):
    return json.loads(call(*arguments, "--json", code=code).stdout)


def test_from_training_to_champion_and_back(folders: list[Path], home: Path):
    assert "There is no model yet" in call("list").stdout
    added = record("add", str(folders[0]))
    assert added["new"] and record("add", str(folders[0])) == {"id": added["id"], "new": False}
    assert "was already registered" in call("add", str(folders[0])).stdout
    child = record("add", str(folders[1]), "--parent", added["id"][:12], "--label", "nightly")["id"]
    assert "There is no champion yet" in call("list").stdout
    call("promote", added["id"], "--reason", "first", "--expect", "none", "--by", "me")
    told = call("promote", child, "-r", "better Sharpe", "--expect", added["id"]).stdout
    assert told == f"{child} is the champion now; the previous champion was {added['id']}.\n"
    assert "nothing changed" in call("promote", "champion", "-r", "again").stdout
    back = record("rollback", "-r", "drawdown")
    assert (back["kind"], back["model_id"], back["changed"]) == ("rollback", added["id"], True)
    listed = record("list")
    assert listed["champion"] == added["id"] and listed["damaged"] == []
    assert [(model["id"], model["champion"]) for model in listed["models"]] == [(child, False), (added["id"], True)]
    page = call("list").stdout.splitlines()
    assert sum("★" in line for line in page[:3]) == 1 and "by" in page[-1] and "drawdown" in page[-1]
    assert (home / "registry.db").is_file()


def test_show(ids: list[str]):
    call("promote", ids[0], "-r", "it is [bold]mine")
    with Registry.open() as registry:
        registry.set_metrics(ids[0], {"sharpe": {"value": 1.25}})
    page = call("show", "champion").stdout
    for word in (
        f"{ids[0]} ★ champion",
        "2 updates, seed 0",
        "bundled sample",
        "sharpe.value  1.25",
        "CASH",
        "[bold]mine",
    ):
        assert word in page
    found = record("show", ids[0][:14])
    assert found["champion"] and found["metrics"] == {"sharpe": {"value": 1.25}}
    assert found["config"]["today"]["shielded"] and found["promotions"][0]["reason"] == "it is [bold]mine"


def test_compare(ids: list[str]):
    with Registry.open() as registry:
        registry.set_metrics(ids[0], {"sharpe": 1.0, "kept": True})
    found = record("compare", *ids)
    assert found["settings"] == {"shrink": [0.0, 0.5]}
    assert found["metrics"] == {"kept": [True, None], "sharpe": [1.0, None]}
    assert [pytest.approx(1.0, abs=0.01)] * 2 == [
        sum(column) for column in zip(*found["weights"].values(), strict=True)
    ]
    page = call("compare", *ids).stdout
    for word in ("Settings that differ", "shrink", "Metrics", "sharpe", "Weights, shielded", "CASH", "promised CVaR"):
        assert word in page
    assert "None." in call("compare", ids[0], ids[0]).stdout


def test_verify(ids: list[str]):
    with Registry.open() as registry:
        registry.append_audit([AuditEntry("r", {"CASH": 1.0}, "") for _ in range(3)])
    assert record("verify")["sound"]
    assert "3 rows, chain sound" in call("verify").stdout
    with Registry.open() as registry, registry.database.writing() as connection:
        connection.exec_driver_sql("DROP TRIGGER audit_no_update")
        connection.exec_driver_sql("UPDATE audit SET weights = '{}' WHERE seq = 2")
        connection.exec_driver_sql(f"UPDATE models SET label = 'x' WHERE id = '{ids[0]}'")
    page = call("verify", code=1).stdout
    assert "broken: row 2 was changed" in page and "1 of 2 sound" in page
    found = record("verify", code=1)
    assert not found["sound"] and list(found["damaged"]) == [ids[0]] and found["audit"]["broken"] == 2
    assert record("list")["damaged"] == [ids[0]] and "damaged" in call("list").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nobody"), "There is no model 'nobody'"),
        (("show", "champion"), "There is no champion yet"),
        (("promote", "2", "-r", "x"), "There is no model '2'"),
        (("rollback", "-r", "x"), "There is no earlier champion"),
        (("add", "."), "holds no config.json"),
        (("list", "--registry", "mysql://x/y"), "mysql is not supported"),
        (("list", "--registry", "postgresql://me:secret@127.0.0.1:9/y"), "cannot be reached"),
    ],
)
def test_mistakes_are_one_sentence(arguments: tuple[str, ...], message: str):
    result = call(*arguments, code=2 if "is not supported" in message else 1)
    assert message in result.stderr and result.stdout == ""
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1 and "secret" not in result.stderr


def test_the_wrong_champion_is_told(ids: list[str]):
    call("promote", ids[0], "-r", "x")
    assert f"The champion is {ids[0]}" in call("promote", ids[1], "-r", "y", "--expect", ids[1], code=1).stderr
    assert "reason: must not be empty" in call("promote", ids[1], "-r", " ", code=2).stderr


def test_help_loads_nothing_heavy():
    script = """
import sys
from portfolio_sdpo.cli import main
sys.argv = ["portfolio-sdpo", "models", "--help"]
try:
    main()
except SystemExit:
    print([name for name in ("torch", "pandas", "sqlalchemy", "alembic") if name in sys.modules], file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "rollback" in result.stdout and result.stderr == "[]\n"
