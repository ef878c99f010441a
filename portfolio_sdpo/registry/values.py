"""Moments, JSON and names as they are stored: the same characters in every database."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
from datetime import UTC, date, datetime
from typing import Any

from portfolio_sdpo.errors import SettingsError


def now() -> datetime:
    """This moment, in UTC."""
    return datetime.now(UTC)


def written(moment: datetime) -> str:
    """A moment as text of one width in UTC, so that text sorts as time does."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def canonical(value: Any, field: str = "value") -> str:
    """JSON that is the same for equal values: keys in order, no blanks, only ASCII, no NaN."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{field}: must be plain JSON without NaN ({error}).") from None


def optional(value: Any, field: str) -> str | None:
    """As `canonical`, None stays None."""
    return None if value is None else canonical(value, field)


def parsed(text: str | None) -> Any:
    """What `optional` wrote."""
    return None if text is None else json.loads(text)


def sealed(*values: Any) -> str:
    """One sha256 over columns, whatever a damaged database makes of them."""
    return sha256(json.dumps(values, separators=(",", ":"), default=repr).encode())


def sha256(content: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def plain(field: str, text: str) -> str:
    """Text that every database takes: neither NUL nor half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = "\0"
    if "\0" in text:
        raise SettingsError(f"{field}: must be plain text without NUL.")
    return text


def stated(field: str, text: str) -> str:
    """Text that says something."""
    if not text.strip():
        raise SettingsError(f"{field}: must not be empty; say it in a few words.")
    return plain(field, text.strip())


def new_id() -> str:
    """A fresh name that sorts by time and fits into a URL."""
    return f"{now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def to_record(value: Any) -> Any:
    """A dataclass, or several, as what JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_record(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_record(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_record(each) for each in value]
    return value.isoformat() if isinstance(value, (date, datetime)) else value
