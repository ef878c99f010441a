"""How the runs of an experiment are made: the options that all experiments have, the live table, the registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from portfolio_sdpo.cli._outcomes import runs_kept
from portfolio_sdpo.cli._registry import open_registry
from portfolio_sdpo.errors import SettingsError

if TYPE_CHECKING:
    from portfolio_sdpo.experiments.engine.grid import Means
    from portfolio_sdpo.rl.progress import Board

Where = Literal["local", "ray"]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Runs at a time.", show_default="one for each core")
]
WhereOption = Annotated[
    Where, typer.Option("--parallel", help="Processes of this machine, or a Ray cluster whose nodes share the folder.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="auto|HOST:PORT",
        help="Of the cluster's head.",
        show_default="auto: the cluster that this machine is part of",
    ),
]
RetriesOption = Annotated[
    int, typer.Option("--retries", min=0, help="How often a run goes on elsewhere whose worker died.")
]
RestartOption = Annotated[bool, typer.Option("--restart", help="Replace runs made with other settings.")]


@dataclass(frozen=True)
class GridOptions:
    """What the command line says about it."""

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

    @contextmanager
    def applied(self, name: str, board: Board) -> Iterator[Means]:
        """The means for an experiment of that name; its runs are shown and written into the registry meanwhile."""
        from rich.console import Console

        from portfolio_sdpo.experiments.engine.parallel import Local
        from portfolio_sdpo.experiments.engine.ray_cluster import Ray
        from portfolio_sdpo.registry.experiments import Booked

        parallel = Ray(self.ray_address or "auto") if self.parallel == "ray" else Local()
        shown = board.shown(Console(stderr=True, quiet=self.as_json), None if self.as_json else typer.echo)
        with runs_kept(name), open_registry(self.registry) as registry, Booked(registry, name) as observer, shown:
            yield {
                "jobs": self.jobs,
                "parallel": parallel,
                "retries": self.retries,
                "restart": self.restart,
                "observer": observer,
            }
        if observer.trouble is not None:
            typer.secho(f"Not every run is in the registry: {observer.trouble}", fg=typer.colors.YELLOW, err=True)
