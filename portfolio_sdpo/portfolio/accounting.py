"""What a trade and a session do to wealth and weights: pure functions, batched over leading dimensions.

In NumPy (`rebalance`, `hold`) for simulation, environment and limits, and in torch (`rebalance_tensors`,
`hold_tensors`) for training, where gradients pass through them; a test holds the two against each other.

Held weights [..., A] are shares of the wealth before a trade, target weights shares of the wealth after it and after
its fee. The fee is a share of the value of every stock bought and of every stock sold; moving cash is free. Buying
stocks for all of $1,000 at 1 % leaves $990.10 invested: 990.10 · 1.01 = 1,000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

Execution = Literal["next-close", "same-close"]
"""When a decision made at close t is traded: at close t+1 from what has drifted until then, or at close t itself, which
nobody gets: the price is known only once it is too late to trade at it."""

RUIN = 1e-6
"""The least growth of a session that training reckons with, so that its logarithm stays finite."""


def check_fee(fee: float, field: str = "fee", one: float = 1.0) -> float:
    """The fee as a share, if it is one; `one` is what 100 % is in the field's unit (10,000 for basis points)."""
    if not 0.0 <= fee < one:
        raise SettingsError(f"{field}: must be at least 0 and below {one:g}, which is 100 % (got {fee}).")
    return float(fee) / one


def check_execution(execution: str) -> Execution:
    """The execution, if it is one."""
    known: tuple[Execution, ...] = get_args(Execution)
    for each in known:
        if each == execution:
            return each
    raise SettingsError(
        f"execution: there is no {execution!r}{did_you_mean(str(execution), known)}; give {' or '.join(known)}."
    )


def trade(held: Array, target: Array, fee: float) -> Array:
    """Share of wealth [...] that is left after moving from held to target [..., A] at that fee (0.01 = 1 %).

    >>> cash, stock = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    >>> round(1000 * float(trade(cash, stock, 0.01)), 2)
    990.1
    """
    return rebalance(held, target, fee)[0]


def turnover(held: Array, target: Array, kept: Array) -> Array:
    """Value [...] of all stocks bought and sold, over the wealth before the trade: fee · turnover is what was paid.

    Buying for all cash counts 1, switching everything from one stock to another 2; the move of cash is not counted.
    """
    return np.abs(np.asarray(kept)[..., None] * target[..., 1:] - held[..., 1:]).sum(axis=-1)


def rebalance(held: Array, target: Array, fee: float) -> tuple[Array, Array]:
    """`trade` and `turnover` [...] in one go.

    What is kept is the root k of k + fee · Σ_{i≥1} |k · target_i − held_i| = 1. The left side is convex, piecewise
    linear and increasing in k, so Newton's steps from k = 1 fall onto the root without passing it and arrive after
    finitely many, mostly one or two.
    """
    if held.shape != target.shape:
        held, target = np.broadcast_arrays(held, target)
    owned, wanted = held[..., 1:], target[..., 1:]
    orders = wanted - owned
    side = np.copysign(1.0, orders)
    if fee == 0.0:
        traded = np.vecdot(side, orders)
        return np.ones(traded.shape), traded
    return _newton(owned, wanted, fee, np.float64(1.0), side)


def _newton(owned: Array, wanted: Array, fee: float, kept: Array | np.float64, side: Array) -> tuple[Array, Array]:
    """Root and turnover [...] from `kept`, where `side` [..., N] is +1 for stocks that are bought and −1 if sold."""
    root = (1.0 + fee * np.vecdot(side, owned)) / (1.0 + fee * np.vecdot(side, wanted))
    root = np.minimum(root, kept) if root.ndim else min(root, kept)
    orders = root[..., None] * wanted - owned
    now = np.copysign(1.0, orders)
    traded = np.vecdot(now, orders)
    turned = now != side
    if not np.count_nonzero(turned):
        return root, traded
    if not root.ndim:
        return _newton(owned, wanted, fee, root, now)
    # Only where a purchase has become a sale is the root on another piece.
    again = turned.any(axis=-1)
    root[again], traded[again] = _newton(owned[again], wanted[again], fee, root[again], now[again])
    return root, traded


def hold(weights: Array, gross_returns: Array, still_listed: Mask | None = None) -> tuple[Array, Array]:
    """Growth of wealth [...] over a session, and the drifted weights [..., A] after it.

    What is no longer listed afterwards (None: everything is) has been paid out and counts as cash. Where nothing is
    left, growth is 0 and the weights are all cash.
    """
    values = weights * gross_returns
    growth = np.vecdot(weights, gross_returns)
    if still_listed is not None and not still_listed.all():
        paid = np.where(still_listed, 0.0, values)
        values = values - paid
        values[..., 0] += paid.sum(axis=-1)
    ruined = growth <= 0.0
    if not np.count_nonzero(ruined):
        return growth, values / growth[..., None]
    values[ruined] = 0.0
    values[ruined, 0] = 1.0
    return growth, values / np.where(ruined, 1.0, growth)[..., None]


def rebalance_tensors(held: Tensor, target: Tensor, fee: float, rounds: int = 8) -> tuple[Tensor, Tensor]:
    """`rebalance` in torch: share of wealth [...] that is left, and turnover [...], of tensors [..., A].

    k ← 1 − fee · Σ |k · target − held| contracts by the fee in each round: eight are exact to rounding for any usual
    fee, one is exact up to fee² and has the gradient that is cheapest to compute.
    """
    kept = held.new_ones(held.shape[:-1])
    traded = (target - held)[..., 1:].abs().sum(-1)
    if fee:
        for _ in range(rounds):
            kept = 1 - fee * traded
            traded = (kept.unsqueeze(-1) * target - held)[..., 1:].abs().sum(-1)
    return kept, traded


def hold_tensors(weights: Tensor, gross_returns: Tensor, still_listed: Tensor) -> tuple[Tensor, Tensor]:
    """`hold` in torch: growth [...] over a session and the drifted weights [..., A].

    Weights are divided by at least `RUIN`, so that they stay finite where nothing is left.
    """
    import torch

    values = weights * gross_returns
    growth = values.sum(-1)
    drifted = values / growth.unsqueeze(-1).clamp_min(RUIN)
    stays = torch.where(still_listed, drifted, 0.0)
    paid_out = (drifted - stays).sum(-1, keepdim=True)
    return growth, torch.cat([stays[..., :1] + paid_out, stays[..., 1:]], -1)
