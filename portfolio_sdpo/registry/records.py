"""How records are stored: moments, JSON and text as the same characters in every database, and hashes over them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any, TypeVar

from portfolio_sdpo.errors import RegistryUnavailableError, SettingsError
from portfolio_sdpo.registry.database import Database

T = TypeVar("T")
Row = Mapping[Any, Any]
"""A row of a table: values by the name of their column."""


class Repository:
    """Base of the parts of the registry, which share one database: models, promotions, runs, audit, jobs and keys."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def _read(self, what: str, build: Callable[[], T]) -> T:
        """Build an object from a row; a row that cannot be understood is reported as damaged."""
        try:
            return build()
        except (ValueError, TypeError, KeyError, AttributeError):
            raise RegistryUnavailableError(
                f"{what} in the registry at {self.database.place} is damaged: restore a backup of the database."
            ) from None


def utc_now() -> datetime:
    """The current moment in UTC."""
    return datetime.now(UTC)


def format_moment(moment: datetime) -> str:
    """A moment as text of one width in UTC, so that text sorts as time does."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def to_canonical_json(value: Any, field: str = "value") -> str:
    """JSON that is the same for equal values: sorted keys, no blanks, only ASCII, no NaN.

    >>> to_canonical_json({"b": 1, "a": [0.5, None]})
    '{"a":[0.5,null],"b":1}'
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{field}: must be plain JSON without NaN ({error}).") from None


def to_optional_json(value: Any, field: str) -> str | None:
    """As `to_canonical_json`, but None stays None."""
    return None if value is None else to_canonical_json(value, field)


def from_json(text: str | None) -> Any:
    """The value that `to_optional_json` stored."""
    return None if text is None else json.loads(text)


def hash_values(*values: Any) -> str:
    """One sha256 over the columns of a row, whatever a damaged database returns for them."""
    return hash_bytes(json.dumps(values, separators=(",", ":"), default=repr).encode())


def hash_bytes(content: bytes) -> str:
    """The sha256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def check_text(field: str, text: str) -> str:
    """Return text that every database accepts; raise a `SettingsError` for NUL and incomplete characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = "\0"
    if "\0" in text:
        raise SettingsError(f"{field}: must be plain text without NUL.")
    return text


def require_text(field: str, text: str) -> str:
    """As `check_text`, and the text must not be empty."""
    if not text.strip():
        raise SettingsError(f"{field}: must not be empty; describe it in a few words.")
    return check_text(field, text.strip())


def make_id() -> str:
    """A new id that sorts by time and fits into a URL."""
    return f"{utc_now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def to_record(value: Any) -> Any:
    """A dataclass, or a collection of them, as values that JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_record(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_record(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_record(each) for each in value]
    return value.isoformat() if isinstance(value, (date, datetime)) else value
