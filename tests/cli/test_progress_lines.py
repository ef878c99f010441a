"""Progress where there is no terminal: how much is done, and how long the rest will take."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.cli import _progress_lines
from portfolio_sdpo.cli._progress_lines import ProgressLines


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_a_line_every_half_minute_with_the_time_that_is_left(capsys: pytest.CaptureFixture[str]):
    clock = Clock()
    lines = ProgressLines(now=clock)
    for seconds in range(101):
        clock.time = 100.0 + seconds
        lines.write(seconds / 100, f"update {seconds}")
    assert told(capsys).splitlines() == [
        "update 5 (5% done, about 2 min left)",
        "update 35 (35% done, about 1 min left)",
        "update 65 (65% done, about 36 s left)",
        "update 95 (95% done, about 6 s left)",
    ]


def test_resumed_work_is_not_counted_as_fast(capsys: pytest.CaptureFixture[str]):
    clock = Clock()
    lines = ProgressLines(now=clock)
    lines.write(0.5, "resumed")
    clock.time += 10.0
    lines.write(0.6, "resumed")
    assert told(capsys) == "resumed (60% done, about 41 s left)\n"


def test_nothing_before_five_seconds_nor_where_it_is_quiet(capsys: pytest.CaptureFixture[str]):
    clock = Clock()
    lines, quiet = ProgressLines(now=clock), ProgressLines(quiet=True, now=clock)
    for seconds in (0.0, 4.9):
        clock.time = 100.0 + seconds
        lines.write(0.5, "short")
    clock.time = 1000.0
    quiet.write(0.9, "quiet")
    assert told(capsys) == ""


@pytest.mark.parametrize("command", ["train", "backtest", "retrain"])
def test_long_commands_write_them(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
    monkeypatch.setattr(_progress_lines, "FIRST", 0.0)
    monkeypatch.setattr(_progress_lines, "NEXT", 0.0)
    config = tmp_path / "quick.toml"
    config.write_text("first = 5\nfurther = 1\npaths = 16\n[learner]\nhidden = [4, 4]\n")
    options = {
        "train": [],
        "backtest": ["--strategies", "cash", "--start", "2021-09-01", "--end", "2021-09-30"],
        "retrain": ["--holdout", "20"],
    }
    arguments = [command, "--preset", "lstm", "--config", str(config), *options[command]]
    result = CliRunner().invoke(cli.build_app(), arguments)
    assert result.exit_code in (0, 3), result.output
    assert "update" in result.stderr if command != "backtest" else "sdpo: " in result.stderr
    assert "% done, about " in result.stderr
