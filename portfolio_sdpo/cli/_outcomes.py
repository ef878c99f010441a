"""How the runs of an experiment ended, told alike by every kind of experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from portfolio_sdpo.experiments.grid import Outcome


def outcomes_record(outcomes: Sequence[Outcome], summary: Any) -> dict[str, Any]:
    """What `experiment run --json` prints; `summary` is None where no run is sound."""
    return {"outcomes": [vars(outcome) for outcome in outcomes], "summary": summary.to_json() if summary else None}


def end_with(failed: Sequence[Outcome]) -> None:
    """One sentence per failed run, and an exit code that says so."""
    for outcome in failed:
        typer.secho(f"Error: {outcome.run}: {outcome.message}", fg=typer.colors.RED, err=True)
    if failed:
        raise typer.Exit(1)
