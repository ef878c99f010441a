"""Registries in SQLite and in a PostgreSQL server that is started here, small trained agents, prices to retrain on."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
import pytest

from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.portfolio.store import read_parts, train_agent
from portfolio_sdpo.prices.ingest import import_snapshot
from portfolio_sdpo.prices.samples import load_sample
from portfolio_sdpo.registry import Registry

QUICK = AgentSettings(
    history=60, paths=8, first=2, further=1, learner={"kind": "analytic", "hidden": (4, 4), "learning_rate": 0.1}
)


def missing(what: str) -> None:
    """Skip; where continuous integration promised that it is there, fail."""
    if os.environ.get("PORTFOLIO_SDPO_CI"):
        pytest.fail(what)
    pytest.skip(what)


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server of this test session, reached by a socket in its folder."""

    folder: Path
    tools: Path
    user: str | None
    """Whom it runs as, when not as us: it refuses root."""

    def run(self, *command: str) -> None:
        owner: dict[str, Any] = {}
        if self.user:
            owner = {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}
        done = subprocess.run(
            [str(self.tools / command[0]), *command[1:]], cwd=self.folder, capture_output=True, text=True, **owner
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def sql(self, statement: str, name: str = "postgres") -> list[Any]:
        import psycopg

        with psycopg.connect(f"host={self.folder} user=owner dbname={name}", autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def url(self, name: str) -> str:
        return f"postgresql:///{name}?host={self.folder}&user=owner"

    def create(self, tablespace: str = "pg_default") -> str:
        name = f"r{uuid4().hex}"
        self.sql(f"CREATE DATABASE {name} TABLESPACE {tablespace}")
        return name


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = str(found[-1]) if found else shutil.which("initdb")
    if initdb is None:
        missing("PostgreSQL is not installed (Debian: postgresql)")
    user = None
    if os.geteuid() == 0:
        known = {entry.pw_name for entry in pwd.getpwall()}
        user = next((name for name in ("postgres", "nobody") if name in known), None)
        if user is None:
            missing("PostgreSQL refuses to run as root, and there is no other user")
    # Not below pytest's folder, which only root can enter; short, because a socket's path has 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if user:
        shutil.chown(folder, user)
    server = Server(folder, Path(str(initdb)).parent, user)
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c max_connections=50"
    try:
        server.run("initdb", "-D", "data", "-U", "owner", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        server.run("pg_ctl", "-D", "data", "-w", "-s", "-l", "log", "-o", options, "start")
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.run("pg_ctl", "-D", "data", "-w", "-s", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a registry that is not there yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'registry.db'}"
    server: Server = request.getfixturevalue("postgres")
    # A schema of its own: a database would take 8 MB of disk and a moment for every test.
    name = f"s{uuid4().hex}"
    server.sql(f"CREATE SCHEMA {name}")
    return f"{server.url('postgres')}&options=-csearch_path%3D{name}"


@pytest.fixture
def registry(url: str) -> Iterator[Registry]:
    with Registry.open(url, timeout=5.0) as opened:
        yield opened


@pytest.fixture
def alter(registry: Registry) -> Callable[..., None]:
    """Change tables behind the registry's back, as one who owns the database can."""

    def run(*statements: str) -> None:
        with registry.database.engine.connect().execution_options(writes=True) as connection, connection.begin():
            for statement in statements:
                connection.exec_driver_sql(statement)

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a trained agent."""
    return train_agent(QUICK, seed=3, label="mine", folder=tmp_path_factory.mktemp("agents") / "mine").folder


@pytest.fixture(scope="session")
def parts(folder: Path) -> dict[str, bytes]:
    return read_parts(folder)


@pytest.fixture(scope="session")
def variant(parts: dict[str, bytes]) -> Callable[..., dict[str, bytes]]:
    """The same agent under another label: another model."""

    def make(label: str, **changes: Any) -> dict[str, bytes]:
        config = json.loads(parts["config.json"]) | {"label": label} | changes
        return parts | {"config.json": json.dumps(config).encode()}

    return make


@pytest.fixture
def ids(registry: Registry, variant: Callable[..., dict[str, bytes]]) -> list[str]:
    """Three registered models."""
    return [registry.add_parts(variant(f"m{number}")).id for number in range(3)]


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start processes that run a script with `registry` open and the arguments as JSON in `given`."""
    started: list[subprocess.Popen[str]] = []
    before = """
import json, os, sys
from portfolio_sdpo.errors import *
from portfolio_sdpo.registry import *
url, given = json.loads(sys.argv[1])
registry = Registry.open(url, timeout=20.0)
def say(what):
    print(what, flush=True)
"""

    def run(script: str, url: str, *given: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", before + script, json.dumps([url, given])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def local(home: Path) -> Iterator[Registry]:
    with Registry.open() as opened:
        yield opened


@pytest.fixture(scope="session")
def sample() -> pd.DataFrame:
    return load_sample("sample").frame.iloc[-200:, :3]


@pytest.fixture
def prices(tmp_path: Path) -> Callable[..., str]:
    """Put prices into a file and the file into a snapshot, which an update reads again."""

    def put(frame: pd.DataFrame, name: str = "mine", *, keep: bool = True) -> str:
        path = tmp_path / f"{name}.csv"
        frame.rename_axis("Date").to_csv(path)
        if keep:
            import_snapshot(path, name, calendar=None)
        return name

    return put
