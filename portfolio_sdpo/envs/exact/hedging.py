"""Hedging, exactly: the distribution of a policy's loss, and the best policy under a bound on a measure of it.

The loss is an integer, so a policy is a finite table and the distribution of its loss a few numbers. For a measure that
is the least of expectations, ρ(P) = min_μ E_P[f(Y, μ)], the best policy is the best of linear programs over occupancy
measures, one for every μ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.envs.hedging import ACTIONS
from portfolio_sdpo.envs.random_cmdp import Array
from portfolio_sdpo.errors import InfeasibleConstraintError

Policy = Callable[[int, NDArray[np.int64], NDArray[np.int64]], Array]
"""(round, losses [S], shocks [S]) → probabilities [S, 3] of the three actions."""


@dataclass(frozen=True)
class HedgingOutcome:
    """What a policy is worth."""

    reward: float
    """expected sum of rewards"""
    losses: NDArray[np.int64]
    """[A] possible losses"""
    weights: Array
    """[A] their probabilities"""


def evaluate_hedging(rounds: int, policy: Policy) -> HedgingOutcome:
    """Expected reward and distribution of the loss of a policy, by forward recursion.

    >>> amplify = evaluate_hedging(1, lambda k, losses, shocks: np.tile([0.0, 0.0, 1.0], (len(losses), 1)))
    >>> amplify.reward, amplify.losses[amplify.weights > 0].tolist()
    (2.0, [-2, 2])
    """
    reach = 2 * rounds
    losses = np.arange(-reach, reach + 1)
    mass = (losses == 0).astype(float)
    reward = 0.0
    for k in range(rounds):
        following = np.zeros_like(mass)
        for shock in (-1, 1):
            # Mass never comes so near to the rim that it would be rolled over it.
            shocked = np.roll(mass, shock) / 2
            there = np.flatnonzero(shocked)
            table = policy(k, losses[there], np.full(len(there), shock))
            for action in range(ACTIONS):
                part = shocked[there] * table[:, action]
                reward += action * part.sum()
                np.add.at(following, there + (action - 1) * shock, part)
        mass = following
    return HedgingOutcome(float(reward), losses, mass)


def solve_hedging(
    rounds: int, statistic: Callable[[float, Array], Array], bound: float, candidates: Iterable[float] = (0.0,)
) -> float:
    """The highest expected reward with min_μ E[statistic(μ, loss)] ≤ bound, μ among the candidates.

    Exact for a measure that needs no μ, and for CVaR, whose μ is one of the possible losses; for the variance, whose μ
    is the mean, as exact as the candidates are dense. Raises `InfeasibleConstraintError` if no policy meets the bound.

    >>> round(solve_hedging(1, lambda mu, y: (y - mu) ** 2, 0.5, np.linspace(-1, 1, 21)), 3)
    0.633
    """
    found = [value for mu in candidates if (value := _best(rounds, partial(statistic, mu), bound)) is not None]
    if not found:
        raise InfeasibleConstraintError(f"no policy meets the bound {bound:g}: relax it.", best_slack=-np.inf)
    return max(found)


def _best(rounds: int, cost: Callable[[Array], Array], bound: float) -> float | None:
    """The linear program for one μ: occupancies x(k, loss, shock, action) ≥ 0; None if it has no solution."""
    from scipy import sparse
    from scipy.optimize import linprog

    reach = 2 * rounds
    losses = np.arange(-reach, reach + 1)
    width = len(losses)
    # Columns: (k, shock, loss after the shock, action). Rows: what arrives at (k, shock, loss) is what is chosen there.
    k, sign, place, action = (
        grid.ravel() for grid in np.meshgrid(range(rounds), (0, 1), range(width), range(ACTIONS), indexing="ij")
    )
    shock = 2 * sign - 1
    after = place + (action - 1) * shock
    valid = (after >= 1) & (after < width - 1)
    column = np.arange(len(k))

    def row(k: NDArray[np.int64], sign: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
        return (k * 2 + sign) * width + place

    entries = [(row(k, sign, place), column, np.ones(len(k)))]
    for following in (0, 1):
        goes_on = valid & (k < rounds - 1)
        target = row(k + 1, np.full_like(k, following), after + 2 * following - 1)
        entries.append((target[goes_on], column[goes_on], np.full(goes_on.sum(), -0.5)))
    rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    flow = sparse.csr_array((values, (rows, columns)), shape=(rounds * 2 * width, len(k)))
    arriving = np.zeros(rounds * 2 * width)
    arriving[[reach - 1, width + reach + 1]] = 0.5
    last = k == rounds - 1
    final = np.where(last, cost(losses[after.clip(0, width - 1)].astype(float)), 0.0)
    reachable = (after >= 0) & (after < width)
    solved = linprog(
        -action.astype(float),
        A_ub=final[None],
        b_ub=[bound],
        A_eq=flow,
        b_eq=arriving,
        bounds=[(0.0, None if free else 0.0) for free in reachable],
    )
    return -float(solved.fun) if solved.status == 0 else None
