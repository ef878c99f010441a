"""What an experiment on random CMDPs is: one question, one problem, some algorithms, several seeds."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from portfolio_sdpo.envs import Cmdp, random_cmdp
from portfolio_sdpo.experiments.engine.grid import select_algorithms
from portfolio_sdpo.risk.measures import Measure
from portfolio_sdpo.rl.algorithms import AnySettings, Problem
from portfolio_sdpo.settings import Settings, check_seeds

TUNING_CMDP_SEED = 5
"""Settings were tuned on this CMDP, so no result is reported on it."""
REPORT_CMDP_SEEDS = (11, 12, 13, 14, 15)
"""The paper's grid, five runs on each of two CMDPs, is `--cmdp-seeds 5,10 --seeds 0,1,2,3,4,5,6,7,8,9`."""

USUAL_FRESH_EPISODES = 1000
"""The paper's number of evaluation episodes."""


class CmdpSettings(Settings):
    """A family of random CMDPs; a seed picks one of them."""

    states: int = Field(default=1000, ge=2)
    actions: int = Field(default=10, ge=1)
    noise_scale: float = Field(default=0.0, ge=0)
    """Rewards have the standard deviation scale · r³."""
    horizon: int = Field(default=100, ge=1)
    costs: tuple[str, ...] = ()
    """Names of further signals, each U[0, 1] for every state and action."""

    def draw(self, seed: int) -> Cmdp:
        """The tables of that seed."""
        return random_cmdp(
            self.states,
            self.actions,
            seed=seed,
            noise_scale=self.noise_scale,
            horizon=self.horizon,
            costs=self.costs,
        )


class SafeStart(Settings):
    """Phase I, run once for every CMDP and seed: all algorithms start from the policy that it found.

    The paper: "all the agents are initialized so that they are in a feasible region", PPO "with the same safe policy as
    all other agents". Phase I is over as soon as the policy meets `bounds` on `fresh_episodes`.
    """

    algorithm: AnySettings
    """Its policy must have the shape of that of the algorithms."""
    iterations: int = Field(ge=1)
    """Allowed at most."""
    episodes: int = Field(ge=2)
    """Per iteration."""
    bounds: tuple[float, ...] = Field(min_length=1)
    """One for every constraint, tighter than its own: room for the error of a risk on `fresh_episodes`."""
    fresh_episodes: int = Field(default=20_000, ge=2)
    """On which a policy is tried whose own few episodes look safe; the best of many noisy looks would mislead."""


class CmdpExperiment(Settings):
    """One question, one problem, some algorithms, several seeds."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    title: str
    question: str
    cmdp: CmdpSettings
    problem: Problem
    algorithms: dict[str, AnySettings] = Field(min_length=1)
    """Label → settings; a label is part of a folder's name."""
    objectives: dict[str, Measure] = Field(default_factory=dict)
    """Label → what that algorithm maximises instead of the problem's objective, by which all of them are measured."""
    iterations: int = Field(ge=1)
    episodes: int = Field(ge=1)
    """Per iteration; the batch has `episodes` × `cmdp.horizon` steps."""
    seeds: tuple[int, ...] = Field(default=(0, 1, 2, 3, 4), min_length=1)
    """Of the runs; run `seed` is made on the CMDP `cmdp_seeds[seed mod len(cmdp_seeds)]`."""
    cmdp_seeds: tuple[int, ...] = Field(default=REPORT_CMDP_SEEDS, min_length=1)
    safe_start: SafeStart | None = None
    """How a feasible start is found; None starts from the uniform policy."""
    fresh_episodes: int = Field(default=USUAL_FRESH_EPISODES, ge=2)
    """Episodes that the learner never sees, on which every iteration's policy is measured."""
    checkpoint_every: int = Field(default=20, ge=1)
    tensorboard: bool = True

    _check_seeds = field_validator("seeds", "cmdp_seeds")(check_seeds)

    @field_validator("safe_start")
    @classmethod
    def _bounds_match(cls, start: SafeStart | None, info: ValidationInfo) -> SafeStart | None:
        constraints = info.data["problem"].constraints if "problem" in info.data else ()
        if start is not None and len(start.bounds) != len(constraints):
            raise ValueError("must have one of the bounds for every constraint")
        return start

    @field_validator("algorithms")
    @classmethod
    def _labelled(cls, algorithms: dict[str, AnySettings]) -> dict[str, AnySettings]:
        for label in algorithms:
            if label == "start" or not label.replace("-", "").isalnum():
                raise ValueError(f"{label!r} cannot be a label: use letters, digits and dashes, and not 'start'")
        return algorithms

    @field_validator("objectives")
    @classmethod
    def _of_algorithms(cls, objectives: dict[str, Measure], info: ValidationInfo) -> dict[str, Measure]:
        if unknown := sorted(set(objectives) - set(info.data.get("algorithms", objectives))):
            raise ValueError(f"{', '.join(unknown)} is none of the algorithms")
        return objectives

    def problem_of(self, label: str) -> Problem:
        """What the algorithm of that label is asked to solve."""
        if label not in self.objectives:
            return self.problem
        return self.problem.model_copy(update={"objective": self.objectives[label]})

    def runs(self) -> list[tuple[int, int]]:
        """(CMDP seed, run seed) of every run of an algorithm."""
        return [(self.cmdp_seeds[seed % len(self.cmdp_seeds)], seed) for seed in self.seeds]

    def with_changes(
        self,
        *,
        iterations: int | None = None,
        seeds: tuple[int, ...] | None = None,
        cmdp_seeds: tuple[int, ...] | None = None,
        algorithms: tuple[str, ...] | None = None,
    ) -> CmdpExperiment:
        """The same with another length, other seeds or only some of the algorithms."""
        labels = select_algorithms(self.name, self.algorithms, algorithms)
        given = {"iterations": iterations, "seeds": seeds, "cmdp_seeds": cmdp_seeds}
        changes = {name: value for name, value in given.items() if value is not None}
        kept = {
            "algorithms": {label: self.algorithms[label] for label in labels},
            "objectives": {label: self.objectives[label] for label in labels if label in self.objectives},
        }
        return CmdpExperiment(**{**dict(self), **kept, **changes})
