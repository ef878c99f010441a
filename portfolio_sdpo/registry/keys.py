"""API keys, of which only a salted hash is stored.

The hash is one sha256 and not scrypt: scrypt makes guessing expensive where people choose passwords, and a key here is
256 random bits, which nobody can guess at any speed. So the check takes microseconds and not 50 ms.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from portfolio_sdpo.errors import NotRegisteredError, SettingsError
from portfolio_sdpo.registry import schema
from portfolio_sdpo.registry.records import Repository, Row, format_moment, require_text, utc_now

Scope = Literal["read", "train"]
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

    def allows(self, scope: Scope) -> bool:
        """Whether the key has this scope; `train` includes `read`."""
        return self.revoked_at is None and (self.scope == scope or self.scope == "train")


class Keys(Repository):
    """Creates, checks and revokes keys."""

    def create_key(self, name: str, scope: Scope) -> tuple[ApiKey, str]:
        """A new key and its secret, which is returned only here and cannot be recovered."""
        if scope not in get_args(Scope):
            raise SettingsError(f"scope: must be {' or '.join(get_args(Scope))} (got {scope!r}).")
        key_id, secret, salt = secrets.token_hex(4), secrets.token_hex(32), secrets.token_hex(16)
        row = {
            "id": key_id,
            "name": require_text("name", name),
            "scope": scope,
            "salt": salt,
            "hash": _hash(salt, secret),
            "created_at": format_moment(utc_now()),
            "revoked_at": None,
        }
        with self.database.writing() as connection:
            connection.execute(schema.api_keys.insert().values(row))
        return self._build_key(row), f"{PREFIX}_{key_id}_{secret}"

    def check_key(self, key: str) -> ApiKey | None:
        """The description of a key; None if it is unknown or revoked."""
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
        return self._build_key(row) if row is not None and matches and row["revoked_at"] is None else None

    def revoke_key(self, key_id: str) -> ApiKey:
        """Make the key invalid from now on."""
        table = schema.api_keys
        ours = (table.c.id == key_id) & table.c.revoked_at.is_(None)
        with self.database.writing() as connection:
            query = table.update().where(ours).values(revoked_at=format_moment(utc_now())).returning(table)
            row = connection.execute(query).mappings().first()
        if row is None:
            raise NotRegisteredError(
                f"There is no key {key_id!r} that is not revoked; `portfolio-sdpo keys list` lists them."
            )
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
                revoked_at=None if row["revoked_at"] is None else datetime.fromisoformat(row["revoked_at"]),
            ),
        )


def _hash(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}:{secret}".encode(errors="replace")).hexdigest()
