"""Retraining on request, in a separate process: the service keeps answering, and survives a crash of the training."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from portfolio_sdpo.errors import RegistryError
from portfolio_sdpo.registry import Job, Registry
from portfolio_sdpo.registry.database import VARIABLE
from portfolio_sdpo.registry.retrain import RetrainSettings

from ..errors import ProblemError

KIND = "retrain"
MODULE = "portfolio_sdpo_app.api.services.retrain_process"
STOPPED = "The service was stopped."

log = logging.getLogger("portfolio_sdpo.api")


class RetrainJobs:
    """Starts retrains, at most one at a time, and records how their jobs end."""

    def __init__(self, registry: Registry, place: str | None) -> None:
        self.registry = registry
        self._place = place
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._job_id: str | None = None
        self._closing = False

    def start(self, settings: RetrainSettings) -> Job:
        """Start a retrain and return its job."""
        with self._lock:
            if self._is_running():
                detail = f"Job {self._job_id} is running: wait for it to end."
                raise ProblemError("retrain-running", detail, job_id=self._job_id)
            job = self.registry.create_job(KIND)
            try:
                self._process = self._spawn(job.id, settings)
            except OSError as error:
                self.registry.fail_job(job.id, f"The process could not be started ({error.strerror}).")
                raise
            self._job_id = job.id
            threading.Thread(target=self._watch, args=(self._process, job.id), name=KIND, daemon=True).start()
        return job

    def _is_running(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return False
        if self.registry.job(str(self._job_id)).status in ("queued", "running"):
            return True
        # Its job has ended, so the process is about to exit.
        _wait_or_kill(self._process)
        return False

    def close(self) -> None:
        """Stop a running retrain; that leaves the champion as it is."""
        process, job_id = self._process, self._job_id
        if process is None or process.poll() is not None:
            return
        self._closing = True
        process.terminate()
        _wait_or_kill(process)
        self._fail(str(job_id), STOPPED)

    def _spawn(self, job_id: str, settings: RetrainSettings) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        if self._place is not None:
            environment[VARIABLE] = self._place  # not an argument, which every user of the machine can see
        process = subprocess.Popen(
            # -P: modules in the current folder must not replace those of the package.
            [sys.executable, "-P", "-m", MODULE, job_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment,
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(settings.model_dump_json().encode())
        return process

    def _watch(self, process: subprocess.Popen[Any], job_id: str) -> None:
        code = process.wait()
        crashed = f"The process ended with code {code} before it was done: the service's log gives the reason."
        self._fail(job_id, STOPPED if self._closing else crashed)

    def _fail(self, job_id: str, reason: str) -> None:
        """Record a job as failed, unless it recorded its own end."""
        try:
            if self.registry.job(job_id).status in ("queued", "running"):
                self.registry.fail_job(job_id, reason)
        except RegistryError as error:
            log.error("%s", error)


def _wait_or_kill(process: subprocess.Popen[Any]) -> None:
    """Wait until a process has ended; kill it if it takes too long."""
    try:
        process.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
