"""API keys: only who has the secret gets in, and the database does not have it."""

import pytest
import sqlalchemy as sa

from portfolio_sdpo.errors import NotRegisteredError, SettingsError
from portfolio_sdpo.registry import schema


def test_a_key_opens_what_its_scope_says(registry):
    (reader, secret), (trainer, other) = registry.create_key("dashboard", "read"), registry.create_key("cron", "train")
    assert registry.check_key(secret) == reader and registry.check_key(other) == trainer
    assert reader.allows("read") and not reader.allows("train")
    assert trainer.allows("read") and trainer.allows("train")
    assert {key.id for key in registry.api_keys()} == {reader.id, trainer.id}


def test_only_the_whole_secret(registry):
    key, secret = registry.create_key("a", "read")
    last = "0" if secret[-1] != "0" else "1"
    for wrong in (
        "",
        "x",
        secret[:-1],
        secret[:-1] + last,
        secret + "0",
        secret.upper(),
        f"psdpo_{key.id}_",
        "psdpo_\0_x",
    ):
        assert registry.check_key(wrong) is None
    for wrong in ("psdpo_äöü_x", "psdpo__", f"psdpo_{key.id}_\ud800"):
        assert registry.check_key(wrong) is None


def test_the_secret_is_not_in_the_database(registry):
    _, secret = registry.create_key("a", "read")
    with registry.database.reading() as connection:
        row = connection.execute(sa.select(schema.api_keys)).one()
    assert secret.rpartition("_")[2] not in str(row)
    assert len(secret.rpartition("_")[2]) == 64  # 256 bits
    assert registry.create_key("b", "read")[1] != secret


def test_revoked_is_revoked(registry):
    key, secret = registry.create_key("a", "train")
    revoked = registry.revoke_key(key.id)
    assert registry.check_key(secret) is None and not revoked.allows("read")
    with pytest.raises(NotRegisteredError, match=r"no key .* that is not revoked"):
        registry.revoke_key(key.id)


def test_mistakes(registry):
    with pytest.raises(SettingsError, match="scope: must be read or train"):
        registry.create_key("a", "admin")
    with pytest.raises(SettingsError, match="name: must not be empty"):
        registry.create_key(" ", "read")
