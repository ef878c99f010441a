"""What the paper claims of its experiments, in our words and as data, and what it ran to find it.

A claim is made of parts, each of which runs can bear out or contradict; `verdicts` has the rules. Labels may be
patterns: `pd-*var` is the paper's primal–dual rival, PD-CVaR or PD-VAR, `sdpo-*` every SDPO. Figures are those of
`evidence`, where more is better.
"""

from __future__ import annotations

from dataclasses import dataclass

from portfolio_sdpo.experiments.statistics.evidence import SCORE, SPEED


@dataclass(frozen=True)
class Beats:
    """A run of the first has the higher figure more often than not."""

    better: str
    worse: str
    figure: str = SCORE


@dataclass(frozen=True)
class Keeps:
    """The bound is kept while learning, but for a small share of iterations."""

    label: str
    constraint: int = 0


@dataclass(frozen=True)
class Breaks:
    """It is not."""

    label: str
    constraint: int = 0


@dataclass(frozen=True)
class Above:
    """A figure lies above a level, or at it where that counts too."""

    label: str
    figure: str
    level: float = 0.0
    or_at: bool = False


Part = Beats | Keeps | Breaks | Above


@dataclass(frozen=True)
class Claim:
    """One of the paper's, with where it stands there."""

    key: str
    section: str
    text: str
    parts: tuple[Part, ...]
    any_of: bool = False
    """whether one part is enough"""
    tasks: int = 1
    """that it is about; on fewer it cannot be judged"""


@dataclass(frozen=True)
class Question:
    """One of the paper's four, what it ran for it, and what it found."""

    key: str
    title: str
    asks: str
    section: str
    size: dict[str, str]
    """of the paper's own runs, as far as its text says; the keys are those of `studies.Study.size`"""
    claims: tuple[Claim, ...]


_A, _B, _C, _D = (f"section 6, question ({letter})" for letter in "ABCD")
_PD = "pd-*var"
_NOT_SAID = "not said in the text"

QUESTION_A = Question(
    key="A",
    title="Random CMDPs, against Lagrangian relaxation",
    asks="How does SDPO compare with the primal–dual methods PD-CVaR and PD-VAR, under a bound on CVaR or on variance?",
    section=f"{_A}, figures 2 and 3; appendix A.1, figure 7",
    size={
        "runs of each algorithm": "10, five on each of two CMDPs",
        "problem": "1000 states, 10 actions, 100 steps",
        "batch": "1,000 steps",
        "length": _NOT_SAID,
    },
    claims=(
        Claim(
            "A1",
            f"{_A}, figures 2 and 3",
            "Without a constraint PPO reaches the highest return.",
            (Beats("ppo", "sdpo"), Beats("ppo", _PD)),
        ),
        Claim(
            "A2",
            f"{_A}, figures 2 and 3",
            "PPO converges faster than the constrained algorithms.",
            (Beats("ppo", "sdpo", SPEED), Beats("ppo", _PD, SPEED)),
        ),
        Claim(
            "A3",
            f"{_A}, figures 2 and 3",
            "SDPO and its primal–dual rival both end at a policy within the bound.",
            (Above("sdpo", "slack_0", or_at=True), Above(_PD, "slack_0", or_at=True)),
        ),
        Claim(
            "A4",
            f"{_A}, figures 2 and 3",
            "SDPO converges faster than its primal–dual rival.",
            (Beats("sdpo", _PD, SPEED),),
        ),
        Claim(
            "A5",
            "sections 1 and 2, table 1",
            "SDPO keeps to the bound while it learns, which primal–dual methods do not promise.",
            (Keeps("sdpo"),),
        ),
        Claim(
            "A6",
            f"{_A}, figure 3",
            "In safety SDPO is superior to its primal–dual rival.",
            (Beats("sdpo", _PD, "inside_0"),),
        ),
        Claim(
            "A7",
            "appendix A.1, figure 7",
            "PPO pays for its return with risk: the policies of SDPO and its rival are safer.",
            (Beats("sdpo", "ppo", "slack_0"), Beats(_PD, "ppo", "slack_0")),
        ),
    ),
)

QUESTION_B = Question(
    key="B",
    title="Safety Gym under one bound",
    asks="How does SDPO compare with IPO, CPO and PCPO under a bound on the expected cost, and do distributional "
    "critics help?",
    section=f"{_B}, figure 4; appendix B, figures 8 to 10",
    size={
        "runs of each algorithm": "10 on each task",
        "problem": "18 tasks: Point, Car and Doggo; Goal, Button and Push; levels 1 and 2",
        "batch": "30,000 steps",
        "length": _NOT_SAID,
    },
    claims=(
        Claim(
            "B1",
            f"{_B}, figure 4; appendix B",
            "SDPO, IPO and PCPO explore safely.",
            (Keeps("sdpo"), Keeps("ipo"), Keeps("pcpo")),
        ),
        Claim("B2", f"{_B}, figure 4; appendix B", "CPO does not keep the constraint well.", (Breaks("cpo"),)),
        Claim("B3", f"{_B}, figure 4", "PPO, which knows no bound, breaks it.", (Breaks("ppo"),)),
        Claim(
            "B4",
            f"{_B}, figure 4",
            "Of the three that explore safely, SDPO and IPO earn the most.",
            (Beats("sdpo", "pcpo"), Beats("ipo", "pcpo")),
        ),
        Claim(
            "B5",
            f"{_B}, figure 4; appendix B",
            "SDPO is ahead of IPO in return or in speed: the distributional critics contribute.",
            (Beats("sdpo", "ipo"), Beats("sdpo", "ipo", SPEED)),
            any_of=True,
        ),
        Claim(
            "B6",
            "appendix B, figures 8 to 10",
            "SDPO converges faster than IPO and PCPO, to a slightly better policy.",
            (
                Beats("sdpo", "ipo", SPEED),
                Beats("sdpo", "pcpo", SPEED),
                Beats("sdpo", "ipo"),
                Beats("sdpo", "pcpo"),
            ),
            tasks=18,
        ),
    ),
)

QUESTION_C = Question(
    key="C",
    title="Safety Gym under two bounds",
    asks="How does SDPO do under two constraints at once, on contact with vases and on the probability of a hazard?",
    section=f"{_C}, figure 5; appendix A.3",
    size={
        "runs of each algorithm": "5",
        "problem": "PointGoal2, hazards end the episode",
        "batch": "30,000 steps",
        "length": _NOT_SAID,
    },
    claims=(
        Claim("C1", f"{_C}, figure 5", "PPO reaches far more goals.", (Beats("ppo", "sdpo"), Beats("ppo", "ipo"))),
        Claim("C2", f"{_C}, figure 5", "PPO breaks both bounds.", (Breaks("ppo", 0), Breaks("ppo", 1))),
        Claim(
            "C3",
            f"{_C}, figure 5",
            "SDPO and IPO stay out of hazards while they learn.",
            (Keeps("sdpo", 1), Keeps("ipo", 1)),
        ),
        Claim("C4", f"{_C}", "SDPO satisfies both constraints at once.", (Keeps("sdpo", 0), Keeps("sdpo", 1))),
        Claim(
            "C5",
            f"{_C}, figure 5",
            "Under the bound on vases SDPO converges faster than IPO.",
            (Beats("sdpo", "ipo", "settled_0"),),
        ),
    ),
)

QUESTION_D = Question(
    key="D",
    title="Nine stocks through 2019",
    asks="How does SDPO do on a real domain, and what does a stricter constraint cost?",
    section=f"{_D}, figure 6; appendix A.2",
    size={
        "runs of each algorithm": "10",
        "problem": "nine stocks and cash, the year 2019, the last 15 sessions replayed",
        "batch": "1,280 steps",
        "length": _NOT_SAID,
    },
    claims=(
        Claim(
            "D1",
            f"{_D}, figure 6",
            "All agents make profits.",
            (Above("ppo", SCORE, 1.0), Above("sdpo-*", SCORE, 1.0)),
        ),
        Claim(
            "D2",
            f"{_D}, figure 6",
            "The tighter the constraint (the smaller α), the smaller the profit.",
            (Beats("sdpo-0.1", "sdpo-0.05"), Beats("sdpo-0.05", "sdpo-0.01")),
        ),
        Claim("D3", f"{_D}, figure 6", "All SDPO agents end above PPO.", (Beats("sdpo-*", "ppo"),)),
        Claim(
            "D4",
            f"{_D}, figure 6",
            "SDPO with α = 0.1 ends best of all.",
            (Beats("sdpo-0.1", "ppo"), Beats("sdpo-0.1", "sdpo-0.05"), Beats("sdpo-0.1", "sdpo-0.01")),
        ),
        Claim(
            "D5",
            f"{_D}, figure 6",
            "All SDPO agents keep the constraint in training, and PPO does not.",
            (Keeps("sdpo-*"), Breaks("ppo")),
        ),
        Claim(
            "D6",
            f"{_D}; section 6: the bound is 0 to avoid any loss",
            "What SDPO holds keeps the bound in the year's own returns.",
            (Above("sdpo-*", "realised", or_at=True),),
        ),
        Claim(
            "D7",
            f"{_D}, figure 6",
            "PPO suffers from fluctuation and loss: its wealth falls deeper.",
            (Beats("sdpo-*", "ppo", "drawdown"),),
        ),
    ),
)

QUESTIONS = {question.key: question for question in (QUESTION_A, QUESTION_B, QUESTION_C, QUESTION_D)}
"""By letter."""
