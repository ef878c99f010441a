"""A live view of training: one line per run, with the estimate of every constraint beside its bound.

    board = Board(problem.constraints)
    with board.display():
        trainer.run(board.watcher("sdpo", total=settings.iterations))

Runs in other processes, on this or another machine, write their line to a small file (`LineFile`), from which the
board reads it. Code that makes many runs reports them to the board (`begin`, `again`, `end`); without a terminal, these
reports are printed as plain lines.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.common.progress import StatusFile
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.trainer import Watcher

_STYLES = {"interior": "green", "margin": "yellow", "violated": "red"}
_BAR = 12
_SHOWN = 24
"""The most lines that are shown, so that a large grid does not fill the terminal."""
_RECENT = 6
"""How many of the last finished runs, and of the last failures, are named."""


@dataclass
class Line:
    """The progress of one run and its newest figures."""

    iteration: int
    total: int
    row: dict[str, float | str] = field(default_factory=dict)
    """From the log: return, risks, regimes, steps_per_second."""
    host: str = ""
    """The machine and, in `pid`, the process that the run is in, if it is another one."""
    pid: int = 0

    @classmethod
    def of(cls, row: LogRow, total: int) -> Line:
        kept = {
            name: value
            for name, value in row.items()
            if name in ("return", "phase", "steps", "steps_per_second") or name.startswith(("risk_", "regime_"))
        }
        return cls(int(row["iteration"]) + 1, total, kept)


class LineFile:
    """The line of a run in another process: written by the run, read by the board."""

    def __init__(self, path: Path) -> None:
        self._file = StatusFile(path)

    def begin(self, total: int) -> None:
        """Note that the run has begun, unless its progress is known already."""
        if self.read() is None:
            self._write(Line(0, total), final=True)

    def write(self, row: LogRow, total: int) -> None:
        """Write the line: at most a few times a second, and always at the end."""
        line = Line.of(row, total)
        self._write(line, final=line.iteration >= total)

    def _write(self, line: Line, *, final: bool) -> None:
        line.host, line.pid = socket.gethostname(), os.getpid()
        self._file.write(asdict(line), final=final)

    def read(self) -> Line | None:
        """The line; None before the run has written anything."""
        content = self._file.read()
        return None if content is None else Line(**content)


class Board:
    """The lines of all current runs, and below them which runs have finished or failed and how many are waiting."""

    def __init__(self, constraints: Sequence[Constraint], title: str = "") -> None:
        self.constraints = constraints
        self.title = title
        self.runs = 0
        """Number of all runs, if it is known."""
        self.finished = 0
        self.failed = 0
        self._lines: dict[str, Line | LineFile] = {}
        self._over: list[str] = []
        self._troubles: list[str] = []
        self._say: Callable[[str], None] = lambda text: None

    def watcher(self, name: str, total: int) -> Watcher:
        """A function for `Trainer.run` in this process, which updates the line of this run."""

        def watch(row: LogRow) -> None:
            self._lines[name] = Line.of(row, total)

        return watch

    def follow(self, name: str, file: LineFile) -> None:
        """Show a run of another process as soon as it has written its first line."""
        self._lines[name] = file

    def drop(self, name: str) -> None:
        """Remove the line of a run that has ended."""
        self._lines.pop(name, None)

    def begin(self, name: str) -> None:
        """Report that a run begins."""
        self._say(f"{name}: begins")

    def again(self, name: str, why: str) -> None:
        """Report that a run is made again, from its checkpoint, and why."""
        self._trouble(f"{name}: {why}")

    def end(self, name: str, status: Literal["finished", "skipped", "failed"], why: str = "") -> None:
        """Report that a run has ended."""
        self.drop(name)
        self.failed += status == "failed"
        self.finished += status != "failed"
        if status == "failed":
            self._trouble(f"{name}: failed: {why}")
        elif status == "finished":
            self._over.append(name)
            self._say(f"{name}: finished, {self.finished} of {self.runs}")

    def _trouble(self, text: str) -> None:
        self._troubles.append(text)
        self._say(text)

    @contextmanager
    def display(self, console: Console | None = None, say: Callable[[str], None] | None = None) -> Iterator[None]:
        """Show the board live while the block runs; without a terminal, `say` is given plain lines."""
        console = console or Console(stderr=True)
        if not console.is_terminal:
            before, self._say = self._say, say or self._say
            try:
                yield
            finally:
                self._say = before
            return
        with Live(get_renderable=lambda: self, console=console, refresh_per_second=4, transient=True):
            yield

    def __rich__(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, title=self.title or None, title_justify="left", title_style="bold")
        table.add_column("run", no_wrap=True)
        table.add_column("", width=_BAR)
        table.add_column("iteration", justify="right", no_wrap=True)
        table.add_column("return", justify="right", no_wrap=True)
        for constraint in self.constraints:
            table.add_column(constraint.name, min_width=14)
        table.add_column("steps/s", justify="right", no_wrap=True)
        table.add_column("left", justify="right", no_wrap=True, min_width=5)
        running = [(name, line) for name, line in self._current() if line.iteration < line.total]
        elsewhere = {line.host for _, line in running} - {"", socket.gethostname()}
        if elsewhere:
            table.add_column("on", no_wrap=True)
        for name, line in running[:_SHOWN]:
            table.add_row(
                name,
                ProgressBar(total=line.total, completed=line.iteration, width=_BAR),
                f"{line.iteration}/{line.total}",
                _number(line, "return", ".2f"),
                *(self._risk(index, line) for index in range(len(self.constraints))),
                _number(line, "steps_per_second", ",.0f"),
                _estimate_time_left(line),
                *([line.host] if elsewhere else []),
            )
        parts: list[RenderableType] = [table]
        if self._over:
            parts.append(Text(f"finished last: {', '.join(self._over[-_RECENT:])}", style="dim"))
        parts += [Text(text, style="red") for text in self._troubles[-_RECENT:]]
        return Group(*parts, Text(self._counts(len(running)), style="dim"))

    def _current(self) -> Iterator[tuple[str, Line]]:
        for name, entry in list(self._lines.items()):
            line = entry.read() if isinstance(entry, LineFile) else entry
            if line is not None:
                yield name, line

    def _counts(self, running: int) -> str:
        parts = {"running": running, "finished": self.finished, "failed": self.failed}
        parts["waiting"] = max(self.runs - sum(parts.values()), 0)
        return ", ".join(f"{count} {word}" for word, count in parts.items() if count)

    def _risk(self, index: int, line: Line) -> Text:
        """`11.31 margin`, in the colour of the regime; algorithms without a barrier are inside or outside."""
        constraint = self.constraints[index]
        risk = line.row.get(f"risk_{index}")
        if risk is None:
            return Text("–")
        slack = constraint.slack(float(risk))
        word = str(line.row.get(f"regime_{index}", "inside" if slack > 0 else "outside"))
        style = _STYLES.get(word, "green" if slack > 0 else "red")
        if line.row.get("phase") == 1.0:
            word = "phase I"
        return Text(f"{float(risk):.2f} {word}", style=style, no_wrap=True)


def _number(line: Line, name: str, shape: str) -> str:
    """A figure of the line, or a dash if the line does not have it."""
    return format(float(line.row[name]), shape) if name in line.row else "–"


def _estimate_time_left(line: Line) -> str:
    """Time left at the current rate, as m:ss."""
    steps, rate = float(line.row.get("steps", 0.0)), float(line.row.get("steps_per_second", 0.0))
    if not rate:
        return "–"
    seconds = int((line.total - line.iteration) * steps / rate)
    return f"{seconds // 60}:{seconds % 60:02d}"
