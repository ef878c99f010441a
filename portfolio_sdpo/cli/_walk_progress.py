"""The progress of backtests as bars, one for every strategy that is being simulated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from portfolio_sdpo.cli._progress_lines import ProgressLines
from portfolio_sdpo.common.progress import CommandProgress

if TYPE_CHECKING:
    from portfolio_sdpo.backtest.entries import Progress


@contextmanager
def walk_progress(quiet: bool, walks: int) -> Iterator[Progress]:
    """On stderr a bar for every strategy in simulation with the time it will take, or without a terminal lines."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars: dict[str, Any] = {}
    over: set[str] = set()
    shares: dict[str, float] = {}
    file, lines = CommandProgress(), ProgressLines(quiet)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as board:
        everything = board.add_task("strategies", total=walks)

        def say(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = board.add_task(escape(name), total=total)
            if done >= total:
                over.add(name)
            board.update(bars[name], completed=done, total=total, visible=name not in over)
            board.update(everything, completed=len(over))
            shares[name] = min(done / max(total, 1), 1.0)
            for each in (file, lines):
                each.write(sum(shares.values()) / max(walks, 1), f"{name}: {done} of {total}")

        yield say
