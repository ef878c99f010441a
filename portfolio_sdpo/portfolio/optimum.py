"""The exact answer to compare with: the constant mix of most growth under a CVaR limit, by convex programming.

Log growth is concave in the weights of a mix that is restored every session, and so is its CVaR. With scenarios of one
session this is the best that any policy can do; with longer ones it is the best that does not look at prices. Solved by
cutting planes (Kelley 1960): tangents of both functions make a linear program whose value is never below the optimum,
and its solution, moved towards cash until the limit holds, is never above it. The two meet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.market import Array

ROUNDS = 1000
"""Cutting planes at most; some dozens are usual."""


@dataclass(frozen=True, eq=False)
class Mix:
    """A constant mix on the scenarios that it was found on."""

    weights: Array
    """[A]"""
    growth: float
    """Mean log growth of a scenario."""
    tail: float
    """α-CVaR of the log growth."""


def best_mix(gross_returns: Array, alpha: float, bound: float, tolerance: float = 1e-4) -> Mix:
    """max E[ln growth] subject to CVaR_α[ln growth] ≥ bound, over the weights of all assets.

    gross_returns: [P, L, A] equally likely scenarios of L sessions, cash in column 0.
    tolerance: by what share of the optimum's growth the answer may fall short of it.

    >>> rising = np.array([[[1.0, 1.01]], [[1.0, 1.02]]])
    >>> best_mix(rising, alpha=0.5, bound=-0.1).weights.round(3).tolist()
    [0.0, 1.0]
    """
    if not 0.0 < alpha < 1.0:
        raise SettingsError(f"alpha: must be between 0 and 1 (got {alpha}).")
    assets = gross_returns.shape[2]
    cash = np.eye(assets)[0]
    best = measure_mix(cash, gross_returns, alpha)
    if best.tail < bound:
        raise SettingsError(f"bound: not even all cash has a CVaR of {bound} on these scenarios; lower it.")
    # Rows of a · (weights, value) ≤ b, where `value` is what the tangents of the growth leave room for.
    rows, sides = [], []
    points = [cash, np.full(assets, 1.0 / assets)]
    for _ in range(ROUNDS):
        for weights in points:
            growth, slope, tail, tail_slope = _tangents(weights, gross_returns, alpha)
            rows += [np.append(-slope, 1.0), np.append(-tail_slope, 0.0)]
            sides += [growth - slope @ weights, tail - tail_slope @ weights - bound]
        solved = linprog(
            np.append(np.zeros(assets), -1.0),
            A_ub=np.array(rows),
            b_ub=np.array(sides),
            A_eq=np.append(np.ones(assets), 0.0)[None],
            b_eq=[1.0],
            bounds=[(0.0, 1.0)] * assets + [(None, None)],
        )
        outer = np.maximum(solved.x[:-1], 0.0)
        inner = _towards_cash(outer / outer.sum(), gross_returns, alpha, bound)
        best = max(best, inner, key=lambda mix: mix.growth)
        if -solved.fun - best.growth <= tolerance * max(best.growth, 1e-12):
            return best
        # The middle of the best and the newest keeps the planes from jumping from corner to corner.
        points = [outer / outer.sum(), inner.weights, 0.5 * (best.weights + inner.weights)]
    return best


def _towards_cash(weights: Array, gross_returns: Array, alpha: float, bound: float) -> Mix:
    """The mix with the largest share of these weights, the rest in cash, that meets the limit."""
    low, high = 0.0, 1.0
    cash = np.eye(len(weights))[0]
    if (whole := measure_mix(weights, gross_returns, alpha)).tail >= bound:
        return whole
    for _ in range(30):
        middle = 0.5 * (low + high)
        tail = measure_mix(middle * weights + (1 - middle) * cash, gross_returns, alpha).tail
        low, high = (middle, high) if tail >= bound else (low, middle)
    return measure_mix(low * weights + (1 - low) * cash, gross_returns, alpha)


def _tangents(weights: Array, gross_returns: Array, alpha: float) -> tuple[float, Array, float, Array]:
    """Mean growth and CVaR of it at a mix [A], each with its slope [A]."""
    daily = gross_returns @ weights
    growth = np.log(daily).sum(axis=1)
    # [P, A]
    slopes = (gross_returns / daily[..., None]).sum(axis=1)
    order, share = np.argsort(growth), _tail_shares(len(growth), alpha)
    return (
        float(growth.mean()),
        slopes.mean(axis=0),
        float(share @ growth[order]),
        share @ slopes[order],
    )


def measure_mix(weights: Array, gross_returns: Array, alpha: float) -> Mix:
    """Growth and tail of a constant mix [A] on scenarios [P, L, A]."""
    growth = np.log(gross_returns @ weights).sum(axis=1)
    return Mix(weights, float(growth.mean()), tail_mean(growth, alpha))


def tail_mean(values: Array, alpha: float) -> float:
    """Mean of the lowest fraction α of equally likely values [P]; the one at its edge counts in part."""
    return float(_tail_shares(len(values), alpha) @ np.sort(values))


def _tail_shares(count: int, alpha: float) -> Array:
    """[count] weights of values in ascending order whose sum is the tail's mean."""
    share = np.clip(alpha * count - np.arange(count), 0.0, 1.0)
    return np.asarray(share / share.sum())
