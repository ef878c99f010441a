"""A registry that vanishes, is replaced or was never there: nobody is served from it unnoticed, and nothing is made."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from portfolio_sdpo.registry import Registry, backup

from .helpers import problem


def copy(registry: Registry, to: Path) -> Path:
    """A copy of the database that another connection sees as a whole."""
    with closing(sqlite3.connect(registry.place)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
    return to


def replace(registry: Registry, by: Path) -> None:
    """With an empty WAL, since SQLite would apply that of the old file to the new one."""
    with closing(sqlite3.connect(registry.place)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for suffix in ("-wal", "-shm"):
        Path(registry.place + suffix).unlink(missing_ok=True)
    os.replace(by, registry.place)


def test_serve_creates_no_registry(tmp_path: Path, forks: Any):
    place = tmp_path / "mistyped" / "registry.db"
    for named in (["--registry", str(place)], []):
        process = forks.start("serve", "--port", "0", "--fail-to-cash", *named)
        _, errors = process.communicate()
        process.end()
        assert process.returncode == 1 and not place.parent.exists()
        assert "There is no registry at" in errors and "`portfolio-sdpo retrain`" in errors


@pytest.mark.parametrize("fail_to_cash", [False, True], ids=["error", "to cash"])
def test_what_cannot_be_read_keeps_the_last_answer_until_its_lease_ends(
    serve: Callable[..., Any], champion: Callable[..., str], home: Path, fail_to_cash: bool
):
    from .helpers import save_snapshot

    save_snapshot("until-june", "2021-06-30")
    champion("june")
    running = serve(lease=1.5, fail_to_cash=fail_to_cash)
    expected = running.settle().json()
    (home / "snapshots").rename(home / "elsewhere")
    gone, seen = time.monotonic(), []
    while (answer := running.http.get("/weights")).status_code == 200 and time.monotonic() < gone + 10:
        seen.append(answer.json())
        time.sleep(0.02)
    assert 0.5 < time.monotonic() - gone < 5.0  # neither at once nor for ever
    assert all(each == expected for each in seen)
    problem(answer, 503, "data-unavailable")
    (home / "elsewhere").rename(home / "snapshots")
    assert running.settle().json() == expected


def test_a_registry_that_vanishes_ends_the_lease(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry, tmp_path: Path
):
    champion()
    running = serve(lease=60.0, fail_to_cash=True)
    running.settle()
    running.audited(1)
    aside = copy(registry, tmp_path / "aside.db")
    for suffix in ("", "-wal", "-shm"):
        Path(registry.place + suffix).unlink(missing_ok=True)
    problem(running.settle("registry-replaced", 5.0), 503, "registry-replaced")
    time.sleep(0.2)
    assert not Path(registry.place).exists()  # nothing creates an empty one
    os.replace(aside, registry.place)
    running.settle()
    assert running.audited(2) and registry.verify_audit().sound


def test_a_copy_with_a_revoked_key_is_honoured(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry, tmp_path: Path
):
    champion("a")
    key, secret = registry.create_key("desk", "read")
    running = serve(lease=60.0)
    running.http.headers["X-API-Key"] = secret
    assert running.settle().json()["model"]["label"] == "a"
    running.audited(1)  # or the copy would lack a row, and be an older one
    copied = copy(registry, tmp_path / "copy.db")
    with Registry.open(str(copied)) as other:
        other.revoke_key(key.id)
    replace(registry, copied)
    running.settle("key-needed", 5.0)
    problem(running.http.get("/weights"), 401, "key-needed")


def test_another_registry_is_never_served_nor_written(
    serve: Callable[..., Any],
    champion: Callable[..., str],
    models: dict[str, dict[str, bytes]],
    registry: Registry,
    tmp_path: Path,
):
    champion("a")
    running = serve(lease=60.0)
    served = running.settle().json()["weights"]
    running.audited(1)
    with Registry.open(str(tmp_path / "other.db")) as other:
        other.promote(other.add_parts(models["b"]).id, "another desk", by="test")
        stranger = copy(other, tmp_path / "stranger.db")
    aside = copy(registry, tmp_path / "aside.db")
    replace(registry, stranger)
    running.settle("registry-replaced", 5.0)
    for _ in range(20):
        problem(running.http.get("/weights"), 503, "registry-replaced")
        time.sleep(0.02)
    with Registry.open(registry.place) as found:
        assert found.audit() == []
    replace(registry, aside)
    assert running.settle().json()["weights"] == served


def test_a_withdrawn_champion_stays_withdrawn(registry: Registry, champion: Callable[..., str]):
    first = champion("a")
    second = champion("b")
    registry.withdraw("in doubt", by="test", expected_champion=second)
    assert registry.champion() is None
    assert registry.rollback("it was right", by="test").model_id == second
    assert registry.rollback("it was not", by="test").model_id == first
    registry.withdraw("in doubt", by="test")
    assert registry.promote(first, "checked", by="test").model_id == first
    assert registry.verify_promotions().sound


def test_the_files_of_a_registry_stay_in_its_folder(registry: Registry, home: Path):
    registry.look()
    shutil.copytree(home, home.parent / "copied")  # a copied home is the same registry at another place
    with Registry.open(str(home.parent / "copied" / "registry.db"), create=False) as other:
        assert other.look().id == registry.look().id


def test_verify_says_that_an_older_copy_is_in_its_place(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry, tmp_path: Path
):
    champion()
    older = copy(registry, tmp_path / "older.db")
    running = serve()
    running.settle()
    rows = len(running.audited(1))
    time.sleep(0.3)  # the next look notes them
    backup.back_up(registry, tmp_path / "whole.backup")
    assert backup.verify_registry(registry).sound
    replace(registry, older)
    running.settle("registry-replaced")
    for _ in range(rows + 3):  # refused for as long as it is there, prices that are sent included
        problem(running.http.get("/weights"), 503, "registry-replaced")
        assert running.http.post("/weights", json={}).status_code == 503
        time.sleep(0.02)
    with Registry.open(registry.place) as found:
        check = backup.verify_registry(found)
        assert not check.sound and "an older copy is in its place: row " in str(check.replaced)
        assert all(log.sound for log in check.logs) and found.audit() == []  # nothing was written to it
    backup.restore(tmp_path / "whole.backup", registry.place)
    running.settle()
    assert backup.verify_registry(registry).sound
