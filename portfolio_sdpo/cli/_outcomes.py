"""How the runs of an experiment ended, told alike by every kind of experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from portfolio_sdpo.cli._frame import print_error
from portfolio_sdpo.errors import Interruption

if TYPE_CHECKING:
    from portfolio_sdpo.experiments.engine.grid import Outcome


def outcomes_record(outcomes: Sequence[Outcome], summary: Any) -> dict[str, Any]:
    """What `experiment run --json` prints; `summary` is None where no run is sound."""
    told = [{"run": each.run, "status": each.status, "message": each.message} for each in outcomes]
    return {"outcomes": told, "summary": summary.to_json() if summary else None}


def end_with(failed: Sequence[Outcome], *, as_json: bool = False) -> None:
    """One sentence per failed run, or one JSON object with all of them, and an exit code that says so."""
    sentences = [f"{outcome.run}: {outcome.message}" for outcome in failed]
    for sentence in [" ".join(sentences)] if as_json and failed else sentences:
        print_error(sentence, "RunError", as_json=as_json)
    if failed:
        raise typer.Exit(1)


@contextmanager
def runs_kept(name: str) -> Iterator[None]:
    """Say what is there of an experiment if the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        from portfolio_sdpo.experiments.engine.folders import experiment_folder

        folder = experiment_folder(name)
        # A walk's folder is there as a whole or not at all; a trainer's is done when it has its last file.
        done = {path.parent for pattern in ("*/final.json", "*/metrics.json") for path in folder.glob(pattern)}
        begun = {path.parent for path in folder.glob("*/checkpoint-*.safetensors")} - done
        finished = "one run of {} is" if len(done) == 1 else f"{len(done)} runs of {{}} are"
        waiting = "one has" if len(begun) == 1 else f"{len(begun)} have"
        raise Interruption(f"{finished.format(name)} done and {waiting} a checkpoint") from None
