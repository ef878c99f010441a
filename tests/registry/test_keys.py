"""API keys: only who has the secret gets in, and the database does not have it."""

import time
from datetime import UTC, datetime, timedelta

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
    with pytest.raises(NotRegisteredError, match=r"no key .* that is neither revoked nor expired"):
        registry.revoke_key(key.id)


def test_mistakes(registry):
    with pytest.raises(SettingsError, match="scope: must be read or train"):
        registry.create_key("a", "admin")
    with pytest.raises(SettingsError, match="name: must not be empty"):
        registry.create_key(" ", "read")


def test_keys_expire(registry):
    key, secret = registry.create_key("desk", "read", lifetime=timedelta(seconds=0.4))
    assert registry.check_key(secret) == key and key.valid and key.allows("read")
    time.sleep(0.5)
    assert registry.check_key(secret) is None and not registry.api_keys()[0].allows("read")
    with pytest.raises(NotRegisteredError, match="neither revoked nor expired"):
        registry.rotate_key(key.id, overlap=timedelta(0))


def test_a_key_is_rotated_with_an_overlap(registry):
    old, old_secret = registry.create_key("nightly", "train", lifetime=timedelta(days=90))
    new, new_secret = registry.rotate_key(old.id, overlap=timedelta(seconds=0.5))
    assert (new.name, new.scope, new.id != old.id) == ("nightly", "train", True)
    assert new.expires_at - new.created_at == timedelta(days=90)
    assert registry.check_key(old_secret) and registry.check_key(new_secret)
    time.sleep(0.6)
    assert registry.check_key(old_secret) is None and registry.check_key(new_secret) == new


def test_the_last_use_is_noted_and_never_goes_back(registry):
    key, _ = registry.create_key("desk", "read")
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for moment in (noon, noon - timedelta(hours=1)):
        registry.note_key_uses({key.id: moment, "unknown": moment})
    assert registry.api_keys()[0].last_used_at == noon
