"""What runs are compared with: the uniform policy, the best policy within the bounds, and the best without any."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import portfolio_sdpo
from portfolio_sdpo.envs import Cmdp
from portfolio_sdpo.envs.exact import (
    maximise_cvar,
    solve_cvar,
    solve_expectation,
    solve_unconstrained,
    solve_variance,
    uniform_policy,
)
from portfolio_sdpo.errors import InfeasibleConstraintError, SettingsError
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.probe import (
    Array,
    compute_exact_figures,
    sample_figures,
    sharp_kind,
    sharp_objective,
)
from portfolio_sdpo.experiments.engine.folders import read_json, write_json
from portfolio_sdpo.risk import BadStateProbability, CVaR, Expectation, Variance
from portfolio_sdpo.rl import Problem
from portfolio_sdpo.rl.checkpoint import fingerprint

_EPISODES = 20_000
"""For risks that have to be simulated."""


@dataclass(frozen=True)
class Reference:
    """A policy that was computed and not learnt."""

    mean: float
    """return, exactly"""
    risks: tuple[float, ...]
    """one per constraint"""
    objective: float | None = None
    """the problem's, as sharply as it is known; None where it is the expectation"""

    @property
    def value(self) -> float:
        """By which policies are compared."""
        return self.mean if self.objective is None else self.objective


@dataclass(frozen=True)
class References:
    """On one CMDP."""

    uniform: Reference
    unconstrained: Reference
    optimum: Reference | None
    """None where no solver fits the constraints, or no policy satisfies them"""
    upper_bound: float | None
    """no policy within the bounds has a higher objective (for a CVaR, or under a bound on one: about)"""

    def share_of_gain(self, reached: float, start: float | None = None) -> float | None:
        """(J − J_start) / (J_optimum − J_start), J the problem's objective; None starts from uniform."""
        begun = self.uniform.value if start is None else start
        if self.optimum is None or self.optimum.value == begun:
            return None
        return (reached - begun) / (self.optimum.value - begun)


def make_references(experiment: CmdpExperiment, cmdp_seed: int, root: Path) -> None:
    """Compute the references of one CMDP, which takes a while, and write them to the experiment's folder."""
    cmdp = experiment.cmdp.draw(cmdp_seed)
    references = compute_references(cmdp, experiment.problem)
    write_json(_path(root, cmdp_seed), {"fingerprint": _fingerprint(cmdp, experiment.problem), **asdict(references)})


def has_references(experiment: CmdpExperiment, cmdp_seed: int, root: Path) -> bool:
    """Whether the folder holds the references of exactly this problem."""
    path = _path(root, cmdp_seed)
    if not path.exists():
        return False
    key = _fingerprint(experiment.cmdp.draw(cmdp_seed), experiment.problem)
    return bool(read_json(path)["fingerprint"] == key)


def read_references(root: Path) -> dict[int, References]:
    """The references in the folder, by CMDP seed."""
    return {
        int(path.stem.removeprefix("references-")): _from_json(read_json(path))
        for path in sorted(root.glob("references-*.json"))
    }


def compute_references(cmdp: Cmdp, problem: Problem) -> References:
    """By dynamic programming; see `envs.exact` for what is exact and what is a bracket."""
    table, upper_bound = _solve(cmdp, problem)
    uniform = np.broadcast_to(uniform_policy(cmdp), (cmdp.horizon, cmdp.states, cmdp.actions))
    return References(
        uniform=_reference(cmdp, problem, uniform),
        unconstrained=_reference(cmdp, problem, _solve_unconstrained(cmdp, problem)),
        optimum=None if table is None else _reference(cmdp, problem, table),
        upper_bound=upper_bound,
    )


def _path(root: Path, cmdp_seed: int) -> Path:
    return root / f"references-{cmdp_seed}.json"


def _fingerprint(cmdp: Cmdp, problem: Problem) -> str:
    return fingerprint([portfolio_sdpo.__version__, digest(cmdp), problem.model_dump_json()])


def _solve(cmdp: Cmdp, problem: Problem) -> tuple[Array | None, float | None]:
    """The best policy within the bounds [H, N, M] and an upper bound on its objective; None without a solver."""
    discount, constraints = problem.discount, problem.constraints
    try:
        if isinstance(problem.objective, CVaR) and problem.objective.tail == "lower":
            cautious = maximise_cvar(cmdp, problem.objective.alpha, constraints, discount)
            return cautious.policy, cautious.approximate_upper_bound
        if not problem.objective.linear:
            return None, None
        if all(isinstance(constraint.measure, Expectation | BadStateProbability) for constraint in constraints):
            best = solve_expectation(cmdp, constraints, discount)
            return best.policy, best.mean
        if len(constraints) > 1 or constraints[0].signal != "reward" or problem.discount_of(constraints[0]) != discount:
            return None, None
        match constraints[0].measure:
            case Variance():
                calm = solve_variance(cmdp, constraints[0].bound, discount)
                return calm.policy, calm.upper_bound
            case CVaR(alpha=alpha, tail="lower"):
                sure = solve_cvar(cmdp, alpha, constraints[0].bound, discount)
                return sure.policy, sure.approximate_upper_bound
    except (InfeasibleConstraintError, SettingsError):  # no policy meets the bounds, or the program would be too large
        return None, None
    return None, None


def _solve_unconstrained(cmdp: Cmdp, problem: Problem) -> Array:
    """The best policy without bounds [H, N, M]; that of the expectation where no solver fits the objective."""
    if isinstance(problem.objective, CVaR) and problem.objective.tail == "lower":
        return maximise_cvar(cmdp, problem.objective.alpha, (), problem.discount).policy
    return solve_unconstrained(cmdp, problem.discount).policy


def _reference(cmdp: Cmdp, problem: Problem, table: Array) -> Reference:
    figures = compute_exact_figures(cmdp, table, problem, _EPISODES, seed=0)
    kinds = [sharp_kind(figures, index) for index in range(len(problem.constraints))]
    unknown = not problem.objective.linear and sharp_objective(figures) is None
    if None in kinds or unknown:
        figures |= sample_figures(cmdp, table, problem, _EPISODES, lambda: np.random.default_rng(0))[0]
    risks = tuple(figures[f"{kind or 'true'}_risk_{index}"] for index, kind in enumerate(kinds))
    return Reference(figures["exact_return"], risks, sharp_objective(figures))


def _from_json(record: dict[str, Any]) -> References:
    def reference(name: str) -> Reference | None:
        values = record[name]
        return None if values is None else Reference(values["mean"], tuple(values["risks"]), values.get("objective"))

    uniform, unconstrained = reference("uniform"), reference("unconstrained")
    assert uniform is not None and unconstrained is not None
    return References(uniform, unconstrained, reference("optimum"), record["upper_bound"])


def digest(cmdp: Cmdp) -> str:
    """A short hash of a CMDP: of its tables, the names of its costs and its horizon."""
    content = hashlib.sha256(json.dumps([cmdp.horizon, *cmdp.costs]).encode())
    for table in (cmdp.successors, cmdp.probabilities, cmdp.reward, cmdp.noise, cmdp.initial, *cmdp.costs.values()):
        content.update(np.ascontiguousarray(table).tobytes())
    return content.hexdigest()[:16]
