"""Results of others on the same tasks under the same bound of 25, none of them measured here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublicFigure:
    """A published result on the same task under the same bound of 25."""

    algorithm: str
    episode_return: float
    episode_cost: float
    steps: int
    source: str


_TABLES = "public tables"
"""Of OmniSafe, Safety-Gymnasium and openai/safety-gym."""
_OMNISAFE = "OmniSafe, its defaults, one seed, two cores"
PUBLIC = {
    "PointGoal1": (
        PublicFigure("PPO", 25.4, 55.7, 10_000_000, _TABLES),
        PublicFigure("CPO", 20.5, 28.8, 10_000_000, _TABLES),
        PublicFigure("PCPO", 18.6, 23.0, 10_000_000, _TABLES),
        PublicFigure("TRPO-PID", 19.2, 21.4, 10_000_000, _TABLES),
        PublicFigure("PPO", 22.0, 59.0, 500_000, _OMNISAFE),
        PublicFigure("IPO", 2.6, 19.0, 500_000, _OMNISAFE),
        PublicFigure("CPO", 1.9, 24.0, 500_000, _OMNISAFE),
        PublicFigure("PCPO", 3.0, 37.0, 460_000, _OMNISAFE),
    ),
    "PointGoal2": (
        PublicFigure("CPO", 2.5, 40.8, 10_000_000, _TABLES),
        PublicFigure("PPO", 22.5, 197.0, 10_000_000, _TABLES),
        PublicFigure("FOCOPS", 2.7, 19.0, 10_000_000, _TABLES),
    ),
    "PointButton1": (
        PublicFigure("PPO", 24.7, 148.0, 10_000_000, _TABLES),
        PublicFigure("PPO-Lagrangian", 4.6, 21.0, 10_000_000, _TABLES),
    ),
    "PointButton2": (
        PublicFigure("PPO", 23.9, 164.0, 10_000_000, _TABLES),
        PublicFigure("TRPO-Lagrangian", 4.9, 25.0, 10_000_000, _TABLES),
    ),
    "PointPush1": (
        PublicFigure("PPO", 3.1, 48.0, 10_000_000, _TABLES),
        PublicFigure("RCPO", 4.4, 23.0, 10_000_000, _TABLES),
    ),
    "PointPush2": (PublicFigure("PPO", 2.2, 72.0, 10_000_000, _TABLES),),
    "CarGoal1": (
        PublicFigure("PPO", 25.5, 54.0, 10_000_000, _TABLES),
        PublicFigure("RCPO", 18.7, 23.0, 10_000_000, _TABLES),
    ),
    "CarGoal2": (
        PublicFigure("PPO", 21.5, 193.0, 10_000_000, _TABLES),
        PublicFigure("FOCOPS", 3.3, 23.0, 10_000_000, _TABLES),
    ),
    "CarButton1": (
        PublicFigure("PPO", 18.9, 264.0, 10_000_000, _TABLES),
        PublicFigure("PPO-Lagrangian", 0.1, 12.0, 10_000_000, _TABLES),
    ),
    "CarPush1": (
        PublicFigure("PPO", 3.1, 62.0, 10_000_000, _TABLES),
        PublicFigure("TRPO-Lagrangian", 1.5, 18.0, 10_000_000, _TABLES),
    ),
    "DoggoGoal1": (
        PublicFigure("PPO", 50.2, 74.0, 10_000_000, _TABLES),
        PublicFigure("CPO", 12.7, 12.0, 100_000_000, _TABLES),
    ),
    "DoggoGoal2": (
        PublicFigure("PPO", 38.1, 193.0, 10_000_000, _TABLES),
        PublicFigure("CUP", 0.3, 3.0, 10_000_000, _TABLES),
    ),
}
"""Task → what others report for it."""


def best_within(task: str, bound: float = 25.0) -> PublicFigure | None:
    """The published result with the highest return whose cost is within the bound; None where there is none.

    >>> best_within("PointGoal1").algorithm
    'TRPO-PID'
    """
    within = [each for each in PUBLIC.get(task, ()) if each.episode_cost <= bound]
    return max(within, key=lambda each: each.episode_return, default=None)
