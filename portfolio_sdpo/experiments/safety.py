"""Questions (B) and (C) of the paper as declared grids: Safety Gym under one and under two constraints.

`safety-b-<task>` is one of the eighteen tasks under a bound on its expected cost, `safety-c` PointGoal2 where hazards
end the episode, under a bound on contact with vases and one on the probability of reaching a hazard. Both have the
paper's table (appendix A.3). The `-short` ones put the same questions within hours of a small machine.

Every budget here is undiscounted: the plain sum of a signal over an episode.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, ValidationInfo, field_validator

from portfolio_sdpo.envs.safety.tasks import TASKS
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.experiments.choices import chosen, distinct
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
from portfolio_sdpo.settings import Settings


class WorldSettings(Settings):
    """Which world the robot is in."""

    task: str
    terminal_hazards: bool = False
    """Whether reaching a hazard ends the episode."""
    vases: int = Field(default=0, ge=0)
    """Added to a task that has none of its own."""
    horizon: int = Field(default=1000, ge=1)
    near: bool = False
    """Whether short-sighted lidars are added to the suite's."""

    @field_validator("task")
    @classmethod
    def _known(cls, task: str) -> str:
        if task not in TASKS:
            raise ValueError(f"must be one of {', '.join(TASKS)}")
        return task


class SafetyExperiment(Settings):
    """One question, one world, some algorithms, several seeds."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    title: str
    question: str
    world: WorldSettings
    problem: Problem
    algorithms: dict[str, AnySettings] = Field(min_length=1)
    """Label → settings; a label is part of a folder's name."""
    etas: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Label → η of every constraint, where it is not the problem's."""
    iterations: int = Field(ge=1)
    lengths: dict[str, int] = Field(default_factory=dict)
    """Label → iterations, where there are more or fewer."""
    episodes: int = Field(ge=2)
    """Per iteration; the batch has `episodes` × `world.horizon` steps."""
    lane: int = Field(ge=1)
    """Robots that step in lockstep; what is collected depends on it, the number of worker processes does not matter."""
    overlap: bool = False
    """Whether the next batch is collected while an update is made, and so by the policy before that update."""
    seeds: tuple[int, ...] = Field(default=(0, 1, 2), min_length=1)
    """The paper has ten of them in (B) and five in (C)."""
    checkpoint_every: int = Field(default=5, ge=1)
    tensorboard: bool = True

    _distinct = field_validator("seeds")(distinct)

    @field_validator("algorithms")
    @classmethod
    def _labelled(cls, algorithms: dict[str, AnySettings]) -> dict[str, AnySettings]:
        for label in algorithms:
            if not label.replace("-", "").isalnum():
                raise ValueError(f"{label!r} cannot be a label: use letters, digits and dashes")
        return algorithms

    @field_validator("etas", "lengths")
    @classmethod
    def _of_labels(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        unknown = [label for label in given if label not in info.data.get("algorithms", given)]
        if unknown:
            raise ValueError(f"there is no algorithm {unknown[0]!r}")
        return given

    @field_validator("etas")
    @classmethod
    def _of_constraints(cls, etas: dict[str, tuple[float, ...]], info: ValidationInfo) -> dict[str, tuple[float, ...]]:
        constraints = info.data["problem"].constraints if "problem" in info.data else ()
        if any(len(each) != len(constraints) for each in etas.values()):
            raise ValueError("must have one of them for every constraint")
        return etas

    @field_validator("lane")
    @classmethod
    def _fits(cls, lane: int, info: ValidationInfo) -> int:
        if lane > info.data.get("episodes", lane):
            raise ValueError("must not be more than there are episodes")
        return lane

    @property
    def batch(self) -> int:
        """Steps of an iteration."""
        return self.episodes * self.world.horizon

    def iterations_of(self, label: str) -> int:
        return self.lengths.get(label, self.iterations)

    def problem_of(self, label: str) -> Problem:
        """The problem as this algorithm is given it."""
        if label not in self.etas:
            return self.problem
        pairs = zip(self.problem.constraints, self.etas[label], strict=True)
        constraints = tuple(Constraint(**{**dict(constraint), "eta": eta}) for constraint, eta in pairs)
        return Problem(**{**dict(self.problem), "constraints": constraints})

    def with_changes(
        self,
        *,
        iterations: int | None = None,
        seeds: tuple[int, ...] | None = None,
        algorithms: tuple[str, ...] | None = None,
        **others: Any,
    ) -> Self:
        """The same with another length for all, other seeds, only some of the algorithms, or other settings."""
        labels = chosen(self.name, self.algorithms, algorithms)
        changes: dict[str, Any] = {}
        if iterations is not None:
            changes |= {"iterations": iterations, "lengths": {}}
        if seeds is not None:
            changes["seeds"] = seeds
        fields = {**dict(self), **changes, **others}
        if algorithms is not None:
            for name in ("algorithms", "etas", "lengths"):
                fields[name] = {label: value for label, value in fields[name].items() if label in labels}
        return type(self)(**fields)


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
    initial_std: float = _NOISE_AT_START,
) -> dict[str, AnySettings]:
    """PPO, IPO, SDPO, CPO and PCPO, alike in all that they share; `actor` is its learning rate."""
    shared: dict[str, Any] = {
        "actor": ActorSettings(hidden=hidden, learning_rate=actor, initial_std=initial_std),
        "gae_lambda": lam,
    }
    fit: dict[str, Any] = {
        "hidden": hidden,
        "learning_rate": 1e-3,
        "target_lambda": target_lam,
        "transitions": transitions,
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
_PAPER_ETAS_C: dict[str, tuple[float, ...]] = {"sdpo": (40.0, 60.0), "ipo": (60.0, 60.0)}

# ---- Within hours of a small machine: smaller batches, longer steps.

_SHORT = _algorithms(
    actor=3e-4,
    clip=0.2,
    lam=0.95,
    epochs=10,
    minibatches=40,
    critic_epochs=3,
    critic_minibatches=20,
    smoothing=0.2,
    target_lam=0.995,
    transitions=5000,
    initial_std=0.4,
)
_SHORT_SIZE: dict[str, Any] = {"iterations": 50, "episodes": 10, "lane": 10}
"""500,000 steps."""
_SHORT_BARRIER = "eta=5 margin=1.2 confidence=1.5"
"""The running estimate of the cost has a standard error of several units. At the paper's η = 30 the price is next to
nothing until the estimate is at the bound, and the policy swings from one side of it to the other; at 5 it rises from
0.01 to 0.17 while the slack falls from 20 to 1.2. One and a half standard errors are kept as a distance besides."""
_SHORT_BARRIERS_C = ("eta=8 margin=0.75 confidence=1.5", "eta=60 margin=0.02 confidence=1.5")


def _question_b(
    task: str,
    name: str,
    title: str,
    algorithms: dict[str, AnySettings],
    barrier: str,
    size: dict[str, Any],
    near: bool = False,
) -> SafetyExperiment:
    return SafetyExperiment(
        name=name,
        title=title,
        question="Does SDPO earn as much as PPO, IPO, CPO and PCPO, within the bound while it learns? (question B)",
        world=WorldSettings(task=task, near=near),
        problem=Problem(discount=_DISCOUNT, constraints=(Constraint.from_spec(f"{_COST} {barrier}"),)),
        algorithms=algorithms,
        **size,
    )


def _question_c(
    name: str,
    title: str,
    algorithms: dict[str, AnySettings],
    barriers: tuple[str, str],
    size: dict[str, Any],
    etas: dict[str, tuple[float, ...]] | None = None,
    near: bool = False,
) -> SafetyExperiment:
    return SafetyExperiment(
        name=name,
        title=title,
        question="Does SDPO keep two bounds at once? (question C)",
        world=WorldSettings(task="PointGoal2", terminal_hazards=True, near=near),
        problem=Problem(
            discount=_DISCOUNT,
            constraints=(
                Constraint.from_spec(f"{_VASES} {barriers[0]}"),
                Constraint.from_spec(f"{_HAZARDS} {barriers[1]}"),
            ),
        ),
        algorithms={label: algorithms[label] for label in ("ppo", "ipo", "sdpo")},
        etas=etas or {},
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
    _question_c("safety-c", _TITLE_C, _PAPER, _PAPER_BARRIERS_C, _PAPER_SIZE, _PAPER_ETAS_C),
    _question_b(
        "PointGoal1",
        "safety-b-pointgoal1-short",
        "PointGoal1, expected cost at most 25, on a small machine",
        _SHORT,
        _SHORT_BARRIER,
        _SHORT_SIZE,
        near=True,
    ),
    _question_c(
        "safety-c-short",
        f"{_TITLE_C}, on a small machine",
        _SHORT,
        _SHORT_BARRIERS_C,
        _SHORT_SIZE,
        near=True,
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
        raise SettingsError(f"there is no experiment {name!r}; choose one of {', '.join(SAFETY_EXPERIMENTS)}.")
    return SAFETY_EXPERIMENTS[name]
