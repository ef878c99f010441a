"""Backtests and retrains that the dashboard starts: each is a command in a process of its own, with its state in files.

<home>/jobs/<id>/
    job.json        kind and title of the job, and the command
    config.toml     settings of the agents, if any were given
    groups.csv      limits of groups of stocks, if any were given
    lock            locked for as long as a process of the job runs; only this decides whether a job is running
    pid             of its process group
    progress.json   its progress (`common.progress`)
    stdout, stderr  the output of the command
    stop            a user has asked the job to stop
    exit.json       how it ended (`job_process`)

The jobs in the registry belong to the REST service, which marks open ones as failed whenever it starts. The jobs here
keep running when browser and dashboard are closed. Both are described by the registry's `Job`.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from portfolio_sdpo.common.files import data_directory, is_alive, share_lock, write_atomically
from portfolio_sdpo.common.progress import VARIABLE
from portfolio_sdpo.errors import NotRegisteredError, RetrainBusyError, RunError
from portfolio_sdpo.registry import Job
from portfolio_sdpo.registry.records import make_id, utc_now

JobKind = Literal["backtest", "retrain"]
COMMAND = (sys.executable, "-P", "-m", "portfolio_sdpo")
"""-P: modules in the current folder do not shadow the package."""
WRAPPER = (sys.executable, "-P", "-m", "portfolio_sdpo_app.dashboard.data.job_process")
UNCHANGED = 3
"""The exit code of a retrain after which the champion stays (`cli.retrain`)."""
MAX_RUNNING = 4
"""Jobs that may run at the same time."""
LOG_BYTES = 20_000
"""Size of the end of a job's log that is shown."""
RESUME_HINT = "start it again with the same settings, and it resumes where it stopped."
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
_start_lock = threading.Lock()


@dataclass(frozen=True)
class DashboardJob:
    """A job that was started from the dashboard."""

    job: Job
    title: str
    """A short description for lists."""
    command: tuple[str, ...]
    folder: Path
    stopping: bool
    """Whether a user has asked it to stop."""

    @property
    def running(self) -> bool:
        """Whether a process of the job is alive."""
        return self.job.status == "running"

    def log(self) -> str:
        """The end of the job's log."""
        try:
            with (self.folder / "stderr").open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - LOG_BYTES, 0))
                return _ANSI.sub("", file.read().decode(errors="replace")).strip()
        except OSError:
            return ""


def home() -> Path:
    """The folder of all jobs."""
    return data_directory() / "jobs"


def start(
    kind: JobKind,
    arguments: Sequence[str],
    title: str = "",
    config: str | None = None,
    groups: str | None = None,
) -> DashboardJob:
    """Start a job and return at once. `config`: TOML for the command's `--config`; `groups`: CSV for its `--groups`."""
    with _start_lock:
        running = [each for each in list_jobs() if each.running]
        if kind == "retrain" and any(each.job.kind == kind for each in running):
            raise RetrainBusyError(
                "A retrain that was started here is still running: wait for it to finish, or stop it."
            )
        if len(running) >= MAX_RUNNING:
            raise RunError(f"{MAX_RUNNING} jobs are running already: wait for one of them to finish, or stop it.")
        folder = home() / make_id()
        command = [*COMMAND, kind, *arguments, "--json"]
        contents = {}
        for option, name, content in (("--config", "config.toml", config), ("--groups", "groups.csv", groups)):
            if content is not None:
                command += [option, str(folder / name)]
                contents[name] = content
        record = {"kind": kind, "title": title, "command": command, "created_at": utc_now().isoformat()}
        contents["job.json"] = json.dumps(record, indent=2)
        try:
            _make(folder, contents)
            _spawn(folder)
        except OSError as error:
            raise RunError(
                f"The job cannot be started in {folder} ({error.strerror}): free some space there."
            ) from None
    return read(folder)


def list_jobs() -> list[DashboardJob]:
    """All jobs, the newest first."""
    try:
        folders = sorted((path for path in home().iterdir() if _ID.fullmatch(path.name)), reverse=True)
    except OSError:
        return []
    found = []
    for folder in folders:
        with suppress(NotRegisteredError):  # damaged, or removed meanwhile
            found.append(read(folder))
    return found


def read(folder: Path) -> DashboardJob:
    """Read the state of a job."""
    # In this order: the process that holds the lock writes `exit.json` before it releases the lock.
    alive = is_alive(folder / "lock")
    ended = _json(folder / "exit.json")
    record = _json(folder / "job.json")
    try:
        kind, created = str(record["kind"]), datetime.fromisoformat(record["created_at"])
        title, command = str(record["title"]), tuple(map(str, record["command"]))
    except (KeyError, TypeError, ValueError):
        raise NotRegisteredError(f"The job {folder.name} was not found.") from None
    stopping = (folder / "stop").exists()
    fraction, progress = _progress(folder)
    values: dict[str, Any] = {"status": "running", "ended_at": None, "result": None, "error": None}
    if ended is not None or not alive:
        code = None if ended is None else int(ended["code"])
        result = _result(str(folder), code) if code in (0, UNCHANGED, None) else None
        values["result"] = result
        if ended is not None:
            values["ended_at"] = datetime.fromisoformat(ended["ended_at"])
        if result is None:
            values |= {"status": "failed", "error": _explain_failure(folder, code, stopping)}
        else:
            values["status"], fraction, progress = "done", 1.0, ""
    job = Job(folder.name, kind, progress=progress, fraction=fraction, created_at=created, started_at=created, **values)
    return DashboardJob(job, title, command, folder, stopping)


def stop(folder: Path) -> None:
    """Interrupt a job as Ctrl-C does; the second call terminates it."""
    if not is_alive(folder / "lock"):
        return
    try:
        group = int((folder / "pid").read_text())
    except (OSError, ValueError):
        raise RunError("The job is still starting: try again in a moment.") from None
    again = (folder / "stop").exists()
    with suppress(OSError):
        (folder / "stop").touch()
    with suppress(ProcessLookupError):
        # A member of the group holds the lock, so that the number cannot have passed to another group.
        os.killpg(group, signal.SIGTERM if again else signal.SIGINT)


def forget(folder: Path) -> None:
    """Remove the folder of a job that has ended; its results stay."""
    if not read(folder).running:
        shutil.rmtree(folder, ignore_errors=True)


def _make(folder: Path, contents: dict[str, str]) -> None:
    """Create the folder with its lock, complete or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.parent / f".{folder.name}.{secrets.token_hex(4)}"
    temporary.mkdir()
    for name, content in contents.items():
        (temporary / name).write_text(content, encoding="utf-8")
    (temporary / "lock").touch()
    temporary.rename(folder)


def _spawn(folder: Path) -> None:
    environment = dict(os.environ) | {VARIABLE: str(folder / "progress.json")}
    with (folder / "lock").open("ab") as lock:
        # Locked here and passed on, so that the job counts as running at every moment.
        share_lock(lock)
        process = subprocess.Popen(
            [*WRAPPER, str(folder), str(lock.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=(lock.fileno(),),
            start_new_session=True,  # a signal that ends the dashboard does not end the job
        )
        write_atomically(folder / "pid", str(process.pid).encode())
    threading.Thread(target=process.wait, name="job", daemon=True).start()  # reaps the process


def _json(path: Path) -> Any:
    """The content of a small file; None if it is missing or incomplete."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _progress(folder: Path) -> tuple[float, str]:
    try:
        share, what = _json(folder / "progress.json")
        return min(max(float(share), 0.0), 1.0), str(what)
    except (TypeError, ValueError):
        return 0.0, ""


@lru_cache(maxsize=256)
def _result(folder: str, code: int | None) -> dict[str, Any] | None:
    """The result that the command printed, without the parts that its folder holds; final, so it is cached."""
    printed = _json(Path(folder, "stdout"))
    if not isinstance(printed, dict):
        return None
    return {name: value for name, value in printed.items() if name not in ("config", "records")}


def _explain_failure(folder: Path, code: int | None, stopped: bool) -> str:
    """One sentence with the reason why a job failed."""
    if stopped:
        return f"Stopped on request: {RESUME_HINT}"
    if code is None:
        return f"The process was killed, or the machine was restarted: {RESUME_HINT}"
    if code < 0:
        with suppress(ValueError):
            return f"The process was terminated by {signal.Signals(-code).name}: {RESUME_HINT}"
    return _find_error_message(folder) or f"The command ended with exit code {code}: see its log below."


def _find_error_message(folder: Path) -> str | None:
    """The error with which the command ended, as JSON or as text (`cli._frame`)."""
    try:
        lines = _ANSI.sub("", (folder / "stderr").read_text(errors="replace")).split("\n")
    except OSError:
        return None
    for line in reversed(lines):
        if line.startswith("Error: "):
            return line.removeprefix("Error: ")
        with suppress(ValueError, KeyError, TypeError):
            return str(json.loads(line)["error"])
    return None
