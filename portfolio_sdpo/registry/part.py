"""What the parts of the registry have in common: the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from portfolio_sdpo.errors import RegistryUnavailableError
from portfolio_sdpo.registry.database import Database

T = TypeVar("T")
Row = Mapping[Any, Any]
"""Columns by name."""


class Part:
    """One part of the registry, on the database of all."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def _read(self, what: str, build: Callable[[], T]) -> T:
        """What a row says; a row that says nothing sensible is damaged."""
        try:
            return build()
        except (ValueError, TypeError, KeyError, AttributeError):
            raise RegistryUnavailableError(
                f"{what} in the registry at {self.database.place} is damaged: restore a copy of the database."
            ) from None
