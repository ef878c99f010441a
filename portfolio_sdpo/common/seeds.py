"""Lists of seeds: parsed from command lines, checked in settings."""

from __future__ import annotations

from portfolio_sdpo.errors import SettingsError


def parse_seeds(option: str, text: str) -> tuple[int, ...]:
    """Parse the value of a command-line option such as `0,1,2`.

    >>> parse_seeds("--seeds", "0,1,2")
    (0, 1, 2)
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(
            f"{option}: must be whole numbers separated by commas, such as 0,1,2 (got {text!r})."
        ) from None


def check_seeds(seeds: tuple[int, ...]) -> tuple[int, ...]:
    """Return the seeds if they are valid; a validator of settings."""
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError("must be at least one number, all different, none negative")
    return seeds
