"""Real histories as sequences that a shared policy is trained through, as it is deployed.

A window has `DECISIONS` weekly decisions, each traded one close later, and the sessions up to the next trade. It starts
with what an earlier decision holds, and its fee is charged on what is traded. Every decision passes the calibrated
shield in its differentiable form: the largest exposure that the forecast volatility of the mix allows.

Many windows of one history overlap, and each is seen through one of several random sub-universes, so that the policy
learns what holds for any set of assets and not what these ones did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from portfolio_sdpo.portfolio.calibrated_shield import SHARE, SPEEDS, TAIL, forecast_volatility
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.features import compute_features
from portfolio_sdpo.portfolio.market import Array, Market
from portfolio_sdpo.portfolio.return_measures import normal_cvar
from portfolio_sdpo.portfolio.shared_network import FeatureTensors, SharedNetwork, mix

EVERY = 5
"""Sessions from one decision to the next."""
LAG = 1
"""Closes between a decision and its trade."""
DECISIONS = 12
"""Decisions of a window: 60 sessions."""
FIRST = 252
"""Sessions before the first decision that is trained on."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """K decisions of a market of N assets, through each of U universes."""

    rows: NDArray[np.intp]
    """[K] sessions of the decisions."""
    seen: FeatureTensors
    """[U·K, ...] the universes one after the other."""
    universes: int
    covariance: Tensor
    """[K, N, N] forecast of the covariance of daily excess returns."""
    cash: Tensor
    """[K] what cash earned in the last session."""
    growth: Tensor
    """[K, EVERY, 1+N] growth of every asset, cash first, since the trade that follows each decision."""

    @classmethod
    def of(cls, market: Market, universes: int = 12, seed: int = 0) -> Sequences:
        """The decisions of a market whose following sessions are known; the first universe has all its assets."""
        rows = np.arange(min(FIRST, len(market)), len(market) - EVERY - LAG, EVERY)
        rng = np.random.default_rng(seed)
        count = len(market.tickers)
        members = [np.ones(count, dtype=np.bool_)]
        for _ in range(universes - 1 if count > 4 else 0):
            chosen = np.zeros(count, dtype=np.bool_)
            chosen[rng.choice(count, rng.integers(min(4, count), count), replace=False)] = True
            members.append(chosen)
        following = rows[:, None] + LAG + 1 + np.arange(EVERY)
        return cls(
            rows=rows,
            seen=FeatureTensors.join(
                [FeatureTensors.of(compute_features(_restrict(market, chosen), rows)) for chosen in members]
            ),
            universes=len(members),
            covariance=torch.as_tensor(forecast_covariance(market, rows), dtype=torch.float32),
            cash=torch.as_tensor(market.gross_returns[rows, 0] - 1.0, dtype=torch.float32),
            growth=torch.as_tensor(np.cumprod(market.gross_returns[following], axis=1), dtype=torch.float32),
        )

    def exposure(self, shares: Tensor, decisions: Tensor, limit: CvarLimit) -> Tensor:
        """Largest share of wealth [B] that may be invested in mixes [B, N] at these decisions [B]."""
        variance = torch.einsum("bi,bij,bj->b", shares, self.covariance[decisions], shares)
        return largest_exposure(variance, self.cash[decisions], limit)

    def log_growth(
        self, network: SharedNetwork, universe: Tensor, start: Tensor, fee: float, limit: CvarLimit
    ) -> Tensor:
        """Log growth a session, net of fees, [P, DECISIONS · EVERY] of windows that follow decisions `start` [P]."""
        decisions = start.unsqueeze(1) + torch.arange(DECISIONS + 1)  # the first one is what is held at the start
        seen = self.seen.at(universe.unsqueeze(1) * len(self.rows) + decisions)
        logits, share = network(seen)
        shares = mix(logits, seen.listed)
        allowed = share * self.exposure(shares, decisions.flatten(), limit)
        weights = (shares * allowed.clamp_max(1.0).unsqueeze(-1)).unflatten(0, decisions.shape)  # [P, D+1, N]
        growth = self.growth[decisions]
        values = weights.unsqueeze(2) * growth[..., 1:]  # [P, D+1, EVERY, N]
        wealth = values.sum(-1) + (1 - weights.sum(-1)).unsqueeze(-1) * growth[..., 0]
        drifted = values[:, :-1, -1] / wealth[:, :-1, -1:]
        kept = 1 - fee * (weights[:, 1:] - drifted).abs().sum(-1)
        level = wealth[:, 1:].log()
        steps = torch.cat([level[..., :1] + kept.log().unsqueeze(-1), level.diff(dim=-1)], -1)
        return steps.flatten(1)


def largest_exposure(variance: Tensor, cash: Tensor, limit: CvarLimit) -> Tensor:
    """[B] the share of wealth that the limit allows at a variance per session [B], with no loss in progress.

    It may be above 1; where cash alone breaks the limit it is 0. This is the calibrated shield's rule without an
    account.
    """
    budget = (-SHARE * limit.bound + limit.horizon * cash).clamp_min(0.0)
    spread = -TAIL * normal_cvar(limit.alpha) * math.sqrt(limit.horizon)
    return budget / (spread * variance.clamp_min(1e-12).sqrt())


def normal_exposure(excess: Array, cash: float, limit: CvarLimit) -> float:
    """`largest_exposure` of a mix with these daily excess returns [T], latest last, for a decision."""
    volatility = float(forecast_volatility(excess))
    variance = torch.tensor(volatility**2, dtype=torch.float64)
    return float(largest_exposure(variance, torch.tensor(cash, dtype=torch.float64), limit))


def forecast_covariance(market: Market, rows: NDArray[np.intp]) -> Array:
    """[K, N, N] covariances of daily excess returns: 0.3 of a quick and 0.7 of a slow average, as the shield's."""
    excess = market.gross_returns[:, 1:] - market.gross_returns[:, :1]
    count = excess.shape[1]
    pattern = 0.5 * (np.eye(count) + np.ones((count, count)))  # before anything is known: a correlation of a half
    parts = [prior**2 * pattern for _, _, prior in SPEEDS]
    covariances = np.empty((len(rows), count, count))
    wanted = {int(row): index for index, row in enumerate(rows)}
    for session, moves in enumerate(excess):
        product = np.outer(moves, moves)
        parts = [decay * part + (1.0 - decay) * product for part, (_, decay, _) in zip(parts, SPEEDS, strict=True)]
        if session in wanted:
            covariances[wanted[session]] = sum(share * part for part, (share, _, _) in zip(parts, SPEEDS, strict=True))
    return covariances


def _restrict(market: Market, chosen: NDArray[np.bool_]) -> Market:
    """The market with the other assets never listed."""
    listed = market.listed.copy()
    listed[:, 1:] &= chosen
    return replace(market, listed=listed)
