"""A registry in PostgreSQL that vanishes, is replaced by another or by an older state of itself, under the service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from portfolio_sdpo.errors import RegistryReplacedError
from portfolio_sdpo.registry import AuditEntry, Registry
from portfolio_sdpo.registry.backup import verify_registry

from ...registry.conftest import Server, postgres
from .helpers import problem

__all__ = ["postgres"]


@pytest.fixture
def place(postgres: Server) -> str:
    """The schema that the registry is in."""
    name = f"s{uuid4().hex}"
    postgres.sql(f"CREATE SCHEMA {name}")
    return name


def url_of(postgres: Server, place: str) -> str:
    return f"{postgres.url('postgres')}&options=-csearch_path%3D{place}"


@pytest.fixture
def registry(home: Path, postgres: Server, place: str) -> Iterator[Registry]:
    with Registry.open(url_of(postgres, place), timeout=5.0) as opened:
        yield opened


def move(postgres: Server, source: str, target: str) -> None:
    postgres.sql(f"ALTER SCHEMA {source} RENAME TO {target}")


@pytest.mark.parametrize("fail_to_cash", [False, True], ids=["error", "to cash"])
def test_a_registry_that_vanishes_ends_the_lease(
    serve: Callable[..., Any],
    champion: Callable[..., str],
    registry: Registry,
    postgres: Server,
    place: str,
    fail_to_cash: bool,
):
    champion()
    running = serve(lease=60.0, fail_to_cash=fail_to_cash)
    served = running.settle().json()
    running.audited(1)
    move(postgres, place, f"{place}_away")
    problem(running.settle("registry-replaced"), 503, "registry-replaced")
    postgres.sql(f"CREATE SCHEMA {place}")  # empty, and it stays so
    time.sleep(0.3)
    problem(running.http.get("/weights"), 503, "registry-replaced")
    assert postgres.sql(f"SELECT * FROM pg_tables WHERE schemaname = '{place}'") == []
    postgres.sql(f"DROP SCHEMA {place}")
    move(postgres, f"{place}_away", place)
    assert running.settle().json() == served
    assert registry.verify_audit().sound


def test_another_registry_is_never_served_nor_written(
    serve: Callable[..., Any],
    champion: Callable[..., str],
    models: dict[str, dict[str, bytes]],
    registry: Registry,
    postgres: Server,
    place: str,
):
    champion("a")
    running = serve(lease=60.0)
    served = running.settle().json()["weights"]
    running.audited(1)
    postgres.sql(f"CREATE SCHEMA {place}_other")
    with Registry.open(url_of(postgres, f"{place}_other")) as other:
        other.promote(other.add_parts(models["b"]).id, "another desk", by="test")
    move(postgres, place, f"{place}_away")
    move(postgres, f"{place}_other", place)
    with pytest.raises(RegistryReplacedError, match="another registry"):  # not even before the service looks
        registry.append_audit([AuditEntry("r", {"CASH": 1.0}, "a" * 64)])
    running.settle("registry-replaced")
    for _ in range(20):
        problem(running.http.get("/weights"), 503, "registry-replaced")
        time.sleep(0.02)
    with Registry.open(url_of(postgres, place)) as found:
        assert found.audit() == []
    move(postgres, place, f"{place}_other")
    move(postgres, f"{place}_away", place)
    assert running.settle().json()["weights"] == served


def test_an_older_state_by_the_tools_of_postgresql_is_refused(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry, postgres: Server, place: str
):
    """The row of a promotion and of answers are gone, though every chain is sound in itself."""
    champion("a")
    dump = postgres.folder / f"{place}.sql"
    connect = ("-h", str(postgres.folder), "-U", "owner", "-d", "postgres")
    postgres.run("pg_dump", *connect, "--schema", place, "-f", str(dump))
    champion("b")
    running = serve(lease=60.0, fail_to_cash=True)
    assert running.settle().json()["model"]["label"] == "b"
    rows = len(running.audited(1))
    time.sleep(0.3)  # the next look notes them
    postgres.sql(f"DROP SCHEMA {place} CASCADE")
    postgres.run("psql", *connect, "-q", "-v", "ON_ERROR_STOP=1", "--single-transaction", "-f", str(dump))
    with pytest.raises(RegistryReplacedError):  # not even before the service looks
        registry.append_audit([AuditEntry("r", {"CASH": 1.0}, "a" * 64)])
    running.settle("registry-replaced")
    for _ in range(rows + 3):  # refused for as long as it is there, and nothing is written to it
        problem(running.http.get("/weights"), 503, "registry-replaced")
        assert running.http.post("/weights", json={}).status_code == 503
        time.sleep(0.02)
    with Registry.open(url_of(postgres, place)) as found:
        assert found.audit() == [] and verify_registry(found).sound
