"""What an experiment on Safety Gym is: one question, one world, some algorithms, several seeds.

Every budget is undiscounted: the plain sum of a signal over an episode.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, ValidationInfo, field_validator

from portfolio_sdpo.envs.safety.tasks import TASKS
from portfolio_sdpo.experiments.engine.grid import select_algorithms
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import AnySettings, Problem
from portfolio_sdpo.settings import Settings, check_seeds


class WorldSettings(Settings):
    """Which world the robot is in."""

    task: str
    terminal_hazards: bool = False
    """Whether reaching a hazard ends the episode."""
    vases: int = Field(default=0, ge=0)
    """Added to a task that has none of its own."""
    horizon: int = Field(default=1000, ge=1)
    near: bool = False
    """Whether short-sighted lidars and the nearest object of every kind are added to the suite's sensors."""
    folded: bool = False
    """Whether the world is mirrored so that the goal is always ahead and to the left."""
    proportional: bool = False
    """Whether an action of 1 is the strongest force that a motor has."""

    @field_validator("task")
    @classmethod
    def _check_known(cls, task: str) -> str:
        if task not in TASKS:
            raise ValueError(f"must be one of {', '.join(TASKS)}")
        return task

    def options(self) -> dict[str, Any]:
        """What `SafetyEnv` is given besides the task."""
        return self.model_dump(exclude={"task"})


class BarrierSettings(Settings):
    """How one algorithm keeps away from one bound: the fields of that name of a `Constraint`."""

    eta: float = Field(gt=0)
    margin: float = Field(gt=0)
    confidence: float = Field(default=0.0, ge=0)


class SafetyExperiment(Settings):
    """One question, one world, some algorithms, several seeds."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    title: str
    question: str
    world: WorldSettings
    problem: Problem
    algorithms: dict[str, AnySettings] = Field(min_length=1)
    """Label → settings; a label is part of a folder's name."""
    barriers: dict[str, tuple[BarrierSettings, ...]] = Field(default_factory=dict)
    """Label → how it keeps away from every bound, where that is not the problem's way."""
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

    _check_seeds = field_validator("seeds")(check_seeds)

    @field_validator("algorithms")
    @classmethod
    def _labelled(cls, algorithms: dict[str, AnySettings]) -> dict[str, AnySettings]:
        for label in algorithms:
            if not label.replace("-", "").isalnum():
                raise ValueError(f"{label!r} cannot be a label: use letters, digits and dashes")
        return algorithms

    @field_validator("barriers", "lengths")
    @classmethod
    def _of_labels(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        unknown = [label for label in given if label not in info.data.get("algorithms", given)]
        if unknown:
            raise ValueError(f"there is no algorithm {unknown[0]!r}")
        return given

    @field_validator("barriers")
    @classmethod
    def _of_constraints(cls, barriers: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "problem" in info.data and any(
            len(each) != len(info.data["problem"].constraints) for each in barriers.values()
        ):
            raise ValueError("must have one of them for every constraint")
        return barriers

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
        if label not in self.barriers:
            return self.problem
        pairs = zip(self.problem.constraints, self.barriers[label], strict=True)
        constraints = tuple(Constraint(**{**dict(constraint), **dict(barrier)}) for constraint, barrier in pairs)
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
        labels = select_algorithms(self.name, self.algorithms, algorithms)
        changes: dict[str, Any] = {}
        if iterations is not None:
            changes |= {"iterations": iterations, "lengths": {}}
        if seeds is not None:
            changes["seeds"] = seeds
        fields = {**dict(self), **changes, **others}
        if algorithms is not None:
            for name in ("algorithms", "barriers", "lengths"):
                fields[name] = {label: value for label, value in fields[name].items() if label in labels}
        return type(self)(**fields)
