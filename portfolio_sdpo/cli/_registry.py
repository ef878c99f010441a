"""What the commands on the registry share: where it is, and how their records are printed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portfolio_sdpo.cli._agent_options import Json

if TYPE_CHECKING:
    from portfolio_sdpo.registry import Registry

__all__ = ["Json", "Place", "open_registry", "print_json"]

Place = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        envvar="PORTFOLIO_SDPO_REGISTRY",
        help="A file, or postgresql://...; registry.db in the data directory by default.",
    ),
]


def open_registry(place: str | None) -> Registry:
    """The registry at that place, without which SQLAlchemy need not be imported."""
    from portfolio_sdpo.registry import Registry

    return Registry.open(place)


def print_json(record: dict[str, Any]) -> None:
    """One JSON object."""
    typer.echo(json.dumps(record, indent=2, allow_nan=False))
