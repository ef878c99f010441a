"""What `doctor` looks at: each check is a function that gives findings, a sentence each and, if needed, the next step.

Nothing here changes anything, and what could take long has a limit: the suspect is often the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from portfolio_sdpo.common.files import data_directory
from portfolio_sdpo.errors import PortfolioSdpoError

if TYPE_CHECKING:
    from portfolio_sdpo.registry import Registry

PACKAGE = "portfolio_sdpo"
LEAST_ROOM, SCARCE_ROOM = 50_000_000, 1_000_000_000
"""Bytes: below the first nothing can be made, below the second not for long."""
PATIENCE = 20.0
"""Seconds that importing torch may take; it is read from disk the first time."""
READING = 1.0
"""Seconds of reading snapshots; those not reached are left to `data verify`."""
PORTS = {"serve": 8000, "dashboard": 8501}

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: str
    status: Status
    sentence: str
    next: str | None = None
    """What to do about it."""


class Torch:
    """Torch tried in a process of its own, while the other checks are made: a broken one could take them with it."""

    SCRIPT = """
import json, torch
x = torch.ones(8, requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2.0] * 8
print(json.dumps([torch.__version__, torch.get_num_threads(), torch.cuda.is_available()]))
"""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finding(self) -> Finding:
        """How it went."""
        again = "Install it again: pip install --force-reinstall torch."
        try:
            out, errors = self._process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return Finding(
                "torch", "warning", f"It was not there after {PATIENCE:g} s.", "Try again when the machine is idle."
            )
        if self._process.returncode:
            reason = (errors.strip().splitlines() or [f"exit code {self._process.returncode}"])[-1]
            return Finding("torch", "failure", f"It does not work ({reason}).", again)
        version, threads, cuda = json.loads(out.splitlines()[-1])
        where = ", a GPU that is not used here" if cuda else ""
        return Finding("torch", "ok", f"{version} works, {threads} thread{'s' * (threads != 1)}{where}.")


def guarded(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What the check finds; one that breaks is a finding too, and the others are still made."""
    try:
        yield from check()
    except ImportError as error:
        yield Finding(
            name, "failure", f"This cannot be looked at ({error}).", "Install what is missing, and try again."
        )
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        yield Finding(
            name, "failure", f"This cannot be looked at ({reason}).", "`portfolio-sdpo --debug doctor` says more."
        )


def python() -> Iterator[Finding]:
    """The interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036  (what is asked here is whether that is so)
        yield Finding("python", "failure", f"{version} is too old.", "Install Python 3.11 or newer.")
    else:
        yield Finding("python", "ok", f"{version} in {sys.prefix}.")


def packages() -> Iterator[Finding]:
    """Versions against the lower bounds of the installation, and which extras are there."""
    installed = _distribution()
    if installed is None:
        yield Finding(
            "packages", "warning", "portfolio_sdpo is run from its sources.", "Install it: pip install -e '.[dev]'."
        )
        return
    problems, count = _lacking(installed, "")
    if problems:
        names = " ".join(f"'{each}'" for each in problems)
        yield Finding("packages", "failure", f"Missing or too old: {', '.join(problems)}.", f"pip install {names}.")
    else:
        yield Finding("packages", "ok", f"All {count} are at or above their lower bounds.")
    there: list[str] = []
    absent: list[str] = []
    for extra in installed.metadata.get_all("Provides-Extra") or []:
        if extra != "dev":
            (absent if _lacking(installed, extra)[0] else there).append(extra)
    sentence = f"Installed: {', '.join(there) or 'none'}."
    if absent:
        wanted = ",".join(absent)
        sentence += f" Not installed: {', '.join(absent)}."
        yield Finding("extras", "warning", sentence, f"If you want them: pip install 'portfolio_sdpo[{wanted}]'.")
    else:
        yield Finding("extras", "ok", sentence)
    yield _safety(there)


def _safety(extras: list[str]) -> Finding:
    if "safety" in extras and find_spec("safety_gymnasium") is not None:
        return Finding("safety gym", "ok", "The suite is there.")
    return Finding(
        "safety gym",
        "warning",
        "The suite is not installed; only `experiment run safety-...` needs it.",
        "pip install 'portfolio_sdpo[safety]' && pip install --no-deps safety-gymnasium.",
    )


def check_data_directory() -> Iterator[Finding]:
    """Whether the data directory can be written to, and its room."""
    home = data_directory()
    ground = next(place for place in (home, *home.absolute().parents) if place.exists())
    move = "Correct its permissions, or set PORTFOLIO_SDPO_HOME to another folder."
    try:
        with tempfile.TemporaryFile(dir=ground) as file:
            file.write(b"doctor")
            file.flush()
        room = shutil.disk_usage(ground).free
    except OSError as error:
        yield Finding("data directory", "failure", f"{home} cannot be written to ({error.strerror}).", move)
        return
    free = f"{room / 1e9:.1f} GB free"
    if room < LEAST_ROOM:
        yield Finding("data directory", "failure", f"{home} has no room left, {free}.", "Make room.")
    elif room < SCARCE_ROOM:
        yield Finding("data directory", "warning", f"{home} has little room, {free}.", "Make room soon.")
    else:
        made = "" if ground == home else "; it will be made when it is needed"
        yield Finding("data directory", "ok", f"{home}, {free}{made}.")


def registry(place: str | None) -> Iterator[Finding]:
    """Whether the registry opens, wherever it is, and its logs are as they were written."""
    from portfolio_sdpo.registry import Registry
    from portfolio_sdpo.registry.database import resolve

    try:
        url = resolve(place)
        if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
            yield Finding("registry", "ok", f"There is none yet; the first model makes {url.database}.")
            return
        with Registry.open(place, timeout=2.0) as opened:
            yield _chains(opened)
    except PortfolioSdpoError as error:
        yield Finding("registry", "failure", *_cut(str(error)))


def _chains(opened: Registry) -> Finding:
    broken = [check for check in (opened.verify_promotions(), opened.verify_audit()) if not check.sound]
    if broken:
        said = "; ".join(f"{check.log}: {str(check.problem).rstrip('.')}" for check in broken)
        return Finding("registry", "failure", f"{said}.", f"Restore a copy of {opened.place}; somebody changed it.")
    champion = opened.champion()
    standing = "no champion yet" if champion is None else f"champion {champion.model_id}"
    count = len(opened.model_ids())
    models = f"{count} model{'s' * (count != 1)}"
    return Finding("registry", "ok", f"{opened.place}, {models}, {standing}, logs sound.")


def snapshots() -> Iterator[Finding]:
    """Whether the current version of every snapshot is what was written, and whether the clock can be right."""
    from portfolio_sdpo.prices.snapshots import Store

    store = Store()
    try:
        names = store.list()
    except PortfolioSdpoError as error:
        yield Finding("snapshots", "failure", *_cut(str(error)))
        return
    manifests, damaged, until = [], False, time.monotonic() + READING
    for name in names:
        if time.monotonic() > until:
            break
        try:
            manifests.append(store.open(name).manifest)
        except PortfolioSdpoError as error:
            damaged = True
            yield Finding("snapshots", "failure", *_cut(str(error)))
    if not damaged:
        sound = f"{len(manifests)} of {len(names)} read, hashes right." if names else "There is none yet."
        late = None if len(manifests) == len(names) else "`portfolio-sdpo data verify` reads all."
        yield Finding("snapshots", "ok", sound, late)
    now = datetime.now(UTC)
    for each in manifests:
        if each.fetched_at > now + timedelta(hours=1) or each.end > (now + timedelta(days=1)).date():
            yield Finding(
                "clock",
                "warning",
                f"It is {now:%Y-%m-%d %H:%M} UTC here, and {each.name} is from {each.fetched_at:%Y-%m-%d} with prices "
                f"up to {each.end}.",
                "Set the clock of this machine, or import prices that have happened.",
            )
            return
    yield Finding("clock", "ok", f"{now:%Y-%m-%d %H:%M} UTC, no snapshot is from the future.")


def ports() -> Iterator[Finding]:
    """Whether what listens finds its usual port free."""
    said = os.environ.get("PORTFOLIO_SDPO_SERVE_PORT") or str(PORTS["serve"])
    if not said.isdecimal() or int(said) > 65535:
        step = "Set it to one from 0 to 65535, or leave it out."
        yield Finding("ports", "failure", f"PORTFOLIO_SDPO_SERVE_PORT is {said!r}, which is no port.", step)
        return
    wanted = PORTS | {"serve": int(said)}
    taken = {command: port for command, port in wanted.items() if not _is_free(port)}
    if taken:
        used = ", ".join(f"{port} of `{command}`" for command, port in taken.items())
        yield Finding("ports", "warning", f"In use: {used}.", "If that is not the service itself: give --port 0.")
    else:
        yield Finding("ports", "ok", f"{', '.join(map(str, wanted.values()))} are free.")


def browser() -> Iterator[Finding]:
    """Chromium, where the browser tests could want it."""
    if find_spec("playwright") is None:
        return
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found:
        yield Finding("browser", "ok", f"{found}, for the tests.")
    else:
        yield Finding("browser", "warning", "No chromium; only browser tests need it.", "apt install chromium.")


def _distribution() -> metadata.Distribution | None:
    # An old build folder beside the sources may be found first; the fuller one is the installation.
    found = list(metadata.distributions(name=PACKAGE))
    return max(found, key=lambda each: len(each.requires or []), default=None)


def _lacking(installed: metadata.Distribution, extra: str) -> tuple[list[str], int]:
    """Requirements, of an extra or without one, that are not met, and how many there are."""
    from packaging.requirements import Requirement

    wanted = [Requirement(line) for line in installed.requires or []]
    mine = [each for each in wanted if _asked(each, extra) and (not extra or not _asked(each, ""))]
    return [f"{each.name}{each.specifier}" for each in mine if not _met(each)], len(mine)


def _asked(requirement: Any, extra: str) -> bool:
    return requirement.marker is None or bool(requirement.marker.evaluate({"extra": extra}))


def _met(requirement: Any) -> bool:
    try:
        return bool(requirement.specifier.contains(metadata.version(requirement.name), prereleases=True))
    except metadata.PackageNotFoundError:
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _cut(sentence: str) -> tuple[str, str | None]:
    """What is wrong, and what to do next, of one of our sentences."""
    for mark in ("; ", ": "):
        what, found, step = sentence.rpartition(mark)
        if found:
            return f"{what}.", f"{step[0].upper()}{step[1:]}"
    return sentence, None
