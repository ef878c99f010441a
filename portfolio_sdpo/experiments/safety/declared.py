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
from portfolio_sdpo.experiments.safety.experiment import BarrierSettings, SafetyExperiment, WorldSettings
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import (
    ActorSettings,
    AnySettings,
    CpoSettings,
    IpoSettings,
    PcpoSettings,
    PpoSettings,
    Problem,
    SdpoSettings,
)
from portfolio_sdpo.rl.critics import CriticSettings

# ---- The paper's table. What it leaves open: epochs, minibatches, warm-up, the noise of the start.

_NOISE_AT_START = 0.1
"""No motion, and little noise: a start inside the bound. At 0.3 a robot drifts into hazards."""


def _algorithms(
    *,
    actor: float,
    clip: float,
    lam: float,
    epochs: int,
    minibatches: int,
    critic_epochs: int,
    critic_minibatches: int,
    smoothing: float,
    hidden: tuple[int, ...] = (256, 256),
    atoms: int = 128,
    dimension: int = 256,
    averaging: float = 0.99,
    target_lam: float = 0.99,
    transitions: int | None = None,
    memory: int = 1,
    initial_std: float = _NOISE_AT_START,
    credit: float | None = None,
) -> dict[str, AnySettings]:
    """PPO, IPO, SDPO, CPO and PCPO, alike in all that they share; `actor` is its learning rate."""
    shared: dict[str, Any] = {
        "actor": ActorSettings(hidden=hidden, learning_rate=actor, initial_std=initial_std),
        "gae_lambda": lam,
        "credit_discount": credit,
    }
    fit: dict[str, Any] = {
        "hidden": hidden,
        "learning_rate": 1e-3,
        "target_lambda": target_lam,
        "transitions": transitions,
        "memory": memory,
        "fit_first": False,
        "epochs": critic_epochs,
        "minibatches": critic_minibatches,
        "averaging": averaging,
        "warm_up": 3,
    }
    mean = CriticSettings(kind="mean", **fit)
    # To the plain quantile loss a rare cost of hundreds pulls no harder than a cost of one; nearly squared it does, and
    # the expected cost, which is what is bounded here, is learnt as fast as by a mean critic.
    quantile = CriticSettings(kind="quantile", atoms=atoms, dimension=dimension, kappa=5.0, **fit)
    ascent: dict[str, Any] = {"clip": clip, "epochs": epochs, "minibatches": minibatches}
    return {
        "ppo": PpoSettings(critic=mean, **shared, **ascent),
        "ipo": IpoSettings(critic=mean, smoothing=smoothing, **shared, **ascent),
        "sdpo": SdpoSettings(critic=quantile, smoothing=smoothing, risk_lambda=lam, **shared, **ascent),
        "cpo": CpoSettings(critic=mean, **shared),
        "pcpo": PcpoSettings(critic=mean, **shared),
    }


_PAPER = _algorithms(
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
_DISCOUNT = 0.99
_COST = "expectation of cost <= 25 discount=1"
_VASES = "expectation of vases <= 10 discount=1"
_HAZARDS = "bad-state-probability of hazards <= 0.1"
_PAPER_BARRIER = "eta=30 margin=0.2"
"""The margin sets the highest price, 1/(η · margin): here 1/6 of a reward for a step in a hazard."""
_PAPER_BARRIERS_C = ("eta=40 margin=0.15", "eta=60 margin=0.02")
_PAPER_IPO_C = (BarrierSettings(eta=60, margin=0.15), BarrierSettings(eta=60, margin=0.02))

# ---- Within an hour or two of a small machine: smaller batches, longer steps, worlds that are easier to learn.

_SHORT = _algorithms(
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
    credit=_DISCOUNT,
)
_SHORT_SIZE: dict[str, Any] = {"iterations": 25, "episodes": 20, "lane": 20}
"""500,000 steps; under question (B) SDPO has four times as many."""
_SHORT_WORLD: dict[str, Any] = {"near": True, "folded": True, "proportional": True}
_SHORT_BARRIER = "eta=2 margin=3"
"""The running estimate of the cost has a standard error of several units. At the paper's η = 30 the price is next to
nothing until the estimate is at the bound, and the policy swings from one side of it to the other; at 2 it rises from
0.02 to 0.17 while the slack falls from 25 to 3."""
_SHORT_TRUST = (BarrierSettings(eta=2, margin=3, confidence=1.5),)
"""CPO and PCPO read only the confidence: they act on the newest batch, and keep so many standard errors' distance."""
# Reaching a hazard costs up to 50, several times what an episode can earn: for a highest price of 2 or 11 it paid.
_SHORT_BARRIERS_C = ("eta=8 margin=0.75 confidence=0.5", "eta=1 margin=0.02 confidence=0.5")


def _question_b(
    task: str,
    name: str,
    title: str,
    algorithms: dict[str, AnySettings],
    barrier: str,
    size: dict[str, Any],
    own: dict[str, tuple[BarrierSettings, ...]] | None = None,
    world: dict[str, Any] | None = None,
) -> SafetyExperiment:
    return SafetyExperiment(
        name=name,
        title=title,
        question="Does SDPO earn as much as PPO, IPO, CPO and PCPO, within the bound while it learns? (question B)",
        world=WorldSettings(task=task, **(world or {})),
        problem=Problem(discount=_DISCOUNT, constraints=(Constraint.from_spec(f"{_COST} {barrier}"),)),
        algorithms=algorithms,
        barriers=own or {},
        **size,
    )


def _question_c(
    name: str,
    title: str,
    algorithms: dict[str, AnySettings],
    barriers: tuple[str, str],
    size: dict[str, Any],
    own: dict[str, tuple[BarrierSettings, ...]] | None = None,
    world: dict[str, Any] | None = None,
) -> SafetyExperiment:
    return SafetyExperiment(
        name=name,
        title=title,
        question="Does SDPO keep two bounds at once? (question C)",
        world=WorldSettings(task="PointGoal2", terminal_hazards=True, **(world or {})),
        problem=Problem(
            discount=_DISCOUNT,
            constraints=(
                Constraint.from_spec(f"{_VASES} {barriers[0]}"),
                Constraint.from_spec(f"{_HAZARDS} {barriers[1]}"),
            ),
        ),
        algorithms={label: algorithms[label] for label in ("ppo", "ipo", "sdpo")},
        barriers=own or {},
        **size,
    )


_TITLE_C = "PointGoal2, contact with vases at most 10, a hazard in at most 1 of 10 episodes"
_ALL = (
    *(
        _question_b(
            task, f"safety-b-{task.lower()}", f"{task}, expected cost at most 25", _PAPER, _PAPER_BARRIER, _PAPER_SIZE
        )
        for task in TASKS
    ),
    _question_c("safety-c", _TITLE_C, _PAPER, _PAPER_BARRIERS_C, _PAPER_SIZE, {"ipo": _PAPER_IPO_C}),
    _question_b(
        "PointGoal1",
        "safety-b-pointgoal1-short",
        "PointGoal1, expected cost at most 25, on a small machine",
        _SHORT,
        _SHORT_BARRIER,
        {**_SHORT_SIZE, "lengths": {"sdpo": 100}},
        {"cpo": _SHORT_TRUST, "pcpo": _SHORT_TRUST},
        _SHORT_WORLD,
    ),
    _question_c(
        "safety-c-short",
        f"{_TITLE_C}, on a small machine",
        _SHORT,
        _SHORT_BARRIERS_C,
        _SHORT_SIZE,
        world=_SHORT_WORLD,
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
