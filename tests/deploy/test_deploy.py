"""What is beside the package for those who run it: commands exist, metrics exist, and the lock is that of the pins."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from portfolio_sdpo import cli

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def check_command(words: list[str]) -> None:
    """A command line as it would be parsed, without being run."""
    command: Any = typer.main.get_command(cli.build_app())
    context = typer.Context(command, info_name="portfolio-sdpo")
    words = list(words)
    while hasattr(command, "get_command"):
        name = words.pop(0)
        command = command.get_command(context, name)
        assert command is not None, name
        context = type(context)(command, info_name=name, parent=context)
    command.make_context(command.name, words)


def commands_of_units() -> list[str]:
    lines = re.sub(r"\$\$\(.*?\)", "DATE", "\n".join(path.read_text() for path in UNITS))
    return re.findall(r"/opt/portfolio-sdpo/bin/portfolio-sdpo ([^'\n]*)", lines)


def commands_of_compose() -> list[list[str]]:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return [each["command"] for name, each in services.items() if name in ("service", "dashboard")]


def test_every_command_is_one():
    found = [shlex.split(line) for line in commands_of_units()] + commands_of_compose()
    script = (DEPLOY / "nightly.sh").read_text() + (DEPLOY / "compose.yaml").read_text()
    script = re.sub(r'"[^"\n]*\.backup"', "FILE", script)
    lines = re.findall(r"portfolio-sdpo ((?:retrain|registry|keys) [A-Za-z -]*\w+)", script)
    found += [shlex.split(line) for line in lines]
    (last,) = re.findall(r"^CMD \[(.*)\]$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    found.append([word.strip(' "') for word in last.split(",")])
    assert {"serve", "dashboard", "retrain", "registry", "keys"} <= {words[0] for words in found}
    for words in found:
        check_command(words)
    with pytest.raises(Exception, match="No such option"):
        check_command(["serve", "--no-such-option"])


def test_compose_has_every_part_and_publishes_on_loopback_only():
    content = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = content["services"]
    assert services.keys() == {"database", "service", "dashboard", "nightly"}
    ports = [port for each in services.values() for port in each.get("ports", ())]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)
    for each in services.values():
        for volume in each["volumes"]:
            assert volume.partition(":")[0] in content["volumes"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_units(tmp_path: Path):
    program = tmp_path / "portfolio-sdpo"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in (DEPLOY / "systemd").iterdir():
        text = path.read_text().replace("/opt/portfolio-sdpo/bin/portfolio-sdpo", str(program))
        (tmp_path / path.name).write_text(text.replace("User=portfolio-sdpo", "User=root"))
    units = [str(path) for path in sorted(tmp_path.iterdir()) if path.suffix in (".service", ".timer")]
    command = ["systemd-analyze", "verify", "--recursive-errors=no", *units]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if "portfolio-sdpo" in line]
    assert told == []


def test_timers_start_units_that_are_there():
    timers = {path.stem for path in (DEPLOY / "systemd").glob("*.timer")}
    assert timers == {"portfolio-sdpo-retrain", "portfolio-sdpo-backup"} and timers < {path.stem for path in UNITS}


def test_the_script_of_the_nights_is_one():
    subprocess.run(["sh", "-n", str(DEPLOY / "nightly.sh")], check=True)
    environment = {"NIGHTLY_AT": "soon", "PATH": "/bin:/usr/bin"}
    command = ["sh", str(DEPLOY / "nightly.sh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "must look like 22:30" in done.stderr


def test_the_lock_has_a_hash_for_every_package_and_the_versions_of_the_tests():
    text = (DEPLOY / "requirements.lock").read_text()
    assert "://" not in text and "index" not in text  # no place to fetch from
    parts = re.findall(r"^([\w.-]+)==([\w.]+)[^\n]*((?:\n +--hash=sha256:[0-9a-f]{64}[^\n]*)*)", text, re.MULTILINE)
    locked = {name.lower().replace("_", "-"): version for name, version, _ in parts}
    assert len(parts) > 100 and all(hashes for _, _, hashes in parts)
    assert len(parts) == len(re.findall(r"^[a-z]", text, re.MULTILINE))
    pinned = {}
    for line in (DEPLOY.parent / "constraints.txt").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            name, _, version = line.partition(";")[0].strip().partition("==")
            pinned[name.lower().replace("_", "-")] = version
    common = locked.keys() & pinned.keys()
    assert {name: locked[name] for name in common} == {name: pinned[name] for name in common}
    wanted = {"torch", "pandas", "fastapi", "streamlit", "psycopg", "skfolio", "openpyxl"}
    assert wanted <= locked.keys()
