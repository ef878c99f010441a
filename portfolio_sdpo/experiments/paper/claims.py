"""The claims that the paper makes about its experiments, in our words and as data, and the experiments behind them.

A claim consists of parts, each of which runs can support or contradict; `verdicts` has the rules. Labels may be
patterns: `pd-*var` matches the paper's primal–dual rival, PD-CVaR or PD-VAR, and `sdpo-*` every SDPO agent. Figures
are those of `statistics.evidence`, where more is better.
"""

from __future__ import annotations

from dataclasses import dataclass

from portfolio_sdpo.experiments.statistics.evidence import SCORE, SPEED


@dataclass(frozen=True)
class Beats:
    """In most comparisons of runs, the first algorithm has the higher figure."""

    better: str
    worse: str
    figure: str = SCORE


@dataclass(frozen=True)
class Keeps:
    """The bound is kept during training, except in a small share of iterations."""

    label: str
    constraint: int = 0


@dataclass(frozen=True)
class Breaks:
    """The bound is not kept during training."""

    label: str
    constraint: int = 0


@dataclass(frozen=True)
class Above:
    """A figure lies above a level, or exactly at it if `or_at` is set."""

    label: str
    figure: str
    level: float = 0.0
    or_at: bool = False


Part = Beats | Keeps | Breaks | Above


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and the section that makes it."""

    key: str
    section: str
    text: str
    parts: tuple[Part, ...]
    any_of: bool = False
    """whether it is enough that one part holds"""
    tasks: int = 1
    """number of tasks that the claim is about; with fewer it cannot be judged"""


@dataclass(frozen=True)
class Question:
    """One of the paper's four questions, with the experiment that it made to answer it, and its claims."""

    key: str
    title: str
    asks: str
    section: str
    size: dict[str, str]
    """size of the paper's own runs, as far as its text states it; the keys are those of `Study.size`"""
    claims: tuple[Claim, ...]


_A, _B, _C, _D = (f"section 6, question ({letter})" for letter in "ABCD")
_PD = "pd-*var"
_NOT_STATED = "not stated in the paper"

QUESTION_A = Question(
    key="A",
    title="Random CMDPs, against Lagrangian relaxation",
    asks="How does SDPO compare with the primal–dual methods PD-CVaR and PD-VAR, under a bound on CVaR or on variance?",
    section=f"{_A}, figures 2 and 3; appendix A.1, figure 7",
    size={
        "runs of each algorithm": "10, five on each of two CMDPs",
        "problem": "1000 states, 10 actions, 100 steps",
        "batch": "1,000 steps",
        "length": _NOT_STATED,
    },
    claims=(
        Claim(
            "A1",
            f"{_A}, figures 2 and 3",
            "PPO, which has no constraint, reaches the highest return.",
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
            "SDPO and its primal–dual rival both end with a policy within the bound.",
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
            "SDPO stays within the bound during training, which primal–dual methods do not guarantee.",
            (Keeps("sdpo"),),
        ),
        Claim(
            "A6",
            f"{_A}, figure 3",
            "SDPO is safer than its primal–dual rival.",
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
        "length": _NOT_STATED,
    },
    claims=(
        Claim(
            "B1",
            f"{_B}, figure 4; appendix B",
            "SDPO, IPO and PCPO explore safely.",
            (Keeps("sdpo"), Keeps("ipo"), Keeps("pcpo")),
        ),
        Claim("B2", f"{_B}, figure 4; appendix B", "CPO does not satisfy the constraint well.", (Breaks("cpo"),)),
        Claim("B3", f"{_B}, figure 4", "PPO, which ignores the bound, violates it.", (Breaks("ppo"),)),
        Claim(
            "B4",
            f"{_B}, figure 4",
            "Of the three that explore safely, SDPO and IPO reach the highest returns.",
            (Beats("sdpo", "pcpo"), Beats("ipo", "pcpo")),
        ),
        Claim(
            "B5",
            f"{_B}, figure 4; appendix B",
            "SDPO is better than IPO in return or in speed, so the distributional critics contribute.",
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
    asks="How does SDPO perform under two constraints, on contact with vases and on the probability of a hazard?",
    section=f"{_C}, figure 5; appendix A.3",
    size={
        "runs of each algorithm": "5",
        "problem": "PointGoal2, hazards end the episode",
        "batch": "30,000 steps",
        "length": _NOT_STATED,
    },
    claims=(
        Claim("C1", f"{_C}, figure 5", "PPO reaches far more goals.", (Beats("ppo", "sdpo"), Beats("ppo", "ipo"))),
        Claim("C2", f"{_C}, figure 5", "PPO violates both bounds.", (Breaks("ppo", 0), Breaks("ppo", 1))),
        Claim(
            "C3",
            f"{_C}, figure 5",
            "SDPO and IPO avoid hazards during training.",
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
    asks="How does SDPO perform in a real domain, and what does a stricter constraint cost?",
    section=f"{_D}, figure 6; appendix A.2",
    size={
        "runs of each algorithm": "10",
        "problem": "nine stocks and cash, the year 2019, the last 15 sessions replayed",
        "batch": "1,280 steps",
        "length": _NOT_STATED,
    },
    claims=(
        Claim(
            "D1",
            f"{_D}, figure 6",
            "All agents make a profit.",
            (Above("ppo", SCORE, 1.0), Above("sdpo-*", SCORE, 1.0)),
        ),
        Claim(
            "D2",
            f"{_D}, figure 6",
            "The tighter the constraint (the smaller α), the smaller the profit.",
            (Beats("sdpo-0.1", "sdpo-0.05"), Beats("sdpo-0.05", "sdpo-0.01")),
        ),
        Claim("D3", f"{_D}, figure 6", "All SDPO agents end with more wealth than PPO.", (Beats("sdpo-*", "ppo"),)),
        Claim(
            "D4",
            f"{_D}, figure 6",
            "SDPO with α = 0.1 ends with the most wealth.",
            (Beats("sdpo-0.1", "ppo"), Beats("sdpo-0.1", "sdpo-0.05"), Beats("sdpo-0.1", "sdpo-0.01")),
        ),
        Claim(
            "D5",
            f"{_D}, figure 6",
            "All SDPO agents satisfy the constraint in training, and PPO does not.",
            (Keeps("sdpo-*"), Breaks("ppo")),
        ),
        Claim(
            "D6",
            f"{_D}; section 6: the bound is 0 to avoid any loss",
            "The portfolios of SDPO satisfy the bound in the realised returns of the year.",
            (Above("sdpo-*", "realised", or_at=True),),
        ),
        Claim(
            "D7",
            f"{_D}, figure 6",
            "PPO suffers from fluctuations and losses: its drawdown is deeper.",
            (Beats("sdpo-*", "ppo", "drawdown"),),
        ),
    ),
)

QUESTIONS = {question.key: question for question in (QUESTION_A, QUESTION_B, QUESTION_C, QUESTION_D)}
"""By letter."""
