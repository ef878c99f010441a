"""What every room may use: files, locks, progress of work elsewhere, seeds, optional packages, plugins."""
