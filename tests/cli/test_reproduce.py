"""`reproduce`, as a user types it: all four questions at the smallest scale, from the first run to the last page."""

import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.registry import Registry

RUNS = 9 + 9 + 15 + 9 + 12


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    return tmp_path


def call(*arguments: str):
    return CliRunner().invoke(cli.build_app(), ["reproduce", *arguments])


@pytest.mark.skipif(importlib.util.find_spec("safety_gymnasium") is None, reason="Safety-Gymnasium is not installed")
def test_smoke_from_the_first_run_to_the_last_page(home: Path):
    """One test, for it takes a minute."""
    made = call("--scale", "smoke", "--jobs", "1")
    assert made.exit_code == 0, made.output
    folder = home / "reproduce" / "smoke"
    assert made.stdout.splitlines()[-1] == str(folder / "index.html")
    assert "cannot tell: smoke" in made.stdout and "borne out" not in made.stdout
    names = {f"{letter}.{kind}" for letter in "abcd" for kind in ("html", "json")}
    assert {path.name for path in folder.iterdir()} == names | {"index.html"}
    for page in folder.glob("*.html"):
        text = page.read_text()
        assert "cannot tell: smoke" in text and "✓" not in text and "✗" not in text
        assert page.name == "index.html" or (text.count("<img") >= 2 and "class='bad'" not in text)
    # Every run is in the registry, and done.
    with Registry.open(None) as registry:
        booked = registry.runs(kind="experiment")
    assert {run.status for run in booked} == {"done"} and len(booked) == RUNS + 5  # walks, and five backtests of them

    # Again: nothing is made, and the same is said.
    again = json.loads(call("--jobs", "1", "--question", "D,B", "--json").stdout)
    assert [each["question"] for each in again["questions"]] == ["B", "D"]
    studies = [study for each in again["questions"] for study in each["studies"]]
    assert sum(study["finished"] for study in studies) == sum(study["wanted"] for study in studies) == 15 + 12
    verdicts = {each["verdict"] for q in again["questions"] for judged in q["claims"] for each in judged["judgements"]}
    assert verdicts == {"cannot tell: smoke"}
    with Registry.open(None) as registry:
        assert len(registry.runs(kind="experiment")) == len(booked)

    # Pages of one question elsewhere, without making anything.
    shown = call("--question", "a", "--no-run", "--out", str(home / "pages"))
    assert shown.exit_code == 0 and {path.name for path in (home / "pages").iterdir()} == {
        *("a.html", "a.json", "index.html")
    }


def test_without_runs_the_page_says_so(home: Path):
    result = call("--question", "A", "--no-run")
    assert result.exit_code == 0 and "No run is finished yet." in result.stdout
    assert "No run is finished yet" in (home / "reproduce" / "smoke" / "a.html").read_text()


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("--question", "E"), "the paper has no question 'E'"),
        (("--ray-address", "head:6379"), "add --parallel ray or leave it out"),
    ],
)
def test_wrong_options_are_one_sentence(arguments, sentence):
    result = call(*arguments)
    assert result.exit_code == 2 and sentence in result.stderr and len(result.stderr.splitlines()) == 1
