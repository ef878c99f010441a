"""Backups that are whole whatever happens meanwhile, and restored beside whoever has the registry open."""

import os
import shutil
import signal
import sqlite3
import threading
import time
from contextlib import contextmanager
from datetime import UTC, date, datetime
from itertools import count

import pytest

from portfolio_sdpo.errors import NotRegisteredError, RegistryReplacedError, RegistryUnavailableError, SettingsError
from portfolio_sdpo.registry import AuditEntry, Registry, backup
from portfolio_sdpo.registry.witness import get_witness_path


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)


@pytest.fixture
def tools(url):
    if not url.startswith("sqlite") and shutil.which("pg_dump") is None:
        pytest.skip("PostgreSQL's client programs are not installed")


@contextmanager
def in_use(registry, ids):
    """Answers are recorded and champions promoted until the block ends."""
    stop, failures = threading.Event(), []

    def work(what):
        try:
            while not stop.is_set():
                what()
        except Exception as error:
            failures.append(error)

    turns = count()

    def promote():
        registry.promote(ids[next(turns) % 2], "turn")

    def answer():
        registry.append_audit([AuditEntry("r", {"CASH": 1.0}, "a" * 64) for _ in range(20)])

    threads = [threading.Thread(target=work, args=(what,)) for what in (promote, answer, answer)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.usefixtures("tools")
def test_backup_and_restore_while_it_is_used(registry, ids, url, tmp_path):
    _, secret = registry.create_key("desk", "read")
    registry.promote(ids[0], "first")
    before = registry.look()
    with in_use(registry, ids):
        while not registry.verify_audit().rows:
            time.sleep(0.01)
        for number in range(3):
            backup.back_up(registry, tmp_path / f"{number}.backup")
    champion = registry.promote(ids[2], "after the backups")
    rows = registry.verify_audit().rows
    with Registry.open(url) as other:  # as a service has it open
        backup.restore(tmp_path / "1.backup", url)
        assert other.champion().model_id in ids[:2] and other.champion().seq < champion.seq
        after = other.look()
        assert after.id == before.id and after.generation != before.generation
    check = backup.verify_registry(registry)
    assert check.sound and 0 < check.logs[1].rows < rows and check.models == 3
    assert registry.check_key(secret) is not None
    assert registry.append_audit([AuditEntry("r", {}, "")]) == [check.logs[1].rows + 1]


@pytest.mark.usefixtures("tools")
def test_backups_are_never_overwritten_and_never_in_part(registry, ids, tmp_path):
    (tmp_path / "there").touch()
    with pytest.raises(SettingsError, match="never overwritten"):
        backup.back_up(registry, tmp_path / "there")
    with pytest.raises(RegistryUnavailableError, match="cannot be written"):
        backup.back_up(registry, tmp_path / "there" / "below")
    folder = tmp_path / "new"
    backup.back_up(registry, folder / "whole")
    assert [path.name for path in folder.iterdir()] == ["whole"]
    with pytest.raises(SettingsError, match="there is no file"):
        backup.restore(folder / "none", registry.database.url.render_as_string(hide_password=False))


@pytest.mark.usefixtures("tools")
def test_another_registry_is_replaced_only_by_force(registry, ids, url, tmp_path, postgres_or_none):
    registry.promote(ids[0], "ours")
    backup.back_up(registry, tmp_path / "ours.backup")
    if registry.database.embedded:
        theirs = str(tmp_path / "theirs.db")
    else:
        theirs = url.replace("/postgres?", f"/{postgres_or_none.create()}?")
        schema = theirs.rpartition("%3D")[2]
        postgres_or_none.sql(f"CREATE SCHEMA {schema}", theirs.split("/")[3].partition("?")[0])
    with Registry.open(theirs) as other:
        other.promote(other.add_parts(registry.model_parts(ids[1])).id, "theirs")
        with pytest.raises(SettingsError, match="of another registry"):
            backup.restore(tmp_path / "ours.backup", theirs)
        assert other.champion().reason == "theirs"
        backup.restore(tmp_path / "ours.backup", theirs, force=True)
        with pytest.raises(RegistryReplacedError, match="another registry"):
            other.look()
    with Registry.open(theirs, create=False) as other:
        assert other.champion().reason == "ours" and backup.verify_registry(other).sound


@pytest.fixture
def postgres_or_none(request, url):
    return None if url.startswith("sqlite") else request.getfixturevalue("postgres")


def test_after_a_loss_of_the_file(tmp_path, parts):
    place = tmp_path / "r.db"
    with Registry.open(str(place)) as registry:
        registry.promote(registry.add_parts(parts).id, "first")
        backup.back_up(registry, tmp_path / "saved")
        registry.append_audit([AuditEntry("lost", {}, "")])
        shutil.copy(f"{place}-wal", tmp_path / "wal")
    place.unlink()
    shutil.copy(tmp_path / "wal", f"{place}-wal")  # what a crash leaves; it belongs to the file that is gone
    with pytest.raises(NotRegisteredError, match="There is no registry"):
        Registry.open(str(place), create=False)
    assert backup.restore(tmp_path / "saved", str(place)) is None
    with Registry.open(str(place), create=False) as registry:
        assert backup.verify_registry(registry).sound and registry.audit() == []
    place.write_bytes(b"x" * 10_000)
    kept = backup.restore(tmp_path / "saved", str(place))
    assert kept.read_bytes() == b"x" * 10_000
    with Registry.open(str(place), create=False) as registry:
        assert registry.champion().reason == "first"


def test_a_damaged_backup_replaces_nothing(tmp_path, parts):
    place = tmp_path / "r.db"
    with Registry.open(str(place)) as registry:
        model = registry.add_parts(parts)
        registry.promote(model.id, "first")
        backup.back_up(registry, tmp_path / "saved")
        connection = sqlite3.connect(tmp_path / "saved")
        with connection:
            connection.execute("UPDATE model_parts SET content = zeroblob(10) WHERE name = 'policy.safetensors'")
        connection.close()
        with pytest.raises(RegistryUnavailableError, match="is damaged"):
            backup.restore(tmp_path / "saved", str(place))
        assert registry.champion().reason == "first" and registry.damaged_models() == {}
    assert sorted(path.name for path in tmp_path.iterdir() if "r.db" in path.name) == ["r.db"]


def test_a_backup_knows_the_archives(tmp_path):
    with Registry.open(str(tmp_path / "r.db")) as registry:
        registry.append_audit([AuditEntry("r", {}, "", at=datetime(2026, 3, 1, tzinfo=UTC))])
        (archive,) = registry.archive_audit(date(2026, 5, 1))
        backup.back_up(registry, tmp_path / "saved")
        (registry.archive_folder / archive.file).unlink()
        with pytest.raises(RegistryUnavailableError, match="is missing"):
            backup.back_up(registry, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_killed_while_it_is_backed_up(registry, url, ids, start, tmp_path):
    if not registry.database.embedded and shutil.which("pg_dump") is None:
        pytest.skip("PostgreSQL's client programs are not installed")
    registry.append_audit([AuditEntry("r", {}, "", warnings=["x" * 1000]) for _ in range(2000)])
    script = """
from pathlib import Path
from portfolio_sdpo.registry import backup
for number in range(1000):
    say("next")
    backup.back_up(registry, Path(given[0]) / str(number))
"""
    for turn, wait in enumerate((0.0, 0.05, 0.2)):
        folder = tmp_path / str(turn)
        process = start(script, url, str(folder))
        assert process.stdout.readline() == "next\n"
        try:
            process.wait(wait)
        except Exception:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        whole = [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
        if registry.database.embedded:
            for path in whole:
                with Registry.open(str(path), create=False) as saved:
                    assert backup.verify_registry(saved).sound
    assert backup.verify_registry(registry).sound


def test_what_is_written_while_a_backup_is_restored_is_kept_or_stays(tmp_path, ids, registry):
    """A row that was answered for is in the state of before, which is kept, or in the restored one; never in none."""
    if not registry.database.embedded:
        pytest.skip("PostgreSQL restores in one transaction")
    registry.promote(ids[0], "first")
    registry.append_audit([AuditEntry("early", {"CASH": 1.0}, "a" * 64)])
    backup.back_up(registry, tmp_path / "one.backup")
    with in_use(registry, ids):
        while registry.verify_audit().rows < 50:
            time.sleep(0.01)
        kept = backup.restore(tmp_path / "one.backup", registry.place)
    assert backup.verify_registry(registry).sound
    with Registry.open(str(kept), create=False) as before:
        assert before.verify_audit().sound and before.verify_promotions().sound
        told = before.verify_audit().rows + registry.verify_audit().rows - 1
    with sqlite3.connect(registry.place) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
    assert "audit_no_update" in names and told >= 50
    with pytest.raises(Exception, match="only grows"), registry.database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM promotions")


def test_no_write_comes_between_the_kept_state_and_the_restored_one(tmp_path, ids, registry, monkeypatch):
    if not registry.database.embedded:
        pytest.skip("PostgreSQL restores in one transaction")
    registry.promote(ids[0], "first")
    backup.back_up(registry, tmp_path / "one.backup")
    copy, refused = backup._copy_sqlite, []

    def copy_and_write(source, target):
        copy(source, target)
        if "before-restore" in str(target):
            with Registry.open(registry.place, timeout=0.2, create=False) as other:
                with pytest.raises(RegistryUnavailableError, match="locked") as caught:
                    other.append_audit([AuditEntry("between", {"CASH": 1.0}, "a" * 64)])
                refused.append(caught.value)

    monkeypatch.setattr(backup, "_copy_sqlite", copy_and_write)
    backup.restore(tmp_path / "one.backup", registry.place)
    assert len(refused) == 1 and backup.verify_registry(registry).sound


def test_a_registry_that_is_only_locked_is_not_taken_for_damaged(tmp_path, ids, registry, monkeypatch):
    if not registry.database.embedded:
        pytest.skip("SQLite's files")
    registry.promote(ids[0], "first")
    backup.back_up(registry, tmp_path / "one.backup")
    identity = registry.look()

    def refuse(*_, **__):
        raise RegistryUnavailableError("The registry is locked by another process.")

    with monkeypatch.context() as patch:
        patch.setattr(backup, "_check_copy", lambda *_: identity.id)
        patch.setattr(Registry, "open", refuse)
        with pytest.raises(RegistryUnavailableError, match="locked"):
            backup.restore(tmp_path / "one.backup", registry.place)
    assert registry.look() == identity and registry.verify_promotions().rows == 1


def test_a_backup_is_one_file_that_reading_does_not_touch(tmp_path, ids, registry, monkeypatch):
    if not registry.database.embedded:
        pytest.skip("SQLite's files")
    path = tmp_path / "kept" / "one.backup"
    backup.back_up(registry, path)
    assert path.read_bytes()[18:20] == b"\x01\x01"  # not in WAL mode
    with sqlite3.connect(path) as connection:  # as earlier versions left it
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    content = path.read_bytes()
    monkeypatch.setattr(os, "access", lambda place, mode: "kept" not in str(place))
    backup.restore(path, str(tmp_path / "new" / "registry.db"))
    assert [each.name for each in path.parent.iterdir()] == ["one.backup"] and path.read_bytes() == content
    with Registry.open(str(tmp_path / "new" / "registry.db"), create=False) as restored:
        assert backup.verify_registry(restored).sound


def test_a_damaged_note_is_made_anew(registry, ids, caplog):
    if not registry.database.embedded:
        pytest.skip("SQLite's files")
    registry.promote(ids[0], "first")
    path = get_witness_path(registry.place)
    for damaged in (b"", b"[]", b'{"heads": 7}', b'{"heads": {"audit": 1}, "id": "", "generation": ""}', b"\xff\x00"):
        path.write_bytes(damaged)
        assert registry.note_heads(registry.look()) is None
        assert "is damaged and is written again" in caplog.text
        caplog.clear()
        assert registry.note_heads(registry.look()) is None and caplog.text == ""
