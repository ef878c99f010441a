"""The process of one retrain: settings on stdin, progress and outcome in the job whose id is the argument."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict

from portfolio_sdpo.errors import NotRegisteredError, PortfolioSdpoError, RegistryUnavailableError
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.retrain import RetrainSettings, retrain

EVERY = 0.5
"""Seconds from one note of the progress to the next."""


def main(job_id: str, content: str) -> int:
    """Retrain, and note what came of it; 0 if it came to an end, promoted or not."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that locks are let go
    settings = RetrainSettings.model_validate_json(content)
    with Registry.open() as registry:
        registry.start_job(job_id)

        noted = 0.0

        def progress(fraction: float, what: str) -> None:
            nonlocal noted
            if time.monotonic() - noted < EVERY:
                return
            noted = time.monotonic()
            # A locked registry is no reason to stop. A job that was given up is: nobody waits for it any more.
            with suppress(RegistryUnavailableError):
                registry.advance_job(job_id, what, min(max(fraction, 0.0), 1.0))

        try:
            done = retrain(settings, registry=registry, progress=progress)
        except PortfolioSdpoError as error:
            with suppress(NotRegisteredError):
                registry.fail_job(job_id, str(error))
            return 1
        with suppress(NotRegisteredError):  # given up meanwhile by a service that started; the run has it
            registry.finish_job(job_id, asdict(done))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.stdin.read()))
