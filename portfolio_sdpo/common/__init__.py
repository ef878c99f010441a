"""Helpers for every room: files, locks, progress of other processes, seeds, optional packages, plugins."""
