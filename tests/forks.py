"""Processes that run the command line without its imports, which take ten times as long as many commands.

One process has done the imports, and forks into each command: a process of its own all the same, with its own pid,
signals, environment, folder and limits.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO, Any

IMPORTED = """
import json, os, signal, socket, sys
from datetime import date

import torch
import portfolio_sdpo.backtest.run, portfolio_sdpo.experiments.cmdp.study, portfolio_sdpo.registry.backup
import portfolio_sdpo.registry.retrain, portfolio_sdpo.serving, portfolio_sdpo_app.api.server
from portfolio_sdpo import cli
from portfolio_sdpo.portfolio.market import load_latest
from portfolio_sdpo.prices.calendar import count_sessions_since

torch.set_num_threads(1)
load_latest(None, "zero")
count_sessions_since(date(2026, 1, 5), "XNYS")
line = socket.socket(fileno=int(sys.argv[1]))
while True:
    message, handles, _, _ = socket.recv_fds(line, 1_000_000, 2)
    if not message:
        sys.exit()
    order = json.loads(message)
    if "pid" in order:
        found, status = os.waitpid(order["pid"], os.WNOHANG)
        line.sendall(json.dumps(os.waitstatus_to_exitcode(status) if found else None).encode())
        continue
    pid = os.fork()
    if pid == 0:
        break
    for handle in handles:
        os.close(handle)
    line.sendall(json.dumps(pid).encode())

line.close()
os.setsid()
for number, handle in enumerate(handles, 1):
    os.dup2(handle, number)
    os.close(handle)
sys.stdout.reconfigure(line_buffering=False)
os.environ.clear()
os.environ.update(order["environment"])
os.chdir(order["folder"])
signal.signal(signal.SIGINT, signal.default_int_handler)
if order["files"]:
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (order["files"], order["files"]))
sys.argv = ["portfolio-sdpo", *order["arguments"]]
cli.main()
"""


class Forked:
    """A command in a process of its own, in a process group of its own; as `subprocess.Popen`, in text."""

    def __init__(self, forks: Forks, pid: int, stdout: IO[str], stderr: IO[str]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._forks = forks

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._forks.ask({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float = 300.0) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} has not ended")
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float = 300.0) -> tuple[str, str]:
        """What it printed; for commands that print less than a pipe holds."""
        self.wait(timeout)
        return self.stdout.read(), self.stderr.read()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def end(self) -> None:
        """Kill it with its children, if it runs, and close what it printed to."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        self.stdout.close()
        self.stderr.close()


class Forks:
    """Starts commands; one for a test session."""

    def __init__(self) -> None:
        # Every message arrives as a whole.
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-c", IMPORTED, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),))

    def start(self, *arguments: str, files: int | None = None, quiet: bool = False) -> Forked:
        """Start `portfolio-sdpo ARGUMENTS` here and now, with at most so many open files.

        quiet: its stderr goes to ours, as nobody reads it.
        """
        order = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd(), "files": files}
        out, their_out = os.pipe()
        errors, their_errors = os.pipe()
        handles = [their_out, 2 if quiet else their_errors]
        socket.send_fds(self._line, [json.dumps(order).encode()], handles)
        pid = json.loads(self._line.recv(1000))
        os.close(their_out)
        os.close(their_errors)
        return Forked(self, pid, os.fdopen(out), os.fdopen(errors))

    def ask(self, order: dict[str, Any]) -> Any:
        self._line.sendall(json.dumps(order).encode())
        return json.loads(self._line.recv(1000))

    def close(self) -> None:
        self._line.close()
        self._process.wait(30)


@contextlib.contextmanager
def forking() -> Iterator[Forks]:
    forks = Forks()
    try:
        yield forks
    finally:
        forks.close()
