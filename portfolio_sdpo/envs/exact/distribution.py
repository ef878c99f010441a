"""The exact distribution of a policy's return, atom by atom, for CMDPs that are small enough."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from portfolio_sdpo.envs.exact.evaluation import check_discount, validate_policy
from portfolio_sdpo.envs.random_cmdp import Array, Cmdp
from portfolio_sdpo.errors import SettingsError


class DiscreteDistribution(NamedTuple):
    """A discrete distribution: values and their probabilities."""

    values: Array
    """[A] atoms, ascending"""
    weights: Array
    """[A] their probabilities"""


def enumerate_distribution(
    cmdp: Cmdp, policy: ArrayLike, discount: float, signal: str = "reward", *, limit: int = 100_000
) -> list[DiscreteDistribution]:
    """The exact distribution of the discounted return from each of the N initial states.

    Backward in time, the distribution at a state is the mixture over actions and successors of shifted, discounted
    distributions of the next time; equal values are merged. A `SettingsError` if the distribution of a state would have
    more than `limit` atoms before merging.

    >>> from portfolio_sdpo.envs import random_cmdp
    >>> cmdp = random_cmdp(3, 2, seed=0, horizon=4)
    >>> distributions = enumerate_distribution(cmdp, np.full((3, 2), 0.5), discount=0.9)
    >>> len(distributions), float(distributions[0].weights.sum().round(9))
    (3, 1.0)
    """
    table = validate_policy(cmdp, policy)
    check_discount(discount)
    rewards = cmdp.signal(signal)
    if signal == "reward" and cmdp.noise.any():
        raise SettingsError(
            "enumerate_distribution: the reward of this CMDP has Gaussian noise, so its distribution is not discrete."
        )
    distributions = [DiscreteDistribution(np.zeros(1), np.ones(1))] * cmdp.states
    for t in reversed(range(cmdp.horizon)):
        distributions = [
            _one_step(cmdp, rewards, table[t, s], discount, s, distributions, limit) for s in range(cmdp.states)
        ]
    return distributions


def _one_step(
    cmdp: Cmdp,
    rewards: Array,
    probabilities: Array,
    discount: float,
    state: int,
    distributions: list[DiscreteDistribution],
    limit: int,
) -> DiscreteDistribution:
    """The distribution of the return-to-go at `state`, given the distributions of the states that follow."""
    branches = [
        (rewards[state, a], probabilities[a] * p, distributions[successor])
        for a in np.flatnonzero(probabilities)
        for p, successor in zip(cmdp.probabilities[state, a], cmdp.successors[state, a], strict=True)
        if p > 0.0
    ]
    atoms = sum(len(distribution.values) for _, _, distribution in branches)
    if atoms > limit:
        raise SettingsError(
            f"enumerate_distribution: the distribution has {atoms} atoms or more, beyond the limit of {limit}; "
            "take fewer states, actions or steps, or simulate with rollout_returns."
        )
    values = np.concatenate([reward + discount * distribution.values for reward, _, distribution in branches])
    weights = np.concatenate([weight * distribution.weights for _, weight, distribution in branches])
    order = values.argsort()
    values, weights = values[order], weights[order]
    # Sums of the same rewards in another order differ by rounding only: a wider gap starts a new atom.
    tolerance = 1e-12 * max(1.0, float(np.abs(values).max()))
    starts = np.flatnonzero(np.diff(values, prepend=-np.inf) > tolerance)
    return DiscreteDistribution(values[starts], np.add.reduceat(weights, starts))
