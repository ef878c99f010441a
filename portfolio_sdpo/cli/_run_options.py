"""How the runs of a study are made from the command line: shared options, the live table, the registry, the outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from portfolio_sdpo.cli._frame import print_error
from portfolio_sdpo.cli._registry import open_registry
from portfolio_sdpo.errors import Interruption, SettingsError

if TYPE_CHECKING:
    from portfolio_sdpo.experiments.engine.grid import Outcome
    from portfolio_sdpo.experiments.study import Study

Where = Literal["local", "ray"]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="How many runs are made at a time.", show_default="one for each core"),
]
WhereOption = Annotated[
    Where,
    typer.Option("--parallel", help="Use processes of this machine, or a Ray cluster whose nodes share the folder."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="auto|HOST:PORT",
        help="Address of the cluster's head.",
        show_default="auto: the cluster that this machine is part of",
    ),
]
RetriesOption = Annotated[
    int, typer.Option("--retries", min=0, help="How often a run is resumed elsewhere after its worker died.")
]
RestartOption = Annotated[bool, typer.Option("--restart", help="Replace runs that were made with other settings.")]


@dataclass(frozen=True)
class RunOptions:
    """The options of the command line that say how runs are made; they do not change the results."""

    jobs: int | None = None
    parallel: Where = "local"
    ray_address: str | None = None
    retries: int = 2
    restart: bool = False
    registry: str | None = None
    as_json: bool = False

    def __post_init__(self) -> None:
        if self.ray_address is not None and self.parallel != "ray":
            raise SettingsError("--ray-address: runs are made on this machine; add --parallel ray or leave it out.")

    def run(self, study: Study) -> list[Outcome]:
        """Make the missing runs of a study, show them meanwhile, and record them in the registry."""
        from rich.console import Console

        from portfolio_sdpo.experiments.engine.parallel import Local
        from portfolio_sdpo.experiments.engine.ray_cluster import Ray
        from portfolio_sdpo.registry.experiment_runs import RunRecorder

        board = study.board()
        parallel = Ray(self.ray_address or "auto") if self.parallel == "ray" else Local()
        live = board.display(Console(stderr=True, quiet=self.as_json), None if self.as_json else typer.echo)
        with (
            _report_interruption(study),
            open_registry(self.registry) as registry,
            RunRecorder(registry, study.name) as observer,
            live,
        ):
            outcomes = study.run(
                board,
                jobs=self.jobs,
                parallel=parallel,
                retries=self.retries,
                restart=self.restart,
                observer=observer,
            )
        if observer.trouble is not None:
            typer.secho(f"Not every run is in the registry: {observer.trouble}", fg=typer.colors.YELLOW, err=True)
        return outcomes


def outcomes_record(outcomes: Sequence[Outcome], summary: Any) -> dict[str, Any]:
    """What `experiment run --json` prints; `summary` is None where every run failed."""
    records = [{"run": each.run, "status": each.status, "message": each.message} for each in outcomes]
    return {"outcomes": records, "summary": summary.to_json() if summary else None}


def exit_with_failures(outcomes: Sequence[Outcome], *, as_json: bool = False) -> None:
    """Exit with code 1 if a run failed, after one sentence for each, or one JSON object with all of them."""
    sentences = [f"{each.run}: {each.message}" for each in outcomes if each.status == "failed"]
    for sentence in [" ".join(sentences)] if as_json and sentences else sentences:
        print_error(sentence, "RunError", as_json=as_json)
    if sentences:
        raise typer.Exit(1)


@contextmanager
def _report_interruption(study: Study) -> Iterator[None]:
    """If the block is interrupted, say which runs of the experiment are finished and which have a checkpoint."""
    try:
        yield
    except KeyboardInterrupt:
        folder = study.root
        # A backtest's folder is there as a whole or not at all; a trainer's is done when it has its last file.
        done = {path.parent for pattern in ("*/final.json", "*/metrics.json") for path in folder.glob(pattern)}
        begun = {path.parent for path in folder.glob("*/checkpoint-*.safetensors")} - done
        finished = "one run of {} is" if len(done) == 1 else f"{len(done)} runs of {{}} are"
        waiting = "one has" if len(begun) == 1 else f"{len(begun)} have"
        raise Interruption(f"{finished.format(study.name)} done and {waiting} a checkpoint") from None


def parse_seeds(option: str, text: str) -> tuple[int, ...]:
    """Parse the value of a command-line option such as `0,1,2`.

    >>> parse_seeds("--seeds", "0,1,2")
    (0, 1, 2)
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(
            f"{option}: must be whole numbers separated by commas, such as 0,1,2 (got {text!r})."
        ) from None
