"""The board that shows running trainings."""

import io
from pathlib import Path

from rich.console import Console

from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.progress import Board, LineFile

CONSTRAINTS = (Constraint.from_spec("variance of reward <= 12"), Constraint.from_spec("cvar(0.1) of reward >= 24"))


def row(iteration: int, **more: float | str) -> dict[str, float | str]:
    return {
        "iteration": float(iteration),
        "return": 31.4159,
        "risk_0": 11.5,
        "regime_0": "margin",
        "risk_1": 20.25,
        "steps": 2000.0,
        "steps_per_second": 4000.0,
        "kl": 0.01,
        **more,
    }


def shown(board: Board, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(board)
    return console.file.getvalue()


def test_a_line_has_return_risks_regimes_rate_and_time_left():
    board = Board(CONSTRAINTS)
    board.watcher("sdpo", total=400)(row(99))
    text = shown(board)
    for word in ("sdpo", "100/400", "31.42", "11.50 margin", "20.25 outside", "4,000", "2:30", "1 running"):
        assert word in text
    assert "variance of" in text and "cvar[0.1] of" in text


def test_eighty_columns_are_enough():
    board = Board(CONSTRAINTS[:1])
    board.watcher("pd-cvar-11-0", total=1000)(row(999 - 1, phase=1.0))
    text = shown(board, width=80)
    assert "…" not in text and "11.50 phase I" in text


def test_runs_in_other_processes_are_read_from_files(tmp_path: Path):
    board = Board(CONSTRAINTS[:1])
    board.runs = 3
    file = LineFile(tmp_path / "run.json")
    board.follow("sdpo-11-0", file)
    assert "sdpo" not in shown(board) and "3 waiting" in shown(board)
    file.write(row(0), total=10)
    assert "1/10" in shown(board) and "1 running, 2 waiting" in shown(board)
    file.write(row(1), total=10)  # too soon after the last one to be written
    assert "1/10" in shown(board)
    board.drop("sdpo-11-0")
    board.finished, board.failed = 1, 1
    assert "1 finished, 1 failed, 1 waiting" in shown(board)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_the_last_line_is_always_written(tmp_path: Path):
    file = LineFile(tmp_path / "run.json")
    file.write(row(0), total=2)
    file.write(row(1), total=2)
    line = file.read()
    assert line is not None and line.iteration == 2
    assert "kl" not in line.row


def test_nothing_is_shown_without_a_terminal():
    console = Console(file=io.StringIO())
    with Board(CONSTRAINTS).display(console):
        pass
    assert console.file.getvalue() == ""
