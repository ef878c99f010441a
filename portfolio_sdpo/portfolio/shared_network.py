"""A network of a few hundred weights that is shared by all assets, so that it serves any universe.

    months of an asset ── LSTM ─┐
    features of the asset ──────┼── tanh layer ── score ──  w ∝ exp(−log σ + score)        selection
    features of the market ─────┘       │
                                      mean over assets ── tanh layer ── share of the risk budget   exposure

Every asset passes the same weights, so permuting the assets permutes the portfolio, and there may be any number of
them. With a score of 0 the portfolio is that of inverse volatility: the network learns a residual around it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from portfolio_sdpo.portfolio.features import ASSET_FEATURES, MARKET_FEATURES, Features

LARGEST_SCORE = 2.0
"""Scores are bounded by a tanh to ± this: no asset is preferred by more than e⁴ to 1."""
START = 2.0
"""Logit of the share of the risk budget before training: 88 %."""


class SharedNetwork(nn.Module):
    """Features of K closes and N assets to logits of the assets [K, N] and the share of the risk budget [K]."""

    def __init__(self, hidden: int = 8, memory: int = 0) -> None:
        super().__init__()
        self.encoder = nn.LSTM(2, memory, batch_first=True) if memory else None
        self.asset = nn.Linear(len(ASSET_FEATURES) + len(MARKET_FEATURES) + memory, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.market = nn.Linear(len(MARKET_FEATURES) + hidden, hidden)
        self.exposure = nn.Linear(hidden, 1)
        with torch.no_grad():
            self.score.weight.mul_(0.1)
            self.exposure.weight.mul_(0.1)

    def forward(self, seen: FeatureTensors) -> tuple[Tensor, Tensor]:
        closes, count, _ = seen.assets.shape
        inputs = [seen.assets, seen.market.unsqueeze(1).expand(-1, count, -1)]
        if self.encoder is not None:
            _, (state, _) = self.encoder(seen.months.flatten(0, 1))  # [1, K·N, memory]
            inputs.append(state.view(closes, count, -1))
        hidden = torch.tanh(self.asset(torch.cat(inputs, -1)))  # [K, N, H]
        score = LARGEST_SCORE * torch.tanh(self.score(hidden).squeeze(-1) / LARGEST_SCORE)
        here = seen.listed.unsqueeze(-1)
        mean = (hidden * here).sum(1) / here.sum(1).clamp_min(1)
        pooled = torch.tanh(self.market(torch.cat([seen.market, mean], -1)))
        share = torch.sigmoid(START + self.exposure(pooled).squeeze(-1))
        return score - seen.log_volatility, share


class FeatureTensors:
    """`Features` as tensors of single precision, of K closes."""

    def __init__(self, assets: Tensor, market: Tensor, months: Tensor, log_volatility: Tensor, listed: Tensor) -> None:
        self.assets = assets
        self.market = market
        self.months = months
        self.log_volatility = log_volatility
        self.listed = listed

    @classmethod
    def of(cls, features: Features) -> FeatureTensors:
        """The features, converted."""
        assets, market, months, log_volatility = (
            torch.as_tensor(each, dtype=torch.float32)
            for each in (features.assets, features.market, features.months, features.log_volatility)
        )
        return cls(assets, market, months, log_volatility, torch.as_tensor(features.listed))

    def at(self, rows: Tensor) -> FeatureTensors:
        """What is seen at some of the closes [...], flattened."""
        rows = rows.flatten()
        return FeatureTensors(
            self.assets[rows], self.market[rows], self.months[rows], self.log_volatility[rows], self.listed[rows]
        )

    @classmethod
    def join(cls, parts: list[FeatureTensors]) -> FeatureTensors:
        """Several lists of closes of universes that are equally wide, one after the other."""
        return cls(
            torch.cat([part.assets for part in parts]),
            torch.cat([part.market for part in parts]),
            torch.cat([part.months for part in parts]),
            torch.cat([part.log_volatility for part in parts]),
            torch.cat([part.listed for part in parts]),
        )


def mix(logits: Tensor, listed: Tensor, deviation: float = 1.0) -> Tensor:
    """Shares [..., N] of the assets in what is invested: equal ones at a deviation of 0; 0 where nothing is listed."""
    shares = torch.softmax((deviation * logits).masked_fill(~listed, -torch.inf), -1)
    return torch.nan_to_num(shares)
