"""Selecting some of an experiment's algorithms."""

from __future__ import annotations

from collections.abc import Iterable

from portfolio_sdpo.errors import SettingsError, did_you_mean


def select_algorithms(experiment: str, declared: Iterable[str], asked: Iterable[str] | None) -> tuple[str, ...]:
    """The labels that are asked for, in the order in which they are declared; None asks for all of them.

    >>> select_algorithms("cmdp-cvar", ["ppo", "sdpo", "pd-cvar"], ["pd-cvar", "ppo"])
    ('ppo', 'pd-cvar')
    """
    labels = tuple(declared)
    if asked is None:
        return labels
    wanted = list(asked)
    unknown = [label for label in wanted if label not in labels]
    if unknown:
        raise SettingsError(
            f"algorithms: {experiment} has no {unknown[0]!r}{did_you_mean(unknown[0], labels)}; "
            f"it has {', '.join(labels)}."
        )
    return tuple(label for label in labels if label in wanted)
