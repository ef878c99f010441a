"""Rows of past months in files: still links of the chain, deleted only by policy, and safe to kill."""

import gzip
import signal
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy.exc import DBAPIError

from portfolio_sdpo.errors import RegistryUnavailableError
from portfolio_sdpo.registry import AuditEntry, archive, backup

MARCH = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))


def fill(registry, days=75):
    """One row a day from the first of March."""
    entries = [
        AuditEntry(
            f"r{day}", {"CASH": 0.25, "Ä": 0.1}, "a" * 64, promised_cvar=-0.1 / 3, at=MARCH + timedelta(days=day)
        )
        for day in range(days)
    ]
    registry.append_audit(entries)


def test_months_move_to_files_that_verify_follows(registry):
    fill(registry)
    head = registry.verify_audit().head
    made = registry.archive_audit(date(2026, 5, 1))
    assert [(each.month, each.first_seq, each.last_seq) for each in made] == [("2026-03", 1, 31), ("2026-04", 32, 61)]
    assert sorted(path.name for path in registry.archive_folder.iterdir()) == [each.file for each in made]
    assert [row.seq for row in registry.audit(limit=100)][::-1] == list(range(62, 76))
    check = registry.verify_audit()
    assert (check.sound, check.rows, check.head) == (True, 75, head)
    assert registry.archive_audit(date(2026, 5, 1)) == []
    assert registry.append_audit([AuditEntry("later", {}, "")]) == [76]
    assert registry.verify_audit().rows == 76


def test_files_are_small_parts_of_a_month(registry, monkeypatch):
    monkeypatch.setattr(archive, "ROWS", 20)
    fill(registry)
    made = registry.archive_audit(date(2026, 5, 1))
    assert [each.rows for each in made] == [20, 11, 20, 10]
    assert registry.verify_audit().rows == 75


def test_a_file_that_is_changed_or_gone_is_named(registry):
    fill(registry)
    _, second = registry.archive_audit(date(2026, 5, 1))
    path = registry.archive_folder / second.file
    content = path.read_bytes()
    path.write_bytes(gzip.compress(gzip.decompress(content).replace(b'"r40"', b'"x40"')))
    check = registry.verify_audit()
    assert not check.sound and check.broken == 32 and f"{second.file} was changed" in check.problem
    path.unlink()
    assert f"{second.file} is missing" in registry.verify_audit().problem
    path.write_bytes(content)
    assert registry.verify_audit().sound


def test_a_forged_record_of_a_file_is_named(registry, alter):
    fill(registry)
    registry.archive_audit(date(2026, 5, 1))
    drop = "DROP TRIGGER audit_archives_no_update" if registry.database.embedded else (
        "DROP TRIGGER audit_archives_only_grows ON audit_archives"
    )  # fmt: skip
    alter(drop, f"UPDATE audit_archives SET last_hash = '{'f' * 64}' WHERE seq = 1")
    assert "the record of its archives is damaged (row 1 was changed)" in registry.verify_audit().problem


def test_old_files_are_deleted_by_policy_and_stay_on_record(registry):
    fill(registry)
    first, second = registry.archive_audit(date(2026, 5, 1))
    assert [each.file for each in registry.delete_archives("2026-04")] == [first.file]
    assert [path.name for path in registry.archive_folder.iterdir()] == [second.file]
    check = registry.verify_audit()
    assert check.sound and check.rows == 75
    (registry.archive_folder / first.file).touch()  # as a crash would leave it
    assert registry.delete_archives("2026-04") == []
    assert [path.name for path in registry.archive_folder.iterdir()] == [second.file]


def test_archives_of_a_state_that_a_backup_replaced_are_kept(registry, tmp_path):
    """The same numbers are other rows after a restore: the files of before are the only copy of what they hold."""
    if not registry.database.embedded:
        pytest.skip("PostgreSQL's tools make its backups")
    fill(registry, 10)
    backup.back_up(registry, tmp_path / "early.backup")
    registry.append_audit([AuditEntry("before", {"CASH": 1.0}, "b" * 64, at=MARCH + timedelta(days=11))])
    (before,) = registry.archive_audit(date(2026, 5, 1))
    content = (registry.archive_folder / before.file).read_bytes()
    backup.restore(tmp_path / "early.backup", registry.place)
    registry.append_audit([AuditEntry("after", {"CASH": 1.0}, "c" * 64, at=MARCH + timedelta(days=12))])
    (after,) = registry.archive_audit(date(2026, 5, 1))
    assert (after.first_seq, after.last_seq) == (before.first_seq, before.last_seq)
    assert (registry.archive_folder / before.file).read_bytes() == content
    assert registry.verify_audit().sound


def test_rows_that_are_not_archived_cannot_be_deleted(registry, alter):
    fill(registry)
    registry.archive_audit(date(2026, 4, 1))
    with pytest.raises(DBAPIError, match="audit only grows"):
        alter("DELETE FROM audit WHERE seq = 32")
    for statement in ("DELETE FROM audit_archives", "UPDATE audit_archives SET last_seq = 75"):
        with pytest.raises(DBAPIError, match="audit_archives only grows"):
            alter(statement)
    assert registry.verify_audit().rows == 75


def test_a_broken_chain_is_not_archived(registry, alter):
    fill(registry)
    drop = "DROP TRIGGER audit_no_update" if registry.database.embedded else "DROP TRIGGER audit_only_grows ON audit"
    alter(drop, "UPDATE audit SET weights = '{}' WHERE seq = 40")
    with pytest.raises(Exception, match="row 40 was changed"):
        registry.archive_audit(date(2026, 5, 1))
    assert registry.verify_audit().broken == 40


def test_killed_while_it_archives(registry, url, start, tmp_path):
    """Five kills at different moments; whatever was done, the chain is whole and no row is lost."""
    fill(registry, 75)
    script = """
from datetime import date
from portfolio_sdpo.registry import archive
archive.ROWS = 1
say("ready")
registry.archive_audit(date(2026, 5, 1))
say("done")
"""
    for wait in (0.0, 0.02, 0.05, 0.1, 0.2):
        process = start(script, url)
        assert process.stdout.readline() == "ready\n"
        try:
            process.wait(wait)
        except Exception:
            process.send_signal(signal.SIGKILL)
            process.wait()
        check = registry.verify_audit()
        assert (check.sound, check.rows) == (True, 75), check
    registry.archive_audit(date(2026, 5, 1))
    assert registry.verify_audit().rows == 75 and len(registry.audit(limit=100)) == 14
    files = {path.name for path in registry.archive_folder.iterdir() if not path.name.startswith(".")}
    assert files == {each.file for each in registry.archives()}


def test_a_restore_amid_an_archive_loses_no_rows(registry, tmp_path, monkeypatch):
    """The rows that were read are not those that would be deleted."""
    if not registry.database.embedded:
        pytest.skip("PostgreSQL's tools make its backups")
    fill(registry, 10)
    backup.back_up(registry, tmp_path / "early.backup")
    write = archive._write_file

    def write_and_restore(path, rows):
        backup.restore(tmp_path / "early.backup", registry.place)
        return write(path, rows)

    with monkeypatch.context() as patch:
        patch.setattr(archive, "_write_file", write_and_restore)
        with pytest.raises(RegistryUnavailableError, match="restored by another process"):
            registry.archive_audit(date(2026, 5, 1))
    assert len(registry.audit(limit=100)) == 10 and registry.verify_audit().sound
    registry.archive_audit(date(2026, 5, 1))
    assert registry.verify_audit().rows == 10
