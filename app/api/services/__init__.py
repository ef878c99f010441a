"""The parts of the running service: the published answer, the audit log, background jobs, counters and limits."""
