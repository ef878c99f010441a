"""`portfolio-sdpo doctor`: is everything there that the other commands need?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._registry import Json, Place, print_json

if TYPE_CHECKING:
    from portfolio_sdpo.cli._checks import Finding

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failure": ("✗", "red")}


def doctor(place: Place = None, as_json: Json = False) -> None:
    """Check the installation, the data directory and the registry.

    One line per check: ✓ sound, ! a warning, ✗ a failure, each with the next step. Exit code 1 if something failed.
    """
    from portfolio_sdpo.cli import _checks

    torch = _checks.TorchCheck()
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "python": _checks.check_python,
        "packages": _checks.check_packages,
        "data directory": _checks.check_data_directory,
        "registry": lambda: _checks.check_registry(place),
        "snapshots": _checks.check_snapshots,
        "ports": _checks.check_ports,
        "browser": _checks.check_browser,
    }
    found = [finding for name, check in checks.items() for finding in _checks.run_check(name, check)]
    found.insert(1, torch.finish())
    sound = all(each.status != "failure" for each in found)
    if as_json:
        print_json({"sound": sound, "checks": [asdict(each) for each in found]})
    else:
        _show(found)
    if not sound:
        raise typer.Exit(1)


def _show(found: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    for each in found:
        mark, style = MARKS[each.status]
        said = Text(each.sentence)
        if each.next:
            said.append(f"\n{each.next}", style="dim" if each.status == "ok" else style)
        table.add_row(Text(mark, style=style), Text(each.check, style="bold"), said)
    Console().print(table)


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    root.command("doctor", epilog=examples("doctor", "doctor --json"))(doctor)
