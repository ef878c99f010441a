"""What the pages read and write: backtests, training logs, the registry, jobs and uploaded files."""
