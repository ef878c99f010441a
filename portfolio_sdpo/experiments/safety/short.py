"""Question (B) within hours of a small machine: one family of settings for all eighteen tasks, tuned for none of them.

`safety-b-<task>-short` has the worlds that are easier to learn in, `safety-b-<task>-suite` the suite's own observations
(in units near one, and with a clock) and its own actions, for those tasks that published tables are quoted of.

Settings were found on PointGoal1. There the labels of the first runs keep their meaning: `sdpo` is the barrier alone,
and `sdpo-backup` what is `sdpo` everywhere else, SDPO whose episodes begin at rest.
"""

from __future__ import annotations

from typing import Any

from portfolio_sdpo.envs.safety.tasks import TASKS
from portfolio_sdpo.experiments.safety.algorithms import make_algorithms
from portfolio_sdpo.experiments.safety.experiment import BarrierSettings, SafetyExperiment
from portfolio_sdpo.experiments.safety.questions import DISCOUNT, question_b
from portfolio_sdpo.rl.algorithms import AnySettings, BackupSettings, SdpoSettings

# ---- Smaller batches, longer steps, worlds that are easier to learn in.

RIVALS = make_algorithms(
    actor=1e-3,
    clip=0.2,
    lam=0.97,
    epochs=10,
    minibatches=80,
    critic_epochs=4,
    critic_minibatches=60,
    smoothing=0.4,
    target_lam=0.995,
    transitions=8000,
    memory=8,
    hidden=(64, 64),
    atoms=32,
    dimension=64,
    initial_std=0.5,
    credit=DISCOUNT,
    multiplier={"multiplier_rate": 0.001, "multiplier_start": 0.02},
)
SHORT_SIZE: dict[str, Any] = {"iterations": 25, "episodes": 20, "lane": 20}
"""500,000 steps."""
SHORT_WORLD: dict[str, Any] = {"near": True, "folded": True, "proportional": True}
_BARRIER = "eta=2 margin=3"
"""The running estimate of the cost has a standard error of several units. At the paper's η = 30 the price is next to
nothing until the estimate is at the bound, and the policy swings from one side of it to the other; at 2 it rises from
0.02 to 0.17 while the slack falls from 25 to 3."""
_TRUST = (BarrierSettings(eta=2, margin=3, confidence=1.5),)
"""CPO and PCPO read only the confidence: they act on the newest batch, and keep so many standard errors' distance."""
_BACKUP = BackupSettings(share=0.25, aim=0.9, confidence=0.5, growth=1.15)
"""The first policies that move cost some 50 to 70 an episode: 15 to 21 in so much of it."""
SUITE_TASKS = ("PointGoal1", "PointGoal2", "CarGoal1", "PointButton1")
WITH_BACKUP = SdpoSettings(**{**dict(RIVALS["sdpo"]), "backup": _BACKUP})
_FAMILY: dict[str, AnySettings] = {**RIVALS, "sdpo": WITH_BACKUP}


def _size(task: str) -> dict[str, Any]:
    """A million steps for goals, half of that for what is learnt in fewer or hardly at all."""
    return {**SHORT_SIZE, "iterations": 50 if "Goal" in task else 25}


def _short(task: str) -> SafetyExperiment:
    first = task == "PointGoal1"
    return question_b(
        task,
        f"safety-b-{task.lower()}-short",
        f"{task}, expected cost at most 25, on a small machine",
        {**RIVALS, "sdpo-backup": WITH_BACKUP} if first else _FAMILY,
        _BARRIER,
        {**SHORT_SIZE, "lengths": {"sdpo": 100, "sdpo-backup": 100}} if first else _size(task),
        {"cpo": _TRUST, "pcpo": _TRUST},
        SHORT_WORLD | {"folded": task.startswith("PointGoal")},
    )


def _suite(task: str) -> SafetyExperiment:
    return question_b(
        task,
        f"safety-b-{task.lower()}-suite",
        f"{task}, expected cost at most 25, the suite's own observations and actions",
        _FAMILY,
        _BARRIER,
        _size(task),
        {"cpo": _TRUST, "pcpo": _TRUST},
    )


SHORT_EXPERIMENTS = (*map(_short, TASKS), *map(_suite, SUITE_TASKS))
"""One for each task, and those with the suite's own observations and actions."""
