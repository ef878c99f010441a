"""One champion at any time, whoever promotes; the log keeps every promotion."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from portfolio_sdpo.errors import ChampionChangedError, NotRegisteredError, SettingsError
from portfolio_sdpo.registry import ANYONE


def test_the_last_promotion_counts(registry, ids):
    assert registry.champion() is None and registry.promotions() == []
    first = registry.promote(ids[0], " the first ", by="me")
    assert (first.seq, first.kind, first.previous, first.reason, first.by) == (1, "promote", None, "the first", "me")
    second = registry.promote(ids[1], "better")
    assert second.previous == ids[0] and second.by
    assert registry.champion() == second and registry.promotions() == [second, first]
    assert registry.promote(ids[1], "again") == second  # what is champion stays it, without an entry
    assert registry.verify_promotions().rows == 2


def test_compare_and_swap(registry, ids):
    registry.promote(ids[0], "first", expected_champion=None)
    with pytest.raises(ChampionChangedError, match=f"The champion is {ids[0]} and not nobody any more"):
        registry.promote(ids[1], "late", expected_champion=None)
    with pytest.raises(ChampionChangedError, match=f"and not {ids[2]} any more"):
        registry.promote(ids[1], "late", expected_champion=ids[2])
    with pytest.raises(ChampionChangedError):
        registry.rollback("late", expected_champion=ids[2])
    assert registry.promote(ids[1], "right", expected_champion=ids[0]).previous == ids[0]
    assert registry.promote(ids[2], "whoever", expected_champion=ANYONE).previous == ids[1]
    assert len(registry.promotions()) == 3


def test_rollback_walks_back(registry, ids):
    with pytest.raises(NotRegisteredError, match="no earlier champion"):
        registry.rollback("nothing there")
    for name in ids:
        registry.promote(name, "next")
    back = registry.rollback("drawdown")
    assert (back.kind, back.model_id, back.previous) == ("rollback", ids[1], ids[2])
    assert registry.rollback("worse still").model_id == ids[0]
    with pytest.raises(NotRegisteredError):
        registry.rollback("nobody before")
    assert registry.champion().model_id == ids[0]
    registry.promote(ids[2], "mended")
    assert registry.rollback("no").model_id == ids[0] and len(registry.promotions()) == 7


def test_mistakes_leave_everything_as_it_was(registry, ids):
    registry.promote(ids[0], "first")
    before = registry.promotions()
    with pytest.raises(NotRegisteredError, match="There is no model 'nobody' to promote"):
        registry.promote("nobody", "x")
    for reason in ("", "  ", "a\0b", "\ud800"):
        with pytest.raises(SettingsError, match="reason: must"):
            registry.promote(ids[1], reason)
        with pytest.raises(SettingsError, match="reason: must"):
            registry.rollback(reason)
    assert registry.promotions() == before and registry.verify_promotions().sound


@pytest.mark.parametrize("change", ["UPDATE promotions SET reason = 'x'", "DELETE FROM promotions"])
def test_the_database_refuses_changes(registry, ids, alter, change):
    registry.promote(ids[0], "first")
    with pytest.raises(DBAPIError, match="promotions only grows"):
        alter(change)
    assert registry.verify_promotions().sound


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([0, 1, 2, None]), max_size=12))
def test_as_a_stack(registry, ids, moves):
    """Any sequence of promotions and rollbacks (None) against the plainest model of it: a stack."""
    line = [ids[0]] if registry.champion() is None else None
    if line:
        registry.promote(ids[0], "start")
    else:
        line = _line(registry)
    for move in moves:
        if move is not None:
            registry.promote(ids[move], "up")
            line += [ids[move]] if line[-1] != ids[move] else []
        elif len(line) > 1:
            registry.rollback("down")
            line.pop()
        else:
            with pytest.raises(NotRegisteredError):
                registry.rollback("down")
        assert registry.champion().model_id == line[-1]
    log = registry.promotions()
    assert all(new.previous == old.model_id for new, old in zip(log[:-1], log[1:], strict=True))
    assert registry.verify_promotions().sound


def _line(registry):
    line = []
    for entry in reversed(registry.promotions()):
        if entry.kind == "rollback":
            line.pop()
        else:
            line.append(entry.model_id)
    return line
