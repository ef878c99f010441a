"""Mean and variance of a policy's return by backward recursion, and fast simulation of a policy given as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from portfolio_sdpo.envs.random_cmdp import Array, Cmdp, CmdpDynamics
from portfolio_sdpo.errors import SettingsError

SUM_TOLERANCE = 1e-4
"""How far a row of a policy may be from summing to one: a softmax in single precision passes, a mistake does not."""


@dataclass(frozen=True)
class Evaluation:
    """Exact moments of the return from every initial state."""

    means: Array
    """[N] E[Y(s0)]"""
    variances: Array
    """[N] Var(Y(s0))"""
    initial: Array
    """[N] distribution of s0"""

    @property
    def mean(self) -> float:
        """E[Y]"""
        return float(self.initial @ self.means)

    @property
    def variance(self) -> float:
        """E_{s0}[Var(Y(s0))], the risk that a variance constraint bounds."""
        return float(self.initial @ self.variances)


def evaluate(cmdp: Cmdp, policy: ArrayLike, discount: float, signal: str = "reward") -> Evaluation:
    """Exact mean and variance of the discounted return of a Markov policy [H, N, M] or [N, M].

    With V, S the mean and variance of the return-to-go, and q the mean after an action, the law of total variance gives

        V_t = Σ_a π(a) q(a),                      q(a) = r(a) + γ E[V_{t+1}(s')]
        S_t = Σ_a π(a) (σ²(a) + γ² E[S_{t+1}(s')] + γ² Var(V_{t+1}(s')) + (q(a) − V_t)²)

    >>> from portfolio_sdpo.envs import random_cmdp
    >>> round(evaluate(cmdp := random_cmdp(50, 4, seed=5), uniform_policy(cmdp), discount=1.0).mean, 1)
    52.7
    """
    table = validate_policy(cmdp, policy)
    check_discount(discount)
    rewards = cmdp.signal(signal)
    noise = cmdp.noise**2 if signal == "reward" else np.zeros_like(rewards)
    transitions = transition_rows(cmdp)
    means, variances = np.zeros(cmdp.states), np.zeros(cmdp.states)
    for t in reversed(range(cmdp.horizon)):
        q, spread = look_ahead(transitions, rewards, noise, means, variances, discount)
        means = (table[t] * q).sum(-1)
        variances = (table[t] * (spread + (q - means[:, None]) ** 2)).sum(-1)
    return Evaluation(means, variances, cmdp.initial)


def look_ahead(
    transitions: Any, rewards: Array, noise: Array, means: Array, variances: Array, discount: float
) -> tuple[Array, Array]:
    """Mean and variance [N, M] of taking an action and returning `means`, `variances` [N] from the next state on."""
    centre = means.mean()  # keeps E[V²] − E[V]² free of cancellation
    shifted = means - centre
    # Two products with a vector are twice as fast as one with two columns.
    first = (transitions @ shifted).reshape(rewards.shape)
    second = (transitions @ (variances + shifted**2)).reshape(rewards.shape)
    return rewards + discount * (first + centre), noise + discount**2 * np.maximum(second - first**2, 0.0)


def transition_rows(cmdp: Cmdp) -> Any:
    """SciPy's sparse [N·M, N] matrix of transition probabilities, one row for every state-action pair."""
    from scipy import sparse

    pairs, fan = cmdp.states * cmdp.actions, cmdp.successors.shape[-1]
    starts = np.arange(0, pairs * fan + 1, fan)
    shape = (pairs, cmdp.states)
    return sparse.csr_array((cmdp.probabilities.ravel(), cmdp.successors.ravel(), starts), shape=shape)


def rollout_returns(
    cmdp: Cmdp,
    policy: ArrayLike,
    discount: float,
    episodes: int,
    rng: np.random.Generator,
    signal: str = "reward",
) -> Array:
    """Discounted returns [episodes] of fresh episodes of a policy [H, N, M] or [N, M]."""
    return rollout(cmdp, policy, {signal: discount}, episodes, rng)[1][signal]


def rollout(
    cmdp: Cmdp, policy: ArrayLike, discounts: Mapping[str, float], episodes: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], dict[str, Array]]:
    """Initial states [episodes] of fresh episodes, and the returns [episodes] of several signals, each discounted."""
    table = validate_policy(cmdp, policy)
    for signal, discount in discounts.items():
        cmdp.signal(signal)
        check_discount(discount)
    if episodes < 1:
        raise SettingsError(f"episodes: needs at least one (got {episodes}).")
    # Actions by inversion, as the dynamics draws successors: action k where u falls between cumulated probabilities.
    stationary = table.strides[0] == 0
    thresholds = np.cumsum(table[:1] if stationary else table, axis=-1)[..., :-1]
    dynamics = CmdpDynamics(cmdp)
    first = states = dynamics.first_states(episodes, rng)
    returns = {signal: np.zeros(episodes) for signal in discounts}
    for t in range(cmdp.horizon):
        rows = thresholds[0 if stationary else t][states]
        actions = (rng.random(episodes)[:, None] >= rows).sum(axis=1)
        states, signals = dynamics.step(states, actions, rng)
        for signal, discount in discounts.items():
            returns[signal] += discount**t * signals[signal]
    return first, returns


def uniform_policy(cmdp: Cmdp) -> Array:
    """[N, M] every action with the same probability."""
    return np.full((cmdp.states, cmdp.actions), 1.0 / cmdp.actions)


def validate_policy(cmdp: Cmdp, policy: ArrayLike) -> Array:
    """The policy as probabilities [H, N, M] that sum to one exactly; a view with stride 0 if it has no clock."""
    table = np.asarray(policy, dtype=np.float64)
    pairs = (cmdp.states, cmdp.actions)
    if table.shape not in (pairs, (cmdp.horizon, *pairs)):
        raise SettingsError(
            f"policy: must have shape {pairs} or {(cmdp.horizon, *pairs)}, time × states × actions (got {table.shape})."
        )
    sums = table.sum(-1, keepdims=True)
    if not (table >= 0.0).all() or not (np.abs(sums - 1.0) <= SUM_TOLERANCE).all():
        raise SettingsError("policy: must hold probabilities, not negative and summing to one over actions.")
    return np.broadcast_to(table / sums, (cmdp.horizon, *pairs))


def check_discount(discount: float) -> None:
    """Refuse a discount outside (0, 1]."""
    if not 0.0 < discount <= 1.0:
        raise SettingsError(f"discount: must lie in (0, 1] (got {discount}).")
