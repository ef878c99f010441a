"""Questions (B) and (C) of the paper, for any settings.

Every budget is undiscounted: the plain sum of a signal over an episode.
"""

from __future__ import annotations

from typing import Any

from portfolio_sdpo.experiments.safety.experiment import BarrierSettings, SafetyExperiment, WorldSettings
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import AnySettings, Problem

DISCOUNT = 0.99
COST = "expectation of cost <= 25 discount=1"
VASES = "expectation of vases <= 10 discount=1"
HAZARDS = "bad-state-probability of hazards <= 0.1"
LABELS_C = ("ppo", "ipo", "sdpo", "sdpo-backup")
"""Of the algorithms that question (B) compares, those that keep several bounds, and the one that keeps none."""


def question_b(
    task: str,
    name: str,
    title: str,
    algorithms: dict[str, AnySettings],
    barrier: str,
    size: dict[str, Any],
    own: dict[str, tuple[BarrierSettings, ...]] | None = None,
    world: dict[str, Any] | None = None,
) -> SafetyExperiment:
    """One task under a bound on its expected cost; `own` are the barriers of single labels."""
    return SafetyExperiment(
        name=name,
        title=title,
        question="Does SDPO earn as much as PPO, IPO, CPO and PCPO, within the bound while it learns? (question B)",
        world=WorldSettings(task=task, **(world or {})),
        problem=Problem(discount=DISCOUNT, constraints=(Constraint.from_spec(f"{COST} {barrier}"),)),
        algorithms=algorithms,
        barriers=own or {},
        **size,
    )


def question_c(
    name: str,
    title: str,
    algorithms: dict[str, AnySettings],
    barriers: tuple[str, str],
    size: dict[str, Any],
    own: dict[str, tuple[BarrierSettings, ...]] | None = None,
    world: dict[str, Any] | None = None,
) -> SafetyExperiment:
    """PointGoal2 where hazards end the episode, under a bound on vases and one on hazards."""
    return SafetyExperiment(
        name=name,
        title=title,
        question="Does SDPO keep two bounds at once? (question C)",
        world=WorldSettings(task="PointGoal2", terminal_hazards=True, **(world or {})),
        problem=Problem(
            discount=DISCOUNT,
            constraints=(
                Constraint.from_spec(f"{VASES} {barriers[0]}"),
                Constraint.from_spec(f"{HAZARDS} {barriers[1]}"),
            ),
        ),
        algorithms={label: settings for label, settings in algorithms.items() if label in LABELS_C},
        barriers=own or {},
        **size,
    )
