"""The best mean under constraints on expectations: the finite-horizon occupancy-measure linear program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from portfolio_sdpo.envs.exact.evaluation import check_discount, transition_rows
from portfolio_sdpo.envs.random_cmdp import Array, Cmdp
from portfolio_sdpo.errors import DivergenceError, InfeasibleConstraintError, SettingsError
from portfolio_sdpo.risk import BadStateProbability, Constraint, Expectation

INFEASIBLE = 2
"""linprog's status of a problem that has no solution."""


@dataclass(frozen=True)
class ExpectationSolution:
    """The optimum of a CMDP under expectation constraints; the tuples follow the order of the constraints."""

    policy: Array
    """[H, N, M]; uniform where the optimal policy never comes"""
    mean: float
    """E[Y] of the reward, the optimum"""
    risks: tuple[float, ...]
    """expectation of each constraint's signal, with that constraint's discount"""
    slacks: tuple[float, ...]
    """how far inside each bound that is"""
    multipliers: tuple[float, ...]
    """shadow prices ≥ 0: the optimum's loss per unit by which a bound is tightened"""


def solve_expectation(
    cmdp: Cmdp, constraints: Sequence[Constraint], discount: float, *, limit: int = 300_000
) -> ExpectationSolution:
    """Maximise E[reward] subject to expectation constraints, by SciPy's HiGHS.

    With x_t(s, a) = P(s_t = s, a_t = a), every expectation is linear in x whatever its discount:

        max  Σ γ^t r(s,a) x_t(s,a)    s.t.   Σ γ_i^t c_i(s,a) x_t(s,a)  within  d_i,
             Σ_a x_0(s,a) = µ(s),     Σ_a x_{t+1}(s',a) = Σ_{s,a} P(s' | s,a) x_t(s,a),     x ≥ 0,

    and π_t(a | s) ∝ x_t(s, a) is an optimal policy. Raises `InfeasibleConstraintError` with the best worst slack if no
    policy meets the constraints together. Problems of more than `limit` variables (H·N·M) are refused.

    >>> from portfolio_sdpo.envs import random_cmdp
    >>> cmdp = random_cmdp(10, 3, seed=1, horizon=10, costs=("wear",))
    >>> solution = solve_expectation(cmdp, [Constraint.from_spec("expectation of wear <= 3 discount=1")], discount=0.99)
    >>> round(solution.risks[0], 6), solution.multipliers[0] > 0
    (3.0, True)
    """
    check_discount(discount)
    variables = cmdp.horizon * cmdp.states * cmdp.actions
    if variables > limit:
        raise SettingsError(f"solve_expectation: {variables} variables are beyond the limit of {limit}.")
    rows, bounds = _rows(cmdp, constraints, discount)
    flow, sources = _flow(cmdp)
    reward = _make_coefficients(cmdp, "reward", discount)
    result = _linprog(-reward, rows, bounds, flow, sources)
    if result.status == INFEASIBLE and constraints:
        best = _best_slack(rows, bounds, flow, sources)
        names = " and ".join(f"'{constraint.name}'" for constraint in constraints)
        raise InfeasibleConstraintError(f"No policy meets {names}: the best worst slack is {best:.6g}.", best)
    if result.status != 0:
        raise DivergenceError(f"solve_expectation: the linear program was not solved: {result.message}")
    occupancy = np.maximum(result.x, 0.0)
    risks = [
        float(_make_coefficients(cmdp, constraint.signal, _discount(constraint, discount)) @ occupancy)
        for constraint in constraints
    ]
    return ExpectationSolution(
        policy=_policy(cmdp, occupancy),
        mean=float(reward @ occupancy),
        risks=tuple(risks),
        slacks=tuple(c.slack(risk) for c, risk in zip(constraints, risks, strict=True)),
        multipliers=tuple(float(max(-price, 0.0)) for price in result.ineqlin.marginals),
    )


def _discount(constraint: Constraint, discount: float) -> float:
    return discount if constraint.discount is None else constraint.discount


def _make_coefficients(cmdp: Cmdp, signal: str, discount: float) -> Array:
    """[H·N·M] coefficients γ^t c(s, a) of a signal's expected return."""
    return np.multiply.outer(discount ** np.arange(cmdp.horizon), cmdp.signal(signal)).ravel()


def _rows(cmdp: Cmdp, constraints: Sequence[Constraint], discount: float) -> tuple[Array, Array]:
    """The constraints as rows [C, H·N·M] · x ≤ bounds [C]."""
    rows, bounds = [np.zeros((0, cmdp.horizon * cmdp.states * cmdp.actions))], []
    for constraint in constraints:
        if not isinstance(constraint.measure, Expectation | BadStateProbability):
            raise SettingsError(
                f"solve_expectation: '{constraint.name}' bounds no expectation; "
                "for a bound on variance or CVaR take solve_variance or solve_cvar."
            )
        rows.append(
            constraint.sign * _make_coefficients(cmdp, constraint.signal, _discount(constraint, discount))[None]
        )
        bounds.append(constraint.sign * constraint.bound)
    return np.concatenate(rows), np.array(bounds)


def _flow(cmdp: Cmdp) -> tuple[Any, Array]:
    """What flows into a state flows out: sparse [H·N, H·N·M] rows and their right sides [H·N]."""
    from scipy import sparse

    leave = sparse.kron(sparse.eye_array(cmdp.states), np.ones((1, cmdp.actions)))
    flow = sparse.kron(sparse.eye_array(cmdp.horizon), leave) - sparse.kron(
        sparse.eye_array(cmdp.horizon, k=-1), transition_rows(cmdp).T
    )
    sources = np.zeros(cmdp.horizon * cmdp.states)
    sources[: cmdp.states] = cmdp.initial
    return flow.tocsr(), sources


def _linprog(objective: Array, rows: Any, bounds: Array, flow: Any, sources: Array, free: int = 0) -> Any:
    """min objective · x with x ≥ 0, the last `free` variables excepted."""
    from scipy.optimize import linprog

    lowest = [0.0] * (len(objective) - free) + [-math.inf] * free
    return linprog(
        objective,
        A_ub=rows,
        b_ub=bounds,
        A_eq=flow,
        b_eq=sources,
        bounds=np.stack([lowest, np.full(len(objective), math.inf)], axis=1),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
    )


def _best_slack(rows: Array, bounds: Array, flow: Any, sources: Array) -> float:
    """Phase I: the largest z with which every constraint keeps a slack of z."""
    from scipy import sparse

    column = np.ones((len(rows), 1))
    widened = sparse.hstack([flow, sparse.csr_array((flow.shape[0], 1))], format="csr")
    objective = np.append(np.zeros(rows.shape[1]), -1.0)
    result = _linprog(objective, np.concatenate([rows, column], axis=1), bounds, widened, sources, free=1)
    if result.status != 0:
        raise DivergenceError(f"solve_expectation: phase I was not solved: {result.message}")
    return float(result.x[-1])


def _policy(cmdp: Cmdp, occupancy: Array) -> Array:
    """[H, N, M] probabilities in proportion to the occupancy."""
    table = occupancy.reshape(cmdp.horizon, cmdp.states, cmdp.actions)
    visits = table.sum(-1, keepdims=True)
    seen = visits > 1e-12
    return np.where(seen, table / np.where(seen, visits, 1.0), 1.0 / cmdp.actions)
