"""The process of one retrain: its settings come on stdin, its progress and result go into the job named as argument."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict

from portfolio_sdpo.errors import NotRegisteredError, PortfolioSdpoError, RegistryUnavailableError
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.retrain import RetrainSettings, retrain

REPORT_EVERY = 0.5
"""Seconds between two reports of the progress."""


def main(job_id: str, content: str) -> int:
    """Retrain and record the result; returns 0 if the retrain was completed, promoted or not."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that locks are released
    settings = RetrainSettings.model_validate_json(content)
    with Registry.open(create=False) as registry:
        registry.start_job(job_id)

        reported = 0.0

        def progress(fraction: float, what: str) -> None:
            nonlocal reported
            if time.monotonic() - reported < REPORT_EVERY:
                return
            reported = time.monotonic()
            # A locked registry is no reason to stop. A job that was abandoned is: nobody waits for it any more.
            with suppress(RegistryUnavailableError):
                registry.advance_job(job_id, what, min(max(fraction, 0.0), 1.0))

        try:
            result = retrain(settings, registry=registry, progress=progress)
        except PortfolioSdpoError as error:
            with suppress(NotRegisteredError):
                registry.fail_job(job_id, str(error))
            return 1
        with suppress(NotRegisteredError):  # abandoned meanwhile by a service that started; the run holds the result
            registry.finish_job(job_id, asdict(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.stdin.read()))
