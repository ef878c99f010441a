"""Questions (B) and (C) of the paper as declared grids: Safety Gym under one and under two constraints.

`safety-b-<task>` is one of the eighteen tasks under a bound on its expected cost, `safety-c` PointGoal2 where hazards
end the episode, under a bound on contact with vases and one on the probability of reaching a hazard. Both have the
paper's table (appendix A.3). The `-short` ones put the same questions within hours of a small machine.

Every budget here is undiscounted: the plain sum of a signal over an episode.
"""

from __future__ import annotations

from typing import Any

from portfolio_sdpo.envs.safety.tasks import TASKS
from portfolio_sdpo.errors import SettingsError, did_you_mean
from portfolio_sdpo.experiments.safety.algorithms import make_algorithms
from portfolio_sdpo.experiments.safety.experiment import BarrierSettings, SafetyExperiment
from portfolio_sdpo.experiments.safety.questions import question_b, question_c
from portfolio_sdpo.experiments.safety.short import RIVALS, SHORT_EXPERIMENTS, SHORT_SIZE, SHORT_WORLD, WITH_BACKUP

# ---- The paper's table. What it leaves open: epochs, minibatches, warm-up, the noise of the start.

_PAPER = make_algorithms(
    actor=1e-4,
    clip=0.1,
    lam=0.9,
    epochs=10,
    minibatches=60,
    critic_epochs=3,
    critic_minibatches=30,
    smoothing=0.5,
)
_PAPER_SIZE: dict[str, Any] = {"iterations": 333, "episodes": 30, "lane": 10}
"""Batches of 30,000 steps, ten million in all."""
_PAPER_BARRIER = "eta=30 margin=0.2"
"""The margin sets the highest price, 1/(η · margin): here 1/6 of a reward for a step in a hazard."""
_PAPER_BARRIERS_C = ("eta=40 margin=0.15", "eta=60 margin=0.02")
_PAPER_IPO_C = (BarrierSettings(eta=60, margin=0.15), BarrierSettings(eta=60, margin=0.02))

_SHORT_BARRIERS_C = ("eta=8 margin=0.75 confidence=0.5", "eta=1 margin=0.02 confidence=0.5")
"""Reaching a hazard costs up to 50, several times what an episode can earn: for a highest price of 2 or 11 it paid."""
_TITLE_C = "PointGoal2, contact with vases at most 10, a hazard in at most 1 of 10 episodes"
_ALL = (
    *(
        question_b(
            task, f"safety-b-{task.lower()}", f"{task}, expected cost at most 25", _PAPER, _PAPER_BARRIER, _PAPER_SIZE
        )
        for task in TASKS
    ),
    question_c("safety-c", _TITLE_C, _PAPER, _PAPER_BARRIERS_C, _PAPER_SIZE, {"ipo": _PAPER_IPO_C}),
    *SHORT_EXPERIMENTS,
    question_c(
        "safety-c-short",
        f"{_TITLE_C}, on a small machine",
        {**RIVALS, "sdpo-backup": WITH_BACKUP},
        _SHORT_BARRIERS_C,
        {**SHORT_SIZE, "lengths": {"sdpo-backup": 100}},
        world=SHORT_WORLD,
    ),
)
SAFETY_EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
"""Every one of them by its name."""


def find_safety_experiment(name: str) -> SafetyExperiment:
    """The experiment of that name.

    >>> find_safety_experiment("safety-b-carpush2").world.task
    'CarPush2'
    """
    if name not in SAFETY_EXPERIMENTS:
        raise SettingsError(
            f"there is no experiment {name!r}{did_you_mean(name, SAFETY_EXPERIMENTS)}; "
            f"choose one of {', '.join(SAFETY_EXPERIMENTS)}."
        )
    return SAFETY_EXPERIMENTS[name]
