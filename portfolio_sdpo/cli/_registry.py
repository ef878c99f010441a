"""Shared by the commands that use the registry: its option, and how records are printed."""

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
        help="The registry: a file or postgresql://....",
        show_default="registry.db in the data directory",
    ),
]


def open_registry(place: str | None) -> Registry:
    """Open a registry; SQLAlchemy is imported only here."""
    from portfolio_sdpo.registry import Registry

    return Registry.open(place)


def print_json(record: dict[str, Any]) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(record, indent=2, allow_nan=False))
