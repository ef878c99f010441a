"""Where one run stands after some number of steps: return and risk of the last iterations, violations of all.

All of it is of the episodes that the learner itself went through, undiscounted, as the public figures are.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.metrics import LogRow

LAST = 5
"""Iterations over which return and risk are averaged."""
ROUNDING = 1e-6
"""Share of the bound by which a risk may pass it: logged in single precision, 1 episode of 10 is 0.1000000015."""


@dataclass(frozen=True)
class StandingRisk:
    """One constraint in one run, up to some number of steps."""

    risk: float
    """of the last iterations' episodes"""
    breaks: float
    """share of iterations whose own episodes are beyond the bound"""
    worst_excess: float
    """largest distance beyond the bound of any iteration, 0 if there is none"""
    cumulated: float
    """sum of the signal over all steps"""


@dataclass(frozen=True)
class Standing:
    """Where one run stands after some number of steps."""

    steps: int
    episode_return: float
    """of the last iterations' episodes"""
    risks: tuple[StandingRisk, ...]


def find_standing(constraints: Sequence[Constraint], rows: Sequence[LogRow], steps: int | None = None) -> Standing:
    """Where a log stands after so many steps, or at its end."""
    counted = [row for row in rows if steps is None or float(row["total_steps"]) <= steps]
    last = counted[-LAST:]
    risks = []
    for index, constraint in enumerate(constraints):
        sampled = [float(row[f"risk_empirical_{index}"]) for row in counted]
        excess = [measure_excess(constraint, risk) for risk in sampled]
        risks.append(
            StandingRisk(
                risk=statistics.fmean(sampled[-LAST:]),
                breaks=sum(each > 0 for each in excess) / len(excess),
                worst_excess=max(excess),
                cumulated=sum(float(row[f"batch_{constraint.signal}"]) for row in counted),
            )
        )
    return Standing(
        steps=int(counted[-1]["total_steps"]),
        episode_return=statistics.fmean(float(row["episode_return"]) for row in last),
        risks=tuple(risks),
    )


def measure_excess(constraint: Constraint, risk: float) -> float:
    """How far beyond the bound a risk is, 0 if it is not."""
    beyond = -constraint.slack(risk)
    return beyond if beyond > ROUNDING * abs(constraint.bound) else 0.0
