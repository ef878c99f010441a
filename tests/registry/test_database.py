"""Where the registry is, how its tables come to be, and what is said when the database does not play along."""

import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from portfolio_sdpo.errors import MissingExtraError, RegistryError, RegistryUnavailableError, SettingsError
from portfolio_sdpo.registry import AuditEntry, Registry, schema
from portfolio_sdpo.registry.database import VARIABLE, resolve_url
from portfolio_sdpo.registry.migrate import MIGRATIONS


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(VARIABLE, raising=False)


def entries(number):
    return [AuditEntry(f"r{k}", {"CASH": 1.0}, "a" * 64, warnings=["x" * 1000]) for k in range(number)]


def test_places(tmp_path, monkeypatch):
    assert resolve_url(None).database == str(tmp_path / "home" / "registry.db")
    monkeypatch.setenv(VARIABLE, "postgres://me:secret@there/base")
    url = resolve_url(None)
    assert url.drivername == "postgresql+psycopg" and url.password == "secret"
    assert resolve_url("~/r.db").database == str(Path("~/r.db").expanduser())
    assert resolve_url("sqlite:///r.db").database == str(Path("r.db").absolute())
    for wrong, message in [
        ("mysql://there/base", "mysql is not supported"),
        ("sqlite://", "would forget its champion"),
        ("sqlite:///:memory:", "would forget its champion"),
        ("postgresql://there:port/base", "is not valid"),
    ]:
        with pytest.raises(SettingsError, match=message):
            resolve_url(wrong)


def test_the_default_place_is_made(tmp_path):
    with Registry.open() as registry:
        assert registry.place == str(tmp_path / "home" / "registry.db")
    assert (tmp_path / "home" / "registry.db").is_file()


def test_sqlite_is_durable_and_strict(tmp_path):
    with Registry.open(str(tmp_path / "r.db"), timeout=3.0) as registry, registry.database.reading() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 3000}


def test_migrations_make_the_tables_that_are_declared(registry):
    with registry.database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
        assert context.get_current_revision() == schema.HEAD
        assert compare_metadata(context, schema.metadata) == []
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [schema.HEAD]


def test_opening_again_keeps_everything(url, parts):
    with Registry.open(url) as registry:
        model = registry.add_parts(parts)
    with Registry.open(url) as registry:
        assert registry.models() == [model]


def test_many_processes_open_a_new_one_at_once(url, start):
    script = 'say(registry.append_audit([AuditEntry(given[0], {}, "")])[0])'
    processes = [start(script, url, str(number)) for number in range(3)]
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert sorted(map(int, said)) == [1, 2, 3]


def test_many_threads_open_a_new_one_at_once(url):
    with ThreadPoolExecutor(6) as pool:
        for registry in pool.map(lambda _: Registry.open(url), range(6)):
            assert registry.verify_audit().sound
            registry.close()


def test_newer_tables_ask_for_an_upgrade(url):
    with Registry.open(url) as registry, registry.database.writing() as connection:
        connection.exec_driver_sql(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(RegistryError, match=r"revision 9999, newer than the 0003 .*: upgrade portfolio_sdpo\."):
        Registry.open(url)


def test_a_failing_migration_leaves_nothing(url, monkeypatch):
    from portfolio_sdpo.registry.migrations.versions import r0001_first as first  # noqa: F401 — it must be importable

    def fail(*arguments, **options):
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr("alembic.op.bulk_insert", fail)
        with pytest.raises(RuntimeError, match="power cut"):
            Registry.open(url)
    engine = sa.create_engine(resolve_url(url))
    assert sa.inspect(engine).get_table_names() == []
    engine.dispose()
    with Registry.open(url) as registry:
        assert registry.verify_audit().sound


def test_not_a_database(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("date,AAPL\n" * 1000)
    with pytest.raises(RegistryUnavailableError, match="is not a database of portfolio_sdpo: name another file"):
        Registry.open(str(path))
    assert path.read_text() == "date,AAPL\n" * 1000


def test_a_place_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RegistryUnavailableError, match=r"cannot be created in .*: correct its permissions"):
        Registry.open(str(tmp_path / "file" / "r.db"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(RegistryUnavailableError, match="cannot be opened: correct its path"):
        Registry.open(str(tmp_path / "folder"))


def test_unreachable_without_the_password():
    with pytest.raises(RegistryUnavailableError, match="cannot be reached") as caught:
        Registry.open("postgresql://me:secret@127.0.0.1:9/base", timeout=2.0)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_no_such_database(postgres):
    with pytest.raises(RegistryUnavailableError, match="nowhere"):
        Registry.open(postgres.url("nowhere"))


def test_postgresql_needs_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'portfolio_sdpo\[postgres\]'"):
        Registry.open("postgresql://127.0.0.1/x")


def test_the_server_is_restarted(postgres):
    """Connections of the pool died with it; the next transaction takes a new one."""
    name = postgres.create()
    with Registry.open(postgres.url(name)) as registry:
        registry.append_audit(entries(1))
        postgres.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        assert registry.append_audit(entries(1)) == [2]


def test_a_lock_of_another_process(url, start):
    """Told after the timeout; over when the other one is gone, by kill -9."""
    with Registry.open(url, timeout=0.3) as registry:
        registry.append_audit(entries(1))
        script = """
with registry.database.writing() as connection:
    connection.exec_driver_sql("UPDATE heads SET seq = 9")
    say("locked")
    sys.stdin.readline()
"""
        process = start(script, url)
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(RegistryUnavailableError, match=r"is locked by another process: wait for it to end"):
            registry.append_audit(entries(1))
        assert registry.verify_audit().rows == 1  # readers never wait
        process.kill()
        process.wait()
        with Registry.open(url, timeout=10.0) as again:
            assert again.append_audit(entries(1)) == [2]


def test_a_file_that_is_locked_as_a_whole(tmp_path):
    path = tmp_path / "r.db"
    Registry.open(str(path)).close()
    other = sqlite3.connect(path)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(RegistryUnavailableError, match="is locked by another process"):
        Registry.open(str(path), timeout=0.2)
    other.rollback()
    other.close()
    with Registry.open(str(path)) as registry:
        assert registry.append_audit(entries(1)) == [1]


def test_a_full_disk_by_a_limit(tmp_path, start, parts):
    """The most a file of this process may grow to; the operating system refuses as on a full disk."""
    url = str(tmp_path / "r.db")
    with Registry.open(url) as registry:
        registry.promote(registry.add_parts(parts).id, "first")
    script = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
written = 0
try:
    while written < 10_000:
        registry.append_audit([AuditEntry("r", {"CASH": 1.0}, "", warnings=["x" * 1000]) for _ in range(50)])
        written += 50
except RegistryUnavailableError as error:
    say(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
say(registry.verify_audit().rows == written > 0)
say(registry.append_audit([AuditEntry("r", {}, "")]) == [written + 1])
"""
    said = start(script, url).communicate(timeout=120)[0].splitlines()
    assert said == [
        f"The registry at {url} has no space left on its disk: free some space and try again.",
        "True",
        "True",
    ]
    with Registry.open(url) as registry:
        assert registry.champion().reason == "first" and registry.damaged_models() == {}
        assert registry.verify_audit().sound


@pytest.fixture
def small_disk():
    """A file system of 24 MB; only root can have one."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="small-"))
    command = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=0777", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        shutil.rmtree(folder)
        pytest.skip("may not mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_full_disk(small_disk, request, parts, kind):
    if kind == "sqlite":
        url = str(small_disk / "r.db")
    else:
        postgres = request.getfixturevalue("postgres")
        space = small_disk / "space"
        space.mkdir()
        if postgres.user:
            shutil.chown(space, postgres.user)
        postgres.sql("DROP TABLESPACE IF EXISTS small")
        postgres.sql(f"CREATE TABLESPACE small LOCATION '{space}'")
        name = postgres.create("small")
        url = postgres.url(name)
    try:
        with Registry.open(url) as registry:
            registry.promote(registry.add_parts(parts).id, "first")
            registry.append_audit(entries(10))
            filler = small_disk / "filler"
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(4096))
            with pytest.raises(RegistryUnavailableError, match="has no space left on its disk"):
                registry.append_audit(entries(5000))
            sound = registry.verify_audit()
            assert sound.sound and registry.champion().reason == "first" and registry.damaged_models() == {}
            filler.unlink()
            assert registry.append_audit(entries(1)) == [sound.rows + 1]
            assert registry.verify_audit().sound
    finally:
        if kind == "postgresql":
            postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")
            postgres.sql("DROP TABLESPACE small")
