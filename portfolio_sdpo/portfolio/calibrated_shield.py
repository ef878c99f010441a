"""The calibrated shield's rule: how much of the wealth may be invested in a mix so that the CVaR limit holds.

The limit speaks of every period of H sessions, so H of them are in progress at any close. Of a period that began s
sessions ago the account has earned R_s, and h = H − s sessions are left, in which the mix may lose what is left of the
budget. The largest invested share is

    E = min over s = 0 … H − 1 of (SHARE·|bound| + h·cash + min(R_s, 0)) / (m·σ·√h), cut off to [0, 1]
    m = TAIL·|CVaR of the standard normal distribution|

and σ the daily volatility of the mix, per unit invested, as `forecast_volatility` tells it. Docs: docs/portfolio.md
says how the constants were chosen, on which data, and what they do not promise.

Without an account, whose losses nobody knows, R_s is what the account would have earned with the same invested share
all along: then E·(m·σ·√h − min(ρ_s, 0)) may be as large as the rest of the numerator, ρ_s the excess return of the mix.

This is NumPy for decisions. `largest_exposure_tensors` and `path_shield` are the same in torch for training, where
gradients pass through to the weights; tests hold the two against each other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.market import Array
from portfolio_sdpo.portfolio.return_measures import normal_cvar

if TYPE_CHECKING:
    from torch import Tensor

SHARE = 0.86
"""Share of the budget that is handed out: the rest is for moves between a close and the trade that answers it."""
TAIL = 0.8727
"""m in units of the normal CVaR. Below 1, since exposure is cut while a period goes badly."""
WINDOW = 1260
"""Sessions of the past that count."""
LEAST = 20
"""Fewest sessions that a volatility is told from."""
DOUBT = 10.0
"""A mean of L squares may be too low by the factor 1 + DOUBT/√L."""
BAND = 0.10
"""Between decisions nothing is traded while the invested share is within this share of what the shield allows."""
SPEEDS = ((0.3, 0.94, 0.03), (0.7, 0.998, 0.015))
"""Weight of each variance in σ², its decay a session, and its prior as a volatility per session."""


def forecast_volatility(excess: Array) -> Array:
    """Volatility per session [...] of a mix with these daily excess returns [..., T] per unit invested, latest last.

    σ² is a weighted sum of exponentially weighted variances, each the least over all L from `LEAST` to T of

        v_L = Σ_{k<L} (1 − λ)·λ^k·x²_{t−k} + λ^L·max(prior², (1 + DOUBT/√L)·mean of the last L squares)

    The second term stands for the past before the last L sessions. A past that is cut off at the front leaves fewer L
    to choose the least of, so it can only raise σ. With fewer than `LEAST` sessions σ is infinite.

    >>> steady = np.tile([0.01, -0.01], 630)
    >>> [round(float(forecast_volatility(steady[-sessions:])), 4) for sessions in (1260, 252, 36, 19)]
    [0.0103, 0.0124, 0.0153, inf]
    """
    if excess.shape[-1] < LEAST:
        return np.full(excess.shape[:-1], np.inf)
    squares = np.square(excess[..., ::-1][..., :WINDOW])
    weights, rest, inverse, doubt = _horizon_weights(squares.shape[-1])
    doubtful = np.cumsum(squares, axis=-1) * inverse * doubt
    variance = np.zeros(excess.shape[:-1])
    for (share, _, prior), weight, remainder in zip(SPEEDS, weights, rest, strict=True):
        known = np.cumsum(weight * squares, axis=-1) + remainder * np.maximum(doubtful, prior**2)
        variance += share * known[..., LEAST - 1 :].min(axis=-1)
    return np.sqrt(variance)


def largest_exposure(
    volatility: Array, cash: Array, limit: CvarLimit, record: Array | None = None, mix: Array | None = None
) -> Array:
    """Share of wealth [...] that may be invested, of a mix with this volatility per session [...].

    Parameters
    ----------
    volatility : [...] as `forecast_volatility` tells it
    cash : [...] what cash earns per session
    limit : the CVaR limit
    record : [..., n] the account's net returns, latest last; a session before them was one of all cash
    mix : [..., n] excess returns of the mix, which count as the account's own in place of a record

    >>> one = np.array(0.01)
    >>> round(float(largest_exposure(one, np.array(0.0), CvarLimit(), record=np.zeros(0))), 4)
    0.6168
    >>> round(float(largest_exposure(one, np.array(0.0), CvarLimit(), record=np.array([-0.03]))), 4)
    0.193
    """
    left = np.arange(limit.horizon, 0, -1)
    budget = -SHARE * limit.bound + left * np.asarray(cash)[..., None]
    if record is not None:
        budget = budget + _losses_in_progress(record, limit.horizon)
    spread = _tail_multiple(limit) * np.asarray(volatility)[..., None] * np.sqrt(left)
    if mix is not None:
        spread = spread - _losses_in_progress(mix, limit.horizon)
    least: Array = (budget / spread).min(axis=-1)
    return np.clip(least, 0.0, 1.0)


def largest_exposure_tensors(
    volatility: Tensor, cash: Tensor, limit: CvarLimit, record: Tensor | None = None, mix: Tensor | None = None
) -> Tensor:
    """`largest_exposure` in torch."""
    import torch

    left = torch.arange(limit.horizon, 0, -1, dtype=volatility.dtype, device=volatility.device)
    budget = -SHARE * limit.bound + left * cash.unsqueeze(-1)
    if record is not None:
        budget = budget + _losses_in_progress_tensors(record, limit.horizon)
    spread = _tail_multiple(limit) * volatility.unsqueeze(-1) * left.sqrt()
    if mix is not None:
        spread = spread - _losses_in_progress_tensors(mix, limit.horizon)
    return (budget / spread).amin(-1).clamp(0.0, 1.0)


def forecast_cvar(exposure: float, volatility: float, cash: float, limit: CvarLimit) -> float:
    """CVaR over the limit's horizon of an account with this share invested, as the rule counts it."""
    spread = _tail_multiple(limit) * volatility * float(np.sqrt(limit.horizon))
    return limit.horizon * cash - (exposure * spread if exposure > 0.0 else 0.0)


def _tail_multiple(limit: CvarLimit) -> float:
    """m: calibrated at α = 0.05 and 15 sessions; elsewhere it follows the normal distribution and the root of time."""
    return -TAIL * normal_cvar(limit.alpha)


def _losses_in_progress(returns: Array, horizon: int) -> Array:
    """[..., H] min(R_s, 0) for s = 0 … H − 1, of returns [..., n], latest last."""
    recent = returns[..., max(returns.shape[-1] - horizon + 1, 0) :][..., ::-1]
    missing = horizon - 1 - recent.shape[-1]
    grown = np.cumprod(1.0 + np.concatenate([recent, np.zeros((*recent.shape[:-1], missing))], axis=-1), axis=-1)
    start = np.zeros((*recent.shape[:-1], 1))
    return np.concatenate([start, np.minimum(grown - 1.0, 0.0)], axis=-1)


def _losses_in_progress_tensors(returns: Tensor, horizon: int) -> Tensor:
    import torch

    recent = returns[..., max(returns.shape[-1] - horizon + 1, 0) :].flip(-1)
    missing = horizon - 1 - recent.shape[-1]
    grown = (1.0 + torch.cat([recent, recent.new_zeros(*recent.shape[:-1], missing)], -1)).cumprod(-1)
    return torch.cat([recent.new_zeros(*recent.shape[:-1], 1), (grown - 1.0).clamp_max(0.0)], -1)


@lru_cache(maxsize=64)
def _horizon_weights(count: int) -> tuple[Array, Array, Array, Array]:
    """(1 − λ)·λ^k [speeds, count], λ^L [speeds, count], 1/L and 1 + DOUBT/√L [count], k from 0 and L from 1."""
    past = np.arange(count)
    decays = np.array([[decay] for _, decay, _ in SPEEDS])
    found = (1.0 - decays) * decays**past, decays ** (past + 1.0), 1.0 / (past + 1.0), 1.0 + DOUBT / np.sqrt(past + 1.0)
    return tuple(np.asarray(each, dtype=np.float64) for each in found)  # type: ignore[return-value]
