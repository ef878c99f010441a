"""The checks of `doctor`: each is a function that yields findings, a sentence each with the next step where needed.

The checks change nothing, and those that could take long have a time limit, since the machine itself may be at fault.
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
MINIMUM_SPACE, LOW_SPACE = 50_000_000, 1_000_000_000
"""Free bytes: below the first is a failure, below the second a warning."""
TORCH_SECONDS = 20.0
"""Seconds that importing torch may take; the first time it is read from disk."""
SNAPSHOT_SECONDS = 1.0
"""Seconds for reading snapshots; `data verify` reads those that are left."""
PORTS = {"serve": 8000, "dashboard": 8501}

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    status: Status
    sentence: str
    next: str | None = None
    """What to do about it, if anything."""


class TorchCheck:
    """Tries torch in another process while the other checks run: a broken torch could crash this one."""

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

    def finish(self) -> Finding:
        """Wait for the other process and return the finding."""
        again = "Install it again: pip install --force-reinstall torch."
        try:
            out, errors = self._process.communicate(timeout=TORCH_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return Finding(
                "torch",
                "warning",
                f"It was not imported within {TORCH_SECONDS:g} s.",
                "Try again when the machine is idle.",
            )
        if self._process.returncode:
            reason = (errors.strip().splitlines() or [f"exit code {self._process.returncode}"])[-1]
            return Finding("torch", "failure", f"It does not work ({reason}).", again)
        version, threads, cuda = json.loads(out.splitlines()[-1])
        where = "; there is a GPU, which is not used" if cuda else ""
        return Finding("torch", "ok", f"{version} works, {threads} thread{'s' * (threads != 1)}{where}.")


def run_check(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; an exception is a finding too, so that the other checks still run."""
    try:
        yield from check()
    except ImportError as error:
        yield Finding(name, "failure", f"This cannot be checked ({error}).", "Install what is missing and try again.")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        yield Finding(
            name, "failure", f"This cannot be checked ({reason}).", "`portfolio-sdpo --debug doctor` says more."
        )


def check_python() -> Iterator[Finding]:
    """Check the version of the interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036  (what is asked here is whether that is so)
        yield Finding("python", "failure", f"{version} is too old.", "Install Python 3.11 or newer.")
    else:
        yield Finding("python", "ok", f"{version} in {sys.prefix}.")


def check_packages() -> Iterator[Finding]:
    """Compare installed versions with the required lower bounds, and list the installed extras."""
    installed = _distribution()
    if installed is None:
        yield Finding(
            "packages",
            "warning",
            "portfolio_sdpo runs from its sources without an installation.",
            "Install it: pip install -e '.[dev]'.",
        )
        return
    problems, count = _find_unmet(installed, "")
    if problems:
        names = " ".join(f"'{each}'" for each in problems)
        yield Finding("packages", "failure", f"Missing or too old: {', '.join(problems)}.", f"pip install {names}.")
    else:
        yield Finding("packages", "ok", f"All {count} required packages are recent enough.")
    present: list[str] = []
    absent: list[str] = []
    for extra in installed.metadata.get_all("Provides-Extra") or []:
        if extra != "dev":
            (absent if _find_unmet(installed, extra)[0] else present).append(extra)
    sentence = f"Installed: {', '.join(present) or 'none'}."
    if absent:
        wanted = ",".join(absent)
        sentence += f" Not installed: {', '.join(absent)}."
        yield Finding("extras", "warning", sentence, f"If you want them: pip install 'portfolio_sdpo[{wanted}]'.")
    else:
        yield Finding("extras", "ok", sentence)
    yield _check_safety_gym(present)


def _check_safety_gym(extras: list[str]) -> Finding:
    if "safety" in extras and find_spec("safety_gymnasium") is not None:
        return Finding("safety gym", "ok", "Safety-Gymnasium is installed.")
    return Finding(
        "safety gym",
        "warning",
        "Safety-Gymnasium is not installed; only `experiment run safety-...` needs it.",
        "pip install 'portfolio_sdpo[safety]' && pip install --no-deps safety-gymnasium.",
    )


def check_data_directory() -> Iterator[Finding]:
    """Check that the data directory can be written to and that there is free space."""
    home = data_directory()
    ground = next(place for place in (home, *home.absolute().parents) if place.exists())
    move = "Correct its permissions, or set PORTFOLIO_SDPO_HOME to another folder."
    try:
        with tempfile.TemporaryFile(dir=ground) as file:
            file.write(b"doctor")
            file.flush()
        space = shutil.disk_usage(ground).free
    except OSError as error:
        yield Finding("data directory", "failure", f"{home} cannot be written to ({error.strerror}).", move)
        return
    free = f"{space / 1e9:.1f} GB free"
    if space < MINIMUM_SPACE:
        yield Finding("data directory", "failure", f"{home} has no space left, {free}.", "Free some disk space.")
    elif space < LOW_SPACE:
        yield Finding(
            "data directory", "warning", f"{home} has little space left, {free}.", "Free some disk space soon."
        )
    else:
        created = "" if ground == home else "; it will be created when it is needed"
        yield Finding("data directory", "ok", f"{home}, {free}{created}.")


def check_registry(place: str | None) -> Iterator[Finding]:
    """Check that the registry opens and that its logs are as they were written."""
    from portfolio_sdpo.registry import Registry
    from portfolio_sdpo.registry.database import resolve_url

    try:
        url = resolve_url(place)
        if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
            yield Finding("registry", "ok", f"There is none yet; the first model creates {url.database}.")
            return
        with Registry.open(place, timeout=2.0) as opened:
            yield _check_logs(opened)
    except PortfolioSdpoError as error:
        yield Finding("registry", "failure", *_split_advice(str(error)))


def _check_logs(opened: Registry) -> Finding:
    broken = [check for check in (opened.verify_promotions(), opened.verify_audit()) if not check.sound]
    if broken:
        problems = "; ".join(f"{check.log}: {str(check.problem).rstrip('.')}" for check in broken)
        return Finding("registry", "failure", f"{problems}.", f"Restore {opened.place} from a backup; it was changed.")
    champion = opened.champion()
    standing = "no champion yet" if champion is None else f"champion {champion.model_id}"
    count = len(opened.model_ids())
    models = f"{count} model{'s' * (count != 1)}"
    return Finding("registry", "ok", f"{opened.place}, {models}, {standing}, logs sound.")


def check_snapshots() -> Iterator[Finding]:
    """Check that the current version of every snapshot is intact, and that the clock is plausible."""
    from portfolio_sdpo.prices.snapshots import Store

    store = Store()
    try:
        names = store.list()
    except PortfolioSdpoError as error:
        yield Finding("snapshots", "failure", *_split_advice(str(error)))
        return
    manifests, damaged, until = [], False, time.monotonic() + SNAPSHOT_SECONDS
    for name in names:
        if time.monotonic() > until:
            break
        try:
            manifests.append(store.open(name).manifest)
        except PortfolioSdpoError as error:
            damaged = True
            yield Finding("snapshots", "failure", *_split_advice(str(error)))
    if not damaged:
        sound = f"{len(manifests)} of {len(names)} read, hashes correct." if names else "There is none yet."
        late = None if len(manifests) == len(names) else "`portfolio-sdpo data verify` reads all of them."
        yield Finding("snapshots", "ok", sound, late)
    now = datetime.now(UTC)
    for each in manifests:
        if each.fetched_at > now + timedelta(hours=1) or each.end > (now + timedelta(days=1)).date():
            yield Finding(
                "clock",
                "warning",
                f"It is {now:%Y-%m-%d %H:%M} UTC here, and {each.name} is from {each.fetched_at:%Y-%m-%d} with prices "
                f"up to {each.end}.",
                "Correct the clock of this machine, or import prices without future dates.",
            )
            return
    yield Finding("clock", "ok", f"{now:%Y-%m-%d %H:%M} UTC, no snapshot is from the future.")


def check_ports() -> Iterator[Finding]:
    """Check that the usual ports of the service and the dashboard are free."""
    value = os.environ.get("PORTFOLIO_SDPO_SERVE_PORT") or str(PORTS["serve"])
    if not value.isdecimal() or int(value) > 65535:
        step = "Set it to a number from 0 to 65535, or unset it."
        yield Finding("ports", "failure", f"PORTFOLIO_SDPO_SERVE_PORT is {value!r}, which is not a port.", step)
        return
    wanted = PORTS | {"serve": int(value)}
    taken = {command: port for command, port in wanted.items() if not _is_free(port)}
    if taken:
        used = ", ".join(f"{port} of `{command}`" for command, port in taken.items())
        yield Finding(
            "ports", "warning", f"In use: {used}.", "Unless they belong to portfolio_sdpo itself, give --port 0."
        )
    else:
        yield Finding("ports", "ok", f"{', '.join(map(str, wanted.values()))} are free.")


def check_browser() -> Iterator[Finding]:
    """Look for Chromium, where the browser tests are installed."""
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


def _find_unmet(installed: metadata.Distribution, extra: str) -> tuple[list[str], int]:
    """Return the requirements of an extra (or of none) that are not met, and how many there are in total."""
    from packaging.requirements import Requirement

    wanted = [Requirement(line) for line in installed.requires or []]
    mine = [each for each in wanted if _applies(each, extra) and (not extra or not _applies(each, ""))]
    return [f"{each.name}{each.specifier}" for each in mine if not _is_met(each)], len(mine)


def _applies(requirement: Any, extra: str) -> bool:
    return requirement.marker is None or bool(requirement.marker.evaluate({"extra": extra}))


def _is_met(requirement: Any) -> bool:
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


def _split_advice(sentence: str) -> tuple[str, str | None]:
    """Split the sentence of an error into what is wrong and what to do next."""
    for mark in ("; ", ": "):
        what, found, step = sentence.rpartition(mark)
        if found:
            return f"{what}.", f"{step[0].upper()}{step[1:]}"
    return sentence, None
