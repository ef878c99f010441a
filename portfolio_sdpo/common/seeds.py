"""Lists of seeds, as commands read them and as settings check them."""

from __future__ import annotations

from portfolio_sdpo.errors import SettingsError


def parse_seeds(option: str, text: str) -> tuple[int, ...]:
    """The numbers of `0,1,2`, the value of a command's option.

    >>> parse_seeds("--seeds", "0,1,2")
    (0, 1, 2)
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"{option}: must be whole numbers with commas between them (got {text!r}).") from None


def check_seeds(seeds: tuple[int, ...]) -> tuple[int, ...]:
    """The seeds, if they can be seeds; a validator of settings."""
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError("must be different numbers, none of them negative, and at least one")
    return seeds
