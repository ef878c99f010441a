"""What the runs of an experiment show, in one shape for all families, and its statistics.

Every family fills it from its own logs: `collect_<family>_evidence` in its `summary`. The terminal's tables, the
verdicts on the paper's claims and the figures of `reproduce` are all made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.experiments.statistics.seeds import (
    FEWEST,
    Comparison,
    Estimate,
    Violation,
    Violations,
    compare,
    interquartile_mean,
    optimality_gap,
    violations,
)

Array = NDArray[np.float64]
T = TypeVar("T")
SCORE = "score"
"""The figure by which algorithms are ranked; `Evidence.figures` says what it is."""
SPEED = "speed"
"""The mean of the same over all of learning: of two that end alike, the faster one has more."""


@dataclass(frozen=True, eq=False)
class RunEvidence:
    """One run."""

    label: str
    stratum: str
    """the CMDP or the task that it was made on"""
    seed: int
    figures: dict[str, float]
    """name → value, more is better; names and meanings: `Evidence.figures`"""
    excess: tuple[Array, ...] = ()
    """by constraint, [iterations] how far beyond the bound each iteration's policy is, 0 inside"""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence of all finished runs."""

    figures: dict[str, str]
    """name → what it is, in words"""
    constraints: tuple[str, ...]
    stratum: str
    """what a stratum is: `CMDP`, `task`, `year`"""
    runs: tuple[RunEvidence, ...]
    to_optimum: bool = False
    """whether the score is 1 where the exact optimum is"""
    aligned: bool = False
    """whether figures of single labels are only of strata on which all labels have runs"""

    def align(self) -> Evidence:
        """The runs from which figures of single labels are made, which stand side by side: all, unless `aligned`."""
        shared = self._shared_strata()
        return replace(self, runs=tuple(run for run in self.runs if run.stratum in shared)) if self.aligned else self

    def describe_alignment(self) -> str:
        """`start date 2019-01-02`: the strata of `align`, where it leaves some out; else nothing."""
        shared = self._shared_strata()
        if not self.aligned or shared == {run.stratum for run in self.runs}:
            return ""
        return f"{self.stratum}{'s' * (len(shared) > 1)} {', '.join(sorted(shared))}"

    def _shared_strata(self) -> set[str]:
        by_label = [{run.stratum for run in self.runs if run.label == label} for label in self.labels()]
        return set.intersection(*by_label) if by_label else set()

    def labels(self, pattern: str = "*") -> list[str]:
        """Labels with runs, in the order of the runs; the pattern `sdpo-*` matches all that begin so."""
        return [each for each in dict.fromkeys(run.label for run in self.runs) if fnmatchcase(each, pattern)]

    def scores(self, label: str, figure: str = SCORE) -> dict[str, list[float]]:
        """Stratum → the figure of every run of the label that has it."""
        return self._by_stratum(label, lambda run: run.figures.get(figure))

    def violations(self, label: str, constraint: int) -> dict[str, list[Violation]]:
        """Stratum → of every run of the label."""
        return self._by_stratum(label, lambda run: Violation.of(run.excess[constraint]))

    def _by_stratum(self, label: str, read: Callable[[RunEvidence], T | None]) -> dict[str, list[T]]:
        found: dict[str, list[T]] = {}
        for run in self.runs:
            value = read(run) if run.label == label else None
            if value is not None:
                found.setdefault(run.stratum, []).append(value)
        return found


@dataclass(frozen=True)
class LabelStatistics:
    """An algorithm over its runs."""

    runs: int
    score: Estimate
    """interquartile mean"""
    gap: Estimate | None
    """mean shortfall from the optimum, where that is known"""
    violations: tuple[Violations | None, ...]
    """by constraint"""


@dataclass(frozen=True)
class SeedStatistics:
    """Statistics of all labels across seeds."""

    score: str
    """what the score is"""
    resampling: str
    """how intervals were drawn, or why there are none"""
    labels: dict[str, LabelStatistics]
    comparisons: tuple[Comparison, ...] = field(default=())
    """of the score, each SDPO with each rival"""

    @classmethod
    def of(cls, evidence: Evidence) -> SeedStatistics | None:
        """None if there are no runs."""
        aligned = evidence.align()
        labels = [label for label in aligned.labels() if aligned.scores(label)]
        if not labels:
            return None
        ours = evidence.labels("sdpo*")
        pairs = [(label, rival) for label in ours for rival in labels if rival not in ours]
        found = [compare(a, evidence.scores(a), b, evidence.scores(b), SCORE) for a, b in pairs]
        return cls(
            score=evidence.figures[SCORE],
            resampling=describe_resampling(evidence, labels),
            labels={label: _summarise_label(aligned, label) for label in labels},
            comparisons=tuple(each for each in found if each is not None),
        )


def merge_evidence(parts: Sequence[Evidence], unit: str = "ppo") -> Evidence:
    """Several tasks as one, each a stratum: score and speed as shares of what runs of `unit` score there on average."""
    first = parts[0]
    if len(parts) == 1:
        return first
    runs: list[RunEvidence] = []
    for part in parts:
        scores = [score for stratum in part.scores(unit).values() for score in stratum]
        if not scores or np.mean(scores) <= 0:
            continue  # there is nothing to measure this task by
        scale = float(np.mean(scores))
        for run in part.runs:
            scaled = {name: run.figures[name] / scale for name in (SCORE, SPEED) if name in run.figures}
            runs.append(replace(run, figures=run.figures | scaled))
    share = f"as a share of {unit.upper()}'s on the same {first.stratum}"
    named = {name: f"{first.figures[name]}, {share}" for name in (SCORE, SPEED) if name in first.figures}
    return replace(first, figures=first.figures | named, runs=tuple(runs))


def describe_resampling(evidence: Evidence, labels: Iterable[str]) -> str:
    """How the intervals of these labels were drawn, in words, and from which strata if not from all."""
    left = evidence.describe_alignment()
    text = _describe_intervals(evidence.align(), labels)
    if not left:
        return text
    return f"{text} Figures of single policies are of {left}, which all have; P of every {evidence.stratum} of both."


def _describe_intervals(evidence: Evidence, labels: Iterable[str]) -> str:
    sizes = [[len(runs) for runs in evidence.scores(label).values()] for label in labels]
    fewest, strata, word = min(map(min, sizes)), min(map(len, sizes)), evidence.stratum
    if fewest >= FEWEST:
        within = f" within each of {strata} {word}s" if strata > 1 else ""
        few = " With so few runs they are too narrow." if fewest < 2 * FEWEST else ""
        return f"95 % bootstrap intervals, runs resampled{within}.{few}"
    if strata >= FEWEST:
        few = " With so few of them they are too narrow." if strata < 2 * FEWEST else ""
        has = f"some have only {fewest} run{'s' * (fewest > 1)}"
        return f"95 % bootstrap intervals, whole {word}s resampled, as {has}.{few}"
    return f"No intervals where there are fewer than {FEWEST} runs: they would not be meaningful."


def _summarise_label(evidence: Evidence, label: str) -> LabelStatistics:
    scores = evidence.scores(label)
    return LabelStatistics(
        runs=sum(map(len, scores.values())),
        score=interquartile_mean(scores),
        gap=optimality_gap(scores) if evidence.to_optimum else None,
        violations=tuple(violations(evidence.violations(label, index)) for index in range(len(evidence.constraints))),
    )
