"""Retraining on request: a process of its own, so that the service answers meanwhile and outlives its crash."""

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

from .problems import ProblemError

KIND = "retrain"
MODULE = "portfolio_sdpo_app.api.retrain_job"
STOPPED = "The service was stopped."

log = logging.getLogger("portfolio_sdpo.api")


class Retraining:
    """At most one retrain at a time."""

    def __init__(self, registry: Registry, place: str | None) -> None:
        self.registry = registry
        self._place = place
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._job_id: str | None = None
        self._closing = False

    def start(self, settings: RetrainSettings) -> Job:
        """Begin, and say under which job."""
        with self._lock:
            if self._running():
                detail = f"Job {self._job_id} is at it: wait for it to end."
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

    def _running(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return False
        if self.registry.job(str(self._job_id)).status in ("queued", "running"):
            return True
        # Its job has ended, so all that is left for it to do is to leave.
        _wait_or_kill(self._process)
        return False

    def close(self) -> None:
        """End what runs; a retrain that is ended leaves the champion as it is."""
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
            # -P: what lies in the current folder is not imported in place of the package.
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
        died = f"The process ended with code {code} before it was done: the service's log says why."
        self._fail(job_id, STOPPED if self._closing else died)

    def _fail(self, job_id: str, reason: str) -> None:
        """Unless it ended by itself."""
        try:
            if self.registry.job(job_id).status in ("queued", "running"):
                self.registry.fail_job(job_id, reason)
        except RegistryError as error:
            log.error("%s", error)


def _wait_or_kill(process: subprocess.Popen[Any]) -> None:
    """Until it is gone; one that does not leave by itself is made to."""
    try:
        process.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
