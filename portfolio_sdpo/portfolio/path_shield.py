"""The calibrated shield on training paths, in torch: what it makes of decisions, and with what gradient.

A path continues the past of a market, so that the shield sees there what it would see in a backtest. As there, it looks
at the account at every close: at a decision the weights are scaled to the share that the rule allows, and between
decisions what is held is scaled towards what was asked for, where it is more than `BAND` away. The rule's share is a
closed form of the weights, so what an account earns behind the shield has a gradient with respect to the decisions.

`backtest.shielded` does the same to a simulation; a test holds the two against each other. Two things differ, to the
cautious side: the asset with the shortest history shortens that of all others, and volatility is the least of fewer
variances (`PastVolatility`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from portfolio_sdpo.portfolio.accounting import hold_tensors, rebalance_tensors
from portfolio_sdpo.portfolio.calibrated_shield import (
    BAND,
    DOUBT,
    LEAST,
    SPEEDS,
    WINDOW,
    largest_exposure_tensors,
)
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Market, Mask
from portfolio_sdpo.prices.cleaning.checks import LARGE_MOVE

if TYPE_CHECKING:
    from portfolio_sdpo.portfolio.path_policy import Deployment

TINY = 1e-12
"""The least invested share whose mix is told."""


@dataclass(frozen=True, eq=False)
class PathShield:
    """The shield with what it knows when paths begin."""

    past: Tensor
    """[T, A] gross returns up to the session before a path's first row, or [P, T, A] for every path its own."""
    limit: CvarLimit
    sessions_per_year: float = SESSIONS_PER_YEAR
    lengths: int = 80
    """How many lengths of the past its volatility is the least of; see `PastVolatility`."""

    @classmethod
    def of(cls, history: Market, known: Mask, limit: CvarLimit) -> Self:
        """At the last close of the history, for paths of the assets `known` [A]."""
        listed = np.flip(history.listed[-(WINDOW + 2) :, known].all(axis=1))
        # Of a run of prices up to today the first one has no return yet.
        sessions = (len(listed) if listed.all() else int(listed.argmin())) - 1
        past = np.where(known, history.gross_returns[len(history) - sessions :], 1.0)
        return cls(torch.as_tensor(past, dtype=torch.float32), limit, history.sessions_per_year)

    def follow(
        self,
        asked: Sequence[Tensor],
        gross_returns: Tensor,
        listed: Tensor,
        start: Tensor,
        deployment: Deployment,
        fee: float = 0.0,
        record: Tensor | None = None,
    ) -> Tensor:
        """Growth [P, N] net of fees, session by session, of an account that asks for weights [P, A] at each decision.

        gross_returns, listed: [P, rows, A]. start: [P, A] what is held at the close of the first decision. record:
        [P, n] the account's returns until then; None: the start is scaled to what the shield allows, and taken to have
        been held in all sessions seen.
        """
        path = _Path(self, gross_returns)
        close, held = deployment.seen - 1, start
        if record is None:
            held = _invest(start, path.allow(start, close))
            record = path.earn(held, slice(0, close + 1))
        order, waits = held, torch.ones(len(held), dtype=torch.bool)
        growths = []
        for session in range(deployment.lag + deployment.sessions):
            if deployment.lag:
                held, kept = _trade(held, order, waits, fee)
            number, since = divmod(session, deployment.every)
            decides = not since and number < len(asked)
            wanted = asked[number] if decides else _rescale(held, asked[min(number, len(asked) - 1)])
            order = _invest(wanted, path.allow(wanted, close, record))
            invested = _invested(held)
            waits = (_invested(order) - invested).abs() <= BAND * invested
            if decides:
                waits = torch.zeros_like(waits)
            if not deployment.lag:
                held, kept = _trade(held, order, waits, fee)
            close += 1
            believed = path.earn(held, slice(close, close + 1))
            record = torch.cat([record, kept.unsqueeze(-1) * (1.0 + believed) - 1.0], -1)
            growth, held = hold_tensors(held, gross_returns[:, close], listed[:, close])
            if session >= deployment.lag:
                growths.append(kept * growth)
        return torch.stack(growths, 1)


class _Path:
    """Paths [P, rows, A] that continue their past, as the shield sees them."""

    def __init__(self, shield: PathShield, gross_returns: Tensor) -> None:
        self._limit = shield.limit
        self._days = math.sqrt(SESSIONS_PER_YEAR / shield.sessions_per_year)
        past = _cap(shield.past.to(gross_returns.dtype)) / self._days
        self._past = PastVolatility.of(past, WINDOW - gross_returns.shape[1], shield.lengths)
        self._moves = _cap(gross_returns) / self._days
        self._cash = gross_returns[..., 0] - 1.0
        # A suspicious rise is no gain of the account's.
        self._believed = torch.where(gross_returns > 1.0 + LARGE_MOVE, 0.0, gross_returns - 1.0)

    def earn(self, weights: Tensor, rows: slice) -> Tensor:
        """[P, n] what weights [P, A] earn in these rows, as far as it is believed."""
        return _apply(self._believed[:, rows], weights)

    def allow(self, wanted: Tensor, close: int, record: Tensor | None = None) -> Tensor:
        """[P] the share of wealth that stays invested of weights [P, A] at that close; see `shield._Past.allow`.

        record: [P, n] the account's returns; without them, the mix counts as held all along.
        """
        invested = _invested(wanted)
        mix = wanted[:, 1:] / invested.clamp_min(TINY).unsqueeze(-1)
        excess = torch.cat([-mix.sum(-1, keepdim=True), mix], -1)
        kind, account = "record", record
        if account is None:
            kind, account = "mix", self.earn(excess, slice(max(close + 1 - self._limit.horizon, 0), close + 1))
        returns = _apply(self._moves[:, : close + 1], excess)
        exposures = []
        for end in (None, -1):  # with the last session and without it
            volatility = self._days * self._past.forecast(excess, returns[:, :end])
            known = {kind: account[:, :end]}
            exposures.append(largest_exposure_tensors(volatility, self._cash[:, close], self._limit, **known))
        return torch.minimum(torch.minimum(*exposures), invested)


@dataclass(frozen=True, eq=False)
class PastVolatility:
    """What a past adds to the variance of any mix, which is a quadratic form of its weights.

    `calibrated_shield.forecast_volatility` takes the least of the variances v_L over all lengths L of the past. Here
    there are fewer to choose the least of, all sessions of the path among them, which is never less cautious.
    """

    lengths: Tensor
    """[J] sessions of the past that a variance looks at."""
    forms: Tensor
    """[B, 1 + speeds, J, A²] sums of x·xᵀ over these sessions: as they are, and for each of `SPEEDS` with the weight
    (1 − λ)·λ^k for the session k before the last one. B is 1, or the number of paths."""

    @classmethod
    def of(cls, past: Tensor, most: int, count: int) -> Self:
        """Of moves [T, A] or [B, T, A], latest last, for at most `count` lengths of at most `most` sessions."""
        latest = (past if past.ndim == 3 else past.unsqueeze(0))[:, -most:].flip(1)
        longest = latest.shape[1]
        lengths = np.arange(longest + 1)
        if count < len(lengths):
            lengths = np.unique(np.geomspace(1, longest + 1, count).round().astype(int)) - 1
        outer = (latest.unsqueeze(-1) * latest.unsqueeze(-2)).flatten(2)
        age = torch.arange(longest, dtype=past.dtype)
        weights = [torch.ones_like(age), *((1.0 - decay) * decay**age for _, decay, _ in SPEEDS)]
        sums = [(outer * each.unsqueeze(-1)).cumsum(1) for each in weights]
        forms = [pad(total, (0, 0, 1, 0))[:, lengths] for total in sums]  # of no session at all, first
        return cls(torch.as_tensor(lengths), torch.stack(forms, 1))

    def forecast(self, weights: Tensor, returns: Tensor) -> Tensor:
        """[P] volatility of mixes [P, A] that earned `returns` [P, n] after the past, latest last."""
        new = returns.shape[1]
        lengths = self.lengths + new
        enough = lengths >= LEAST
        if not enough.any():
            return weights.new_full((len(weights),), torch.inf)
        lengths = lengths[enough].to(weights.dtype)
        pairs = (weights.unsqueeze(-1) * weights.unsqueeze(-2)).flatten(1)
        sums = _apply(self.forms[:, :, enough].flatten(1, 2), pairs)
        total, *weighted = sums.unflatten(1, (1 + len(SPEEDS), -1)).unbind(1)
        recent = returns.flip(1).square()
        doubtful = (1.0 + DOUBT / lengths.sqrt()) * (recent.sum(1, keepdim=True) + total) / lengths
        variance = weights.new_zeros(len(weights))
        age = torch.arange(new, dtype=weights.dtype)
        for (share, decay, prior), old in zip(SPEEDS, weighted, strict=True):
            known = ((1.0 - decay) * decay**age * recent).sum(1, keepdim=True) + decay**new * old
            variance = variance + share * (known + decay**lengths * doubtful.clamp_min(prior**2)).amin(1)
        return variance.sqrt()


def _cap(gross_returns: Tensor) -> Tensor:
    """Moves, of which a suspicious rise counts as the largest one that is not."""
    return (gross_returns - 1.0).clamp_max(LARGE_MOVE)


def _apply(rows: Tensor, weights: Tensor) -> Tensor:
    """[P, n] sums of rows [P or 1, n, A], weighted by weights [P, A]."""
    if len(rows) == 1:
        return weights @ rows[0].T
    return (rows @ weights.unsqueeze(-1)).squeeze(-1)


def _invested(weights: Tensor) -> Tensor:
    return weights[:, 1:].sum(-1)


def _invest(weights: Tensor, share: Tensor) -> Tensor:
    """The weights [P, A] with `share` [P] of the wealth invested, in the same mix."""
    risky = weights[:, 1:] * (share / _invested(weights).clamp_min(TINY)).unsqueeze(-1)
    return torch.cat([1.0 - risky.sum(-1, keepdim=True), risky], -1)


def _rescale(held: Tensor, asked: Tensor) -> Tensor:
    """What is held, in the mix that it has drifted to, with as much invested as was asked for."""
    source = torch.where(_invested(held).unsqueeze(-1) > 0.0, held, asked)
    return _invest(source, _invested(asked))


def _trade(held: Tensor, order: Tensor, waits: Tensor, fee: float) -> tuple[Tensor, Tensor]:
    """Weights [P, A] after the order, where there is one, and the share [P] of wealth that its fee leaves."""
    target = torch.where(waits.unsqueeze(-1), held, order)
    return target, rebalance_tensors(held, target, fee, rounds=1)[0]
