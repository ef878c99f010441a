"""Whether runs bear a claim out, by explicit rules and never by hand.

- *X beats Y* in a figure: yes if the 95 % interval of P(X > Y) lies above ½ and the permutation p-value is at
  most 0.05; no if the same holds below ½.
- *X keeps the bound*: yes if the 95 % interval of the mean share of iterations beyond it lies below 5 %, no if above.
  *X breaks it* is the opposite.
- *A figure is above a level*: by the 95 % interval of its interquartile mean.

What no interval decides remains open. A claim is borne out if all of its parts are (or one, where the claim says
"or"), and not borne out as soon as one part is contradicted (or all).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from portfolio_sdpo.experiments.paper.claims import Above, Beats, Breaks, Claim, Keeps, Part
from portfolio_sdpo.experiments.statistics.evidence import Evidence
from portfolio_sdpo.experiments.statistics.seeds import Estimate, compare, interquartile_mean, mean
from portfolio_sdpo.experiments.tables import display_name

Verdict = Literal["borne out", "not borne out", "cannot tell from these runs", "cannot tell: smoke"]

RARELY = 0.05
"""Share of iterations beyond the bound up to which it counts as kept."""
BY_CHANCE = 0.05
RULES = (
    "X beats Y in a figure if the 95 % interval of P(X > Y) lies above ½ and the p-value, over permutations of the "
    f"labels within each problem, is at most {BY_CHANCE:g}, which takes three runs each, or five pairs. Y beats X if "
    "the same holds below ½.",
    f"A bound is kept if the 95 % interval of the mean share of iterations beyond it lies below {RARELY:.0%}, and "
    "broken if it lies above.",
    "A figure is above a level if the 95 % interval of its interquartile mean is.",
    "What no interval decides remains open. A claim is borne out if all of its parts are (or one, where it says "
    "“or”), and not borne out as soon as one is contradicted (or all).",
)
"""The same for readers."""


@dataclass(frozen=True)
class Finding:
    """What the runs show about one part of a claim."""

    text: str
    answer: bool | None
    """None if they do not decide it"""


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim, with its findings."""

    key: str
    text: str
    section: str
    verdict: Verdict
    findings: tuple[Finding, ...]


def judge(claim: Claim, evidence: Evidence, *, toy: bool = False) -> Judgement:
    """Judge a claim by the rules above; runs of a toy's size decide nothing, whatever they show."""
    findings = tuple(found for part in claim.parts for found in _examine(part, evidence))
    tasks = len({run.stratum for run in evidence.runs})
    if tasks < claim.tasks:
        findings += (Finding(f"the claim is about {claim.tasks} tasks, and there are runs of {tasks}", None),)
    answers = [found.answer for found in findings]
    verdict: Verdict = "cannot tell from these runs"
    if toy:
        verdict = "cannot tell: smoke"
    elif tasks < claim.tasks:
        pass
    elif any(answers) if claim.any_of else all(answers):
        verdict = "borne out"
    elif all(each is False for each in answers) if claim.any_of else False in answers:
        verdict = "not borne out"
    return Judgement(claim.key, claim.text, claim.section, verdict, findings)


def _examine(part: Part, evidence: Evidence) -> list[Finding]:
    """One finding for every label, or pair of labels, that the part's patterns stand for."""
    patterns = (part.better, part.worse) if isinstance(part, Beats) else (part.label,)
    missing = [pattern for pattern in patterns if not evidence.labels(pattern)]
    if missing:
        return [Finding(f"no runs of {' or '.join(_name_pattern(each) for each in missing)}", None)]
    match part:
        case Beats(better, worse, figure):
            pairs = [(a, b) for a in evidence.labels(better) for b in evidence.labels(worse)]
            return [_beats(a, b, figure, evidence) for a, b in pairs]
        case Above():
            return [_above(label, part, evidence) for label in evidence.labels(part.label)]
        case Keeps(pattern, constraint) | Breaks(pattern, constraint):
            kept = isinstance(part, Keeps)
            return [_keeps(label, constraint, kept, evidence) for label in evidence.labels(pattern)]


def _name_pattern(pattern: str) -> str:
    return {"pd-*var": "PD-CVaR or PD-VAR"}.get(pattern) or display_name(pattern.rstrip("-*"))


def _beats(better: str, worse: str, figure: str, evidence: Evidence) -> Finding:
    names = f"{display_name(better)} > {display_name(worse)}"
    found = compare(better, evidence.scores(better, figure), worse, evidence.scores(worse, figure), figure)
    if found is None:
        return Finding(f"{names}: no runs to compare", None)
    probability = found.probability
    text = f"P({names}) = {format_estimate(probability)} in {evidence.figures[figure]}; {found.pairs} pairs"
    if found.least_chance > BY_CHANCE:
        return Finding(f"{text}: too few to decide, even if all agreed", None)
    answer: bool | None = None
    if probability.low is not None and probability.high is not None:
        if probability.low > 0.5 and found.chance <= BY_CHANCE:
            answer = True
        elif probability.high < 0.5 and found.chance_below <= BY_CHANCE:
            answer = False
    chance = min(found.chance, found.chance_below)
    return Finding(f"{text}, permutation p = {chance:.3f}", answer)


def _keeps(label: str, constraint: int, kept: bool, evidence: Evidence) -> Finding:
    found = evidence.align().violations(label, constraint)
    name = evidence.constraints[constraint]
    if not found:
        return Finding(f"{display_name(label)}: no iteration to judge by ({name})", None)
    share = mean({stratum: [each.share for each in runs] for stratum, runs in found.items()})
    shares = format_estimate(share, ".1%")
    text = f"{display_name(label)} is beyond “{name}” in {shares} of its iterations{_place(evidence)}"
    within = _side(share, RARELY, below=True)
    return Finding(text, None if within is None else within == kept)


def _above(label: str, part: Above, evidence: Evidence) -> Finding:
    scores = evidence.align().scores(label, part.figure)
    if not scores:
        return Finding(f"{display_name(label)}: not known ({evidence.figures[part.figure]})", None)
    found = interquartile_mean(scores)
    text = f"{display_name(label)}: {format_estimate(found, '.4g')}, {evidence.figures[part.figure]}{_place(evidence)}"
    return Finding(text, _side(found, part.level, below=False, or_at=part.or_at))


def _place(evidence: Evidence) -> str:
    """The strata of a finding about one label, where they are not all."""
    left = evidence.describe_alignment()
    return f", {left}" if left else ""


def _side(estimate: Estimate, level: float, *, below: bool, or_at: bool = False) -> bool | None:
    """Whether the interval lies wholly on that side of the level; None if it holds it, or there is none."""
    if estimate.low is None or estimate.high is None:
        return None
    low, high = (_at(level, each) for each in (estimate.low, estimate.high))
    if low > level or (or_at and low >= level):
        return not below
    if high < level or (not or_at and not below and high <= level):
        return below
    return None


def _at(level: float, value: float) -> float:
    """The value; exactly the level where only rounding lies between them."""
    return level if math.isclose(value, level, rel_tol=1e-9, abs_tol=1e-12) else value


def format_estimate(estimate: Estimate, form: str = ".2f") -> str:
    """`0.80 [0.60, 1.00]`, without the interval where there is none.

    >>> format_estimate(Estimate(0.8, 0.6, 1.0))
    '0.80 [0.60, 1.00]'
    """
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:{form}} (too few runs for an interval)"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"
