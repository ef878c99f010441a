"""What was served stays as it was served, and whoever changes it is found out."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from portfolio_sdpo.errors import RegistryError, SettingsError
from portfolio_sdpo.registry import AuditEntry, to_record

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(max_size=20).filter(lambda text: "\0" not in text and text.isprintable())
ENTRIES = st.builds(
    AuditEntry,
    request_id=WORDS,
    weights=st.dictionaries(WORDS, NUMBERS, max_size=4),
    response_hash=st.just("a" * 64),
    model_id=st.none() | st.just("20260101-deadbeef"),
    data_hash=st.none() | st.just("b" * 64),
    as_of=st.none() | st.dates(),
    shield_factor=st.none() | NUMBERS,
    promised_cvar=st.none() | NUMBERS,
    limit=st.none() | NUMBERS,
    warnings=st.lists(WORDS, max_size=3).map(tuple),
    at=st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)),
)
RAW = {
    "update": ("DROP TRIGGER audit_no_update", "DROP TRIGGER audit_only_grows ON audit"),
    "delete": ("DROP TRIGGER audit_no_delete", "DROP TRIGGER audit_only_grows ON audit"),
}


def entry(number=0, **changes):
    given = {"request_id": f"r{number}", "weights": {"CASH": 0.25, "AAPL": 0.75}, "response_hash": "a" * 64}
    return AuditEntry(**(given | changes))


# Plain text is some filtered text, and a run with bad luck filters more of it than Hypothesis thinks healthy.
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(st.lists(ENTRIES, max_size=5))
def test_it_comes_back_as_it_was(registry, entries):
    numbers = registry.append_audit(entries)
    rows = registry.audit(limit=len(entries) or 1)
    if entries:
        assert [row.seq for row in rows] == numbers[::-1]
        assert [row.entry for row in rows] == entries[::-1]
        before = registry.audit(limit=1, before=numbers[0])
        assert rows[-1].previous_hash == (before[0].hash if before else "0" * 64)
    check = registry.verify_audit()
    assert check.sound and check.broken is None


def test_filters_and_pages(registry):
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for number in range(10):
        registry.append_audit([entry(number, at=noon + timedelta(hours=number), model_id=f"m{number % 2}")])
    assert [row.seq for row in registry.audit(limit=3)] == [10, 9, 8]
    assert [row.seq for row in registry.audit(limit=3, before=8)] == [7, 6, 5]
    assert [row.seq for row in registry.audit(model_id="m1", limit=2)] == [10, 8]
    assert [row.seq for row in registry.audit(request_id="r4")] == [5]
    # 14:00 in Athens is noon.
    athens = timezone(timedelta(hours=2))
    since, until = datetime(2026, 1, 1, 15, tzinfo=athens), datetime(2026, 1, 1, 17, tzinfo=athens)
    assert [row.seq for row in registry.audit(since=since, until=until)] == [3, 2]
    assert to_record(registry.audit(limit=1)[0])["entry"]["at"] == "2026-01-01T21:00:00+00:00"


def test_all_or_nothing(registry):
    registry.append_audit([entry(0)])
    for wrong in (
        entry(2, shield_factor=float("nan")),
        entry(2, weights={"CASH": float("inf")}),
        entry(2, request_id="a\0"),
    ):
        with pytest.raises(SettingsError):
            registry.append_audit([entry(1), wrong])
    assert registry.append_audit([]) == []
    assert registry.verify_audit().rows == 1


@pytest.mark.parametrize(
    "change", ["UPDATE audit SET weights = '{}'", "DELETE FROM audit WHERE seq = 3", "TRUNCATE audit"]
)
def test_the_database_refuses_changes(registry, alter, change):
    registry.append_audit([entry(number) for number in range(3)])
    if change == "TRUNCATE audit" and registry.database.embedded:
        return  # SQLite has no such word
    with pytest.raises(DBAPIError, match="audit only grows"):
        alter(change)
    assert registry.verify_audit().rows == 3


@pytest.mark.parametrize(
    ("change", "broken", "problem"),
    [
        ("UPDATE audit SET weights = '{\"CASH\":1.0}' WHERE seq = 3", 3, "row 3 was changed"),
        ("UPDATE audit SET promised_cvar = -0.04 WHERE seq = 4", 4, "row 4 was changed"),
        ("UPDATE audit SET at = '2026-01-01T00:00:00.000000+00:00' WHERE seq = 1", 1, "row 1 was changed"),
        ("UPDATE audit SET shield_factor = NULL WHERE seq = 2", 2, "row 2 was changed"),
        ("UPDATE audit SET previous_hash = hash WHERE seq = 2", 2, "row 2 does not follow the row before it"),
        ("DELETE FROM audit WHERE seq = 3", 3, "row 3 is missing"),
        ("DELETE FROM audit WHERE seq = 1", 1, "row 1 is missing"),
        ("DELETE FROM audit WHERE seq > 4", 5, "row 5 is missing"),
        ("DELETE FROM audit", 1, "row 1 is missing"),
        ("UPDATE audit SET seq = 7 WHERE seq = 5", 5, "row 5 is missing"),
        ("UPDATE heads SET hash = 'f' WHERE name = 'audit'", 6, "row 6 is not the one that was written"),
        ("UPDATE heads SET seq = 4 WHERE name = 'audit'", 5, "row 5 was added from outside"),
    ],
)
def test_what_is_changed_all_the_same_is_named(registry, alter, change, broken, problem):
    registry.append_audit([entry(number, shield_factor=1.0, promised_cvar=-0.05) for number in range(6)])
    if "audit SET" in change or change.startswith("DELETE"):
        drop = RAW[change.split()[0].lower()][0 if registry.database.embedded else 1]
        alter(drop, change)
    else:
        alter(change)
    check = registry.verify_audit()
    assert (check.sound, check.broken, check.problem) == (False, broken, problem)


def test_a_row_that_cannot_be_read_is_told(registry, alter):
    registry.append_audit([entry()])
    alter(RAW["update"][0 if registry.database.embedded else 1], "UPDATE audit SET weights = '{' WHERE seq = 1")
    with pytest.raises(RegistryError, match=r"Row 1 of the audit in the registry at .* is damaged"):
        registry.audit()


def test_a_missing_head_is_told(registry, alter):
    alter("DELETE FROM heads WHERE name = 'audit'")
    with pytest.raises(RegistryError, match=r"log of audit in the registry is damaged .its head is missing"):
        registry.append_audit([entry()])


def test_days_and_signs(registry):
    """SQLite forgets the sign of zero; the hash is over what comes back."""
    registry.append_audit([entry(promised_cvar=-0.0, limit=0, as_of=date(2021, 10, 14))])
    row = registry.audit()[0]
    assert registry.verify_audit().sound and row.entry.promised_cvar == 0.0 and row.entry.as_of == date(2021, 10, 14)
