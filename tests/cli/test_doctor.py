"""`doctor` on real faults: each is found, told in a sentence with the next step, and nothing is changed by looking."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.cli import _checks
from portfolio_sdpo.cli._checks import Finding
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import AuditEntry, Registry

ROOT = Path(__file__).parents[2]
EVERYTHING = {
    "python",
    "torch",
    "packages",
    "extras",
    "safety gym",
    "data directory",
    "registry",
    "snapshots",
    "clock",
    "ports",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    for variable in ("PORTFOLIO_SDPO_REGISTRY", "PORTFOLIO_SDPO_SERVE_PORT", "PORTFOLIO_SDPO_DEBUG"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "home"


def only(findings: Iterator[Finding]) -> Finding:
    (finding,) = findings
    return finding


def save(name: str, last: datetime) -> None:
    prices = Prices(
        to_wide(pd.DataFrame({"A": 1.0, "B": 2.0}, index=pd.bdate_range(end=last, periods=30))), "close", "none"
    )
    Store().save(name, clean(prices, calendar=None, carry=0), prices, Request(source="file", calendar=None))


def test_a_sound_installation_in_a_real_process(home: Path):
    """Every check is made, none fails, and nothing is left behind."""
    command = [sys.executable, "-m", "portfolio_sdpo", "doctor", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and result.stderr == "", result.stdout + result.stderr
    told = json.loads(result.stdout)
    checks = {each["check"]: each for each in told["checks"]}
    assert told["sound"] and checks.keys() >= EVERYTHING
    assert checks["registry"]["sentence"].startswith("There is none yet")
    assert not home.exists()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch, tried in tests of its own, is sound."""

    class Sound:
        def finish(self) -> Finding:
            return Finding("torch", "ok", "It works.")

    monkeypatch.setattr(_checks, "TorchCheck", Sound)


@pytest.mark.usefixtures("quick")
def test_a_failure_is_marked_with_its_next_step_and_the_exit_code(home: Path):
    home.mkdir()
    (home / "registry.db").write_bytes(b"this is no database, and long enough to be looked at" * 100)
    result = CliRunner().invoke(cli.build_app(), ["doctor"])
    assert result.exit_code == 1 and "Traceback" not in result.output
    lines = result.stdout.splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.startswith("✗"))
    assert "registry" in lines[place] and sum(line.startswith("✓") for line in lines) >= 5
    told = json.loads(CliRunner().invoke(cli.build_app(), ["doctor", "--json"]).stdout)
    (failure,) = (each for each in told["checks"] if each["status"] == "failure")
    assert not told["sound"] and failure["check"] == "registry" and failure["next"]
    assert str(home / "registry.db") in failure["sentence"]


@pytest.mark.usefixtures("quick")
def test_a_check_that_breaks_does_not_take_the_others_along(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "portfolio_sdpo.registry", None)
    result = CliRunner().invoke(cli.build_app(), ["doctor", "--json"])
    assert result.exit_code == 1
    checks = {each["check"]: each for each in json.loads(result.stdout)["checks"]}
    assert checks["registry"]["status"] == "failure" and "portfolio_sdpo.registry" in checks["registry"]["sentence"]
    assert checks["snapshots"]["status"] == "ok" and checks.keys() >= EVERYTHING


@pytest.mark.parametrize("place", ["/proc/nowhere", "file/inside"])
def test_a_home_that_cannot_be_written_to(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / place))
    found = only(_checks.check_data_directory())
    assert found.status == "failure" and place in found.sentence and "cannot be written to" in found.sentence
    assert found.next == "Correct its permissions, or set PORTFOLIO_SDPO_HOME to another folder."


@pytest.mark.parametrize(("limit", "status"), [("MINIMUM_SPACE", "failure"), ("LOW_SPACE", "warning")])
def test_a_disk_without_room(limit: str, status: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_checks, limit, 1 << 60)
    found = only(_checks.check_data_directory())
    assert found.status == status and "GB free" in found.sentence and str(found.next).startswith("Free some disk space")


def test_a_registry_whose_audit_was_edited(home: Path):
    with Registry.open() as registry:
        for number in range(3):
            registry.append_audit([AuditEntry(request_id=f"r{number}", weights={"CASH": 1.0}, response_hash="a" * 64)])
    assert only(_checks.check_registry(None)).status == "ok"
    with closing(sqlite3.connect(home / "registry.db")) as database, database:
        database.execute("DROP TRIGGER audit_no_update")
        database.execute("UPDATE audit SET request_id = 'forged' WHERE seq = 2")
    found = only(_checks.check_registry(None))
    assert found.status == "failure" and "audit" in found.sentence and str(found.next).startswith("Restore ")


def test_a_registry_that_does_not_answer():
    found = only(_checks.check_registry("postgresql://nobody@127.0.0.1:1/none"))
    assert found.status == "failure" and found.next and "Traceback" not in found.sentence


def test_a_snapshot_whose_bytes_changed(home: Path):
    save("mine", datetime(2026, 1, 5))
    assert {each.status for each in _checks.check_snapshots()} == {"ok"}
    (table,) = (home / "snapshots" / "objects").rglob("*.parquet")
    table.chmod(0o644)
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    found = next(_checks.check_snapshots())
    assert (found.check, found.status) == ("snapshots", "failure") and found.next


def test_prices_from_the_future_speak_of_the_clock(monkeypatch: pytest.MonkeyPatch):
    """An import refuses dates after tomorrow, so they are in the future only for a clock that is set back."""

    class LateClock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) - timedelta(days=60)

    save("tomorrow", datetime.now(UTC).replace(tzinfo=None))
    monkeypatch.setattr(_checks, "datetime", LateClock)
    clock = [each for each in _checks.check_snapshots() if each.check == "clock"]
    assert [each.status for each in clock] == ["warning"] and "tomorrow" in clock[0].sentence
    assert str(clock[0].next).startswith("Correct the clock")


def test_a_port_in_use_and_one_that_is_none(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("PORTFOLIO_SDPO_SERVE_PORT", str(port))
        found = only(_checks.check_ports())
    assert found.status == "warning" and f"{port} of `serve`" in found.sentence and "--port 0" in str(found.next)
    for wrong in ("http", "99999", "-1"):
        monkeypatch.setenv("PORTFOLIO_SDPO_SERVE_PORT", wrong)
        assert only(_checks.check_ports()).status == "failure"


def test_a_machine_without_chromium(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = only(_checks.check_browser())
    assert found.status == "warning" and found.next == "apt install chromium."


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        ("raise ImportError('libtorch.so: cannot open shared object file')", "failure", "libtorch.so"),
        ("import os; os.kill(os.getpid(), 11)", "failure", "exit code -11"),
        ("import time; time.sleep(60)", "warning", "was not imported within"),
    ],
    ids=["does not load", "crashes", "hangs"],
)
def test_a_torch_that(content: str, status: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "torch.py").write_text(content)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(_checks, "TORCH_SECONDS", 3.0 if status == "warning" else 60.0)
    found = _checks.TorchCheck().finish()
    assert found.status == status and told in found.sentence and found.next


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """All installed packages as a folder of links that can be taken away; nothing of them is touched."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    (folder / "portfolio_sdpo").symlink_to(ROOT / "portfolio_sdpo")
    (folder / "portfolio_sdpo_app").symlink_to(ROOT / "app")
    return folder


def isolated(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program with these packages and no others."""
    script = f"import sys; sys.path.append({str(folder)!r}); from portfolio_sdpo.cli import main; main()"
    command = [sys.executable, "-I", "-S", "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=dict(os.environ))


def remove(folder: Path, *names: str) -> None:
    for path in list(folder.iterdir()):
        if path.name.partition("-")[0].lower() in names:
            path.unlink()


def test_extras_that_are_missing_and_packages_that_are_too_old(packages: Path):
    remove(packages, "streamlit", "fastapi", "safety_gymnasium", "xmltodict.py", "xmltodict")
    (old,) = packages.glob("pandas-*.dist-info")
    metadata = (old / "METADATA").read_text()
    old.unlink()
    aged = packages / "pandas-1.5.3.dist-info"
    aged.mkdir()
    (aged / "METADATA").write_text(metadata.replace(f"\nVersion: {old.stem.partition('-')[2]}\n", "\nVersion: 1.5.3\n"))

    result = isolated(packages, "doctor", "--json")
    assert result.returncode == 1 and result.stderr == "", result.stderr
    checks = {each["check"]: each for each in json.loads(result.stdout)["checks"]}
    assert checks["packages"]["status"] == "failure"
    assert checks["packages"]["sentence"] == "Missing or too old: pandas>=2.2."
    assert checks["packages"]["next"] == "pip install 'pandas>=2.2'."
    assert checks["extras"]["status"] == checks["safety gym"]["status"] == "warning"
    absent = checks["extras"]["sentence"].partition("Not installed: ")[2]
    assert set(absent.rstrip(".").split(", ")) == {"safety", "dashboard", "serve"}
    assert "pip install --no-deps safety-gymnasium" in checks["safety gym"]["next"]
    assert all(each["next"] for each in checks.values() if each["status"] != "ok")

    # And the commands that need them say so themselves.
    for command, extra in {"dashboard": "dashboard", "serve": "serve"}.items():
        refused = isolated(packages, command)
        assert refused.returncode == 1 and refused.stderr.startswith("Error: "), refused.stderr
        assert f"pip install 'portfolio_sdpo[{extra}]'" in refused.stderr and refused.stderr.count("\n") == 1


def test_an_installation_without_sqlalchemy_is_still_told(packages: Path):
    remove(packages, "sqlalchemy")
    result = isolated(packages, "doctor", "--json")
    assert result.returncode == 1 and result.stderr == "", result.stderr
    checks = {each["check"]: each for each in json.loads(result.stdout)["checks"]}
    assert "sqlalchemy>=2.0" in checks["packages"]["sentence"]
    assert "sqlalchemy" in checks["registry"]["sentence"] and checks["registry"]["status"] == "failure"
