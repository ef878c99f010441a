"""Snippets of the pages run as they stand, in a script of their own, only with fewer iterations."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY = (
    '{"history": 60, "paths": 8, "first": 6, "further": 2, "limit": {"horizon": 5, "alpha": 0.2, "bound": -0.3}, '
    '"learner": {"kind": "analytic", "hidden": [4, 4], "learning_rate": 0.1}}'
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(name: str, language: str = "python") -> list[str]:
    """What stands between the fences of that language on a page."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", (ROOT / name).read_text(encoding="utf-8"))


def snippets(name: str) -> str:
    """All Python of a page, one after the other."""
    return "\n".join(blocks(name))


def run(script: str) -> str:
    Path("snippet.py").write_text(script, encoding="utf-8")
    done = subprocess.run([sys.executable, "snippet.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(line: str) -> None:
    for part in line.splitlines():
        words = shlex.split(part, comments=True)
        if words:
            assert words[0] == "portfolio-sdpo"
            subprocess.run([sys.executable, "-m", "portfolio_sdpo", *words[1:]], capture_output=True, check=True)


@pytest.mark.parametrize("name", ["README.md", "docs/constraints.md"])
def test_training_snippets(name: str, place: Path):
    script = snippets(name) if name != "README.md" else blocks(name)[1]  # the first is the quickstart
    assert script.count("iterations=100,") == 1
    out = run(script.replace("iterations=100,", "iterations=3,"))
    assert any(regime in out for regime in ("interior", "margin", "violated"))
    assert list(place.glob("*/config.json"))


def test_the_quickstart(place: Path):
    """As it stands, but over a month; its output has the form that the README shows."""
    script, shown = blocks("README.md")[0], blocks("README.md", "text")[0]
    assert len([line for line in script.splitlines() if line.strip()]) < 10 and "SafeAllocator" in script
    quick = script.replace('start="2020-01-02"', 'start="2021-09-15", intervals=20')
    assert quick.count("intervals=") == 1
    out = run(quick).replace("\u00a0", " ")  # a page of prose has plain spaces
    rows = [line.split("  ")[0] for line in shown.splitlines() if re.search(r"[✓✗]$|[✓✗] ", line)]
    assert len(rows) >= 4 and all(any(line.startswith(row) for line in out.splitlines()) for row in rows)
    assert "CASH" in shown.splitlines()[0] and "CASH" in out.splitlines()[0]
    assert (place / "report.html").is_file()


def test_the_safety_gym_snippet():
    run(snippets("docs/safety.md"))


def test_prices_from_a_file_to_a_frame_and_a_retrain_on_them():
    """The first commands of docs/prices.md as they are typed, then its snippet, then that of docs/retraining.md."""
    page = (ROOT / "docs" / "prices.md").read_text(encoding="utf-8")
    typed = page.partition("## From a CSV to a snapshot")[2]
    block = re.search(r"(?m)(?:^ {4}portfolio-sdpo .*\n)+", typed)
    assert block is not None and block[0].count("portfolio-sdpo") >= 4
    commands(block[0])
    out = run(snippets("docs/prices.md") + "\nprint(prices.shape[1])\n")
    assert out.split()[-1] == "9"

    script = snippets("docs/retraining.md")
    quick = script.replace("update=True)", f"update=True, holdout=20, config={TINY})")
    assert quick != script
    assert "promoted" in run(f"{quick}\nprint(done.outcome)\n")


def test_the_extensions_of_contributing():
    """Every snippet as it stands, then all of them in use: measure, algorithm, strategy, source, environment."""
    use = """
from pathlib import Path

from portfolio_sdpo import backtest, load_prices
from portfolio_sdpo.prices.ingest import fetch_snapshot
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl import Problem, Trainer, TrainSettings

falls = Constraint(signal="falls", measure=Spread(), sense="<=", bound=1.0, eta=2)
env = gymnasium.make_vec("Cliff-v0", num_envs=10)
for kind, constraints in (("sdpo", (falls,)), ("reinforce", ())):
    settings = TrainSettings(
        problem=Problem(constraints=constraints), algorithm={"kind": kind}, iterations=2, steps=50, tensorboard=False
    )
    assert TrainSettings.model_validate_json(settings.model_dump_json()) == settings
    assert len(Trainer(settings, env, Path(kind)).run()) == 2

prices = load_prices("sample").loc["2017":"2018"].dropna(axis=1)
prices.to_parquet("closes.parquet")
fetch_snapshot("desk", ["AAPL", "MSFT"], None, None, name="desk")
assert list(load_prices("desk").columns) == ["AAPL", "MSFT"]

print(backtest(prices, {"momentum": "momentum"}, start="2018-10-01"))
"""
    assert "momentum" in run(snippets("CONTRIBUTING.md") + use)


def test_the_tear_sheet_of_the_dashboards_page(place: Path):
    out = run(snippets("docs/dashboard.md").replace("cvar=-0.10)", "cvar=-0.10, intervals=20)"))
    assert "AAPL" in out and (place / "aapl.html").is_file()
