"""What the shell is offered: the real protocol in a real process, and for bash the real script in a real bash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from portfolio_sdpo.backtest.strategies import STRATEGIES
from portfolio_sdpo.cli import _completion
from portfolio_sdpo.experiments.cmdp.declared import CMDP_EXPERIMENTS
from portfolio_sdpo.experiments.safety.declared import SAFETY_EXPERIMENTS
from portfolio_sdpo.experiments.stocks.declared import SENSITIVITIES, START_DATES
from portfolio_sdpo.portfolio.presets import PRESETS
from portfolio_sdpo.prices.layouts import LAYOUTS
from portfolio_sdpo.prices.sources import SOURCES
from portfolio_sdpo.registry import Registry

PROGRAM = Path(sys.executable).with_name("portfolio-sdpo")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
    names = tmp_path / "snapshots" / "names"
    names.mkdir(parents=True)
    for name in ("tech", "twenty", "mine", ".hidden"):
        (names / name).touch()
    return tmp_path


def offered(shell: str, line: str) -> list[str]:
    """What the program answers to the shell about the last word of the line, which may be empty."""
    words = line.split(" ")
    environment = {"_PORTFOLIO_SDPO_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        environment |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    else:
        environment |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    result = subprocess.run(
        [PROGRAM], env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert result.stderr == "" and "Traceback" not in result.stdout
    return result.stdout.split("\n")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("portfolio-sdpo do", ["doctor"]),
        ("portfolio-sdpo train --snapshot t", ["twenty", "tech"]),
        ("portfolio-sdpo backtest --algo sdpo,", ["sdpo,ppo", "sdpo,none"]),
        ("portfolio-sdpo experiment run cmdp-variance-", ["cmdp-variance-binding", "cmdp-variance-critics"]),
    ],
)
def test_bash_is_told(line: str, answer: list[str]):
    assert [word for word in offered("bash", line) if word] == answer


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_are_told(shell: str):
    assert "paper-stocks" in " ".join(offered(shell, "portfolio-sdpo train --preset p"))


def test_a_real_bash_completes_with_the_script_that_is_shown(home: Path):
    """The script is the one that the program shows in that bash; then TAB is what bash would do for it."""
    script = f"""
        set -e
        PATH={PROGRAM.parent}:$PATH
        eval "$(portfolio-sdpo --show-completion)"
        complete -p portfolio-sdpo >&2
        COMP_WORDS=(portfolio-sdpo data show mi) COMP_CWORD=3
        function=$(complete -p portfolio-sdpo | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        $function portfolio-sdpo mi show || true
        echo "${{COMPREPLY[@]}}"
    """
    result = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=False, timeout=240)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["mine"] and "-F" in result.stderr


def test_completion_loads_nothing_heavy(home: Path):
    script = """
import json, os, sys
os.environ |= {"_PORTFOLIO_SDPO_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
os.environ["COMP_WORDS"] = "portfolio-sdpo models show "
from portfolio_sdpo.cli import main
try:
    main()
finally:
    heavy = ("torch", "pandas", "numpy", "sqlalchemy", "matplotlib", "gymnasium", "scipy", "pyarrow")
    print(json.dumps([name for name in heavy if name in sys.modules]), file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(result.stderr) == [] and result.stdout.split() == ["champion"]


def test_ids_come_from_the_registry_and_silence_from_a_broken_one(home: Path):
    assert _completion.models("") == ["champion"] and _completion.keys("") == []
    with Registry.open() as registry:
        first, _ = registry.create_key("desk", "read")
        second, _ = registry.create_key("nightly", "train")
    assert set(_completion.keys("")) == {first.id, second.id} and _completion.keys(first.id[:6]) == [first.id]
    assert _completion.models("ch") == ["champion"]
    (home / "registry.db").write_bytes(b"this is no database, and long enough to be looked at" * 100)
    assert _completion.keys("") == []


@pytest.mark.usefixtures("home")
def test_a_registry_elsewhere_is_not_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_REGISTRY", "postgresql://nobody@localhost:1/none")
    assert _completion.models("") == ["champion"]


def test_folders_of_agents(home: Path):
    (home / "agents" / "20261113-5f2c").mkdir(parents=True)
    assert _completion.agents(str(home)) == [str(home / "agents" / "20261113-5f2c")]
    assert _completion.agents("elsewhere") == []


def test_what_is_written_down_is_what_is_declared():
    assert tuple(PRESETS) == _completion.PRESETS
    assert all(tuple(preset.agents) == _completion.AGENTS for preset in PRESETS.values())
    assert tuple(SOURCES) == _completion.SOURCES
    assert tuple(LAYOUTS) == _completion.LAYOUTS
    assert tuple(STRATEGIES) == _completion.STRATEGIES
    assert set(_completion.experiments("")) == {
        *CMDP_EXPERIMENTS,
        *SAFETY_EXPERIMENTS,
        *(experiment.name for experiment in (*START_DATES, *SENSITIVITIES)),
    }
