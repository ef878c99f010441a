"""API keys, of which only a salted hash is stored.

The hash is one sha256 and not scrypt: scrypt makes guessing expensive where people choose passwords, and a key here is
256 random bits, which nobody can guess at any speed. So the check takes microseconds and not 50 ms.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from portfolio_sdpo.errors import NotRegisteredError, SettingsError
from portfolio_sdpo.registry import schema
from portfolio_sdpo.registry.records import Repository, Row, format_moment, require_text, utc_now

Scope = Literal["read", "train"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
PREFIX = "psdpo"
"""Every key starts with it, so that scanners for leaked secrets can find keys."""


@dataclass(frozen=True)
class ApiKey:
    """The stored description of a key, without the key itself."""

    id: str
    name: str
    scope: Scope
    created_at: datetime
    revoked_at: datetime | None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    """Noted by a running service once a minute."""

    @property
    def valid(self) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or utc_now() < self.expires_at)

    def allows(self, scope: Scope) -> bool:
        """Whether the key has this scope; `train` includes `read`."""
        return self.valid and (self.scope == scope or self.scope == "train")


class Keys(Repository):
    """Creates, checks and revokes keys."""

    def create_key(self, name: str, scope: Scope, *, lifetime: timedelta | None = None) -> tuple[ApiKey, str]:
        """A new key and its secret, which is returned only here and cannot be recovered."""
        row, secret = _make_row(name, scope, lifetime)
        with self.database.writing() as connection:
            connection.execute(schema.api_keys.insert().values(row))
        return self._build_key(row), secret

    def rotate_key(self, key_id: str, *, overlap: timedelta) -> tuple[ApiKey, str]:
        """A new key of the same name, scope and lifetime, and its secret; the old one expires after the overlap."""
        table = schema.api_keys
        with self.database.writing() as connection:
            found = connection.execute(table.select().where(table.c.id == key_id)).mappings().first()
            old = None if found is None else self._build_key(found)
            if old is None or not old.valid:
                raise _no_such_key(key_id)
            lifetime = None if old.expires_at is None else old.expires_at - old.created_at
            row, secret = _make_row(old.name, old.scope, lifetime)
            end = utc_now() + overlap
            end = end if old.expires_at is None else min(end, old.expires_at)
            connection.execute(table.insert().values(row))
            connection.execute(table.update().where(table.c.id == key_id).values(expires_at=format_moment(end)))
        return self._build_key(row), secret

    def note_key_uses(self, uses: Mapping[str, datetime]) -> None:
        """Store when keys were last used, by their ids."""
        table = schema.api_keys
        with self.database.writing() as connection:
            for key_id, moment in uses.items():
                used = format_moment(moment)
                later = table.c.last_used_at.is_(None) | (table.c.last_used_at < used)
                connection.execute(table.update().where((table.c.id == key_id) & later).values(last_used_at=used))

    def check_key(self, key: str) -> ApiKey | None:
        """The description of a key; None if it is unknown, revoked or expired."""
        prefix, _, rest = key.partition("_")
        key_id, _, secret = rest.partition("_")
        row = None
        if prefix == PREFIX and key_id.isascii() and key_id.isalnum():
            with self.database.reading() as connection:
                query = schema.api_keys.select().where(schema.api_keys.c.id == key_id)
                row = connection.execute(query).mappings().first()
        # An unknown id takes as long as a known one, so that timing reveals nothing.
        salt, expected = ("", "0" * 64) if row is None else (row["salt"], row["hash"])
        matches = hmac.compare_digest(_hash(salt, secret), expected)
        found = self._build_key(row) if row is not None and matches else None
        return found if found is not None and found.valid else None

    def revoke_key(self, key_id: str) -> ApiKey:
        """Make the key invalid from now on."""
        table = schema.api_keys
        ours = (table.c.id == key_id) & table.c.revoked_at.is_(None)
        with self.database.writing() as connection:
            query = table.update().where(ours).values(revoked_at=format_moment(utc_now())).returning(table)
            row = connection.execute(query).mappings().first()
        if row is None:
            raise _no_such_key(key_id)
        return self._build_key(row)

    def api_keys(self) -> list[ApiKey]:
        """All keys including revoked ones, newest first."""
        query = schema.api_keys.select().order_by(schema.api_keys.c.created_at.desc(), schema.api_keys.c.id)
        with self.database.reading() as connection:
            return [self._build_key(row) for row in connection.execute(query).mappings()]

    def _build_key(self, row: Row) -> ApiKey:
        return self._read(
            f"Key {row['id']}",
            lambda: ApiKey(
                id=row["id"],
                name=row["name"],
                scope=row["scope"],
                created_at=datetime.fromisoformat(row["created_at"]),
                revoked_at=_to_moment(row["revoked_at"]),
                expires_at=_to_moment(row["expires_at"]),
                last_used_at=_to_moment(row["last_used_at"]),
            ),
        )


def _make_row(name: str, scope: Scope, lifetime: timedelta | None) -> tuple[dict[str, Any], str]:
    """The row of a new key, and its secret."""
    if scope not in SCOPES:
        raise SettingsError(f"scope: must be {' or '.join(SCOPES)} (got {scope!r}).")
    key_id, secret, salt = secrets.token_hex(4), secrets.token_hex(32), secrets.token_hex(16)
    now = utc_now()
    row = {
        "id": key_id,
        "name": require_text("name", name),
        "scope": scope,
        "salt": salt,
        "hash": _hash(salt, secret),
        "created_at": format_moment(now),
        "revoked_at": None,
        "expires_at": None if lifetime is None else format_moment(now + lifetime),
        "last_used_at": None,
    }
    return row, f"{PREFIX}_{key_id}_{secret}"


def _no_such_key(key_id: str) -> NotRegisteredError:
    return NotRegisteredError(
        f"There is no key {key_id!r} that is neither revoked nor expired; `portfolio-sdpo keys list` lists them."
    )


def _to_moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _hash(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}:{secret}".encode(errors="replace")).hexdigest()
