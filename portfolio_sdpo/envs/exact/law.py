"""The whole law of a policy's return, atom by atom, on CMDPs small enough for it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from portfolio_sdpo.envs.exact.evaluation import check_discount, checked_policy
from portfolio_sdpo.envs.random_cmdp import Array, Cmdp
from portfolio_sdpo.errors import SettingsError


class Law(NamedTuple):
    """A discrete law."""

    values: Array
    """[A] atoms, ascending"""
    weights: Array
    """[A] their probabilities"""


def enumerate_law(
    cmdp: Cmdp, policy: ArrayLike, discount: float, signal: str = "reward", *, limit: int = 100_000
) -> list[Law]:
    """The exact law of the discounted return from each of the N initial states.

    Backward in time, the law at a state is the mixture over actions and successors of shifted, discounted laws of the
    next time; equal values are merged. Refused if a state's law would have more than `limit` atoms before merging.

    >>> from portfolio_sdpo.envs import random_cmdp
    >>> cmdp = random_cmdp(3, 2, seed=0, horizon=4)
    >>> laws = enumerate_law(cmdp, np.full((3, 2), 0.5), discount=0.9)
    >>> len(laws), float(laws[0].weights.sum().round(9))
    (3, 1.0)
    """
    table = checked_policy(cmdp, policy)
    check_discount(discount)
    rewards = cmdp.signal(signal)
    if signal == "reward" and cmdp.noise.any():
        raise SettingsError("enumerate_law: the reward of this CMDP has Gaussian noise, so its law is not discrete.")
    laws = [Law(np.zeros(1), np.ones(1))] * cmdp.states
    for t in reversed(range(cmdp.horizon)):
        laws = [_one_step(cmdp, rewards, table[t, s], discount, s, laws, limit) for s in range(cmdp.states)]
    return laws


def _one_step(
    cmdp: Cmdp, rewards: Array, probabilities: Array, discount: float, state: int, laws: list[Law], limit: int
) -> Law:
    """The law of the return-to-go at `state`, given the laws of the states that follow."""
    branches = [
        (rewards[state, a], probabilities[a] * p, laws[successor])
        for a in np.flatnonzero(probabilities)
        for p, successor in zip(cmdp.probabilities[state, a], cmdp.successors[state, a], strict=True)
        if p > 0.0
    ]
    atoms = sum(len(law.values) for _, _, law in branches)
    if atoms > limit:
        raise SettingsError(
            f"enumerate_law: the law has {atoms} atoms or more, beyond the limit of {limit}; "
            "take fewer states, actions or steps, or simulate with rollout_returns."
        )
    values = np.concatenate([reward + discount * law.values for reward, _, law in branches])
    weights = np.concatenate([weight * law.weights for _, weight, law in branches])
    order = values.argsort()
    values, weights = values[order], weights[order]
    # Sums of the same rewards in another order differ by rounding only: a wider gap starts a new atom.
    tolerance = 1e-12 * max(1.0, float(np.abs(values).max()))
    starts = np.flatnonzero(np.diff(values, prepend=-np.inf) > tolerance)
    return Law(values[starts], np.add.reduceat(weights, starts))
