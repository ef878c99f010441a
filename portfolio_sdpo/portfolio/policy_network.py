"""An allocation policy: price paths in, weights on cash and stocks out, all in cash at the start.

Prices do not depend on what is held, so the recurrent trunk runs once per distinct price path, however many episodes
replay it. Held weights join after the trunk, and only where trading costs make them matter.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from portfolio_sdpo.nn.networks import SimplexHead, orthogonal

DAILY_MOVE = 0.02
"""Log growth that counts as one unit of input: about a stock's daily standard deviation."""


class PathTrunk(nn.Module):
    """An LSTM along price paths: row t of its output depends on rows 0 … t only, its state begins at zero."""

    def __init__(self, assets: int, hidden: tuple[int, int] = (64, 64)) -> None:
        super().__init__()
        self.features = hidden[1]
        # Cash and stocks: log growth and whether listed.
        self.lstm = nn.LSTM(2 * assets, hidden[0], batch_first=True)
        self.linear = orthogonal(nn.Linear(*hidden), 2**0.5)

    def forward(self, gross_returns: Tensor, listed: Tensor) -> Tensor:
        """Price gross_returns and listings, [P, L, A] each, to features [P, L, H]."""
        moves = gross_returns.log() / DAILY_MOVE
        states, _ = self.lstm(torch.cat([moves, listed.to(moves.dtype)], -1))
        return torch.tanh(self.linear(states))


class Allocation(nn.Module):
    """Weights [P, L, A] on the simplex for every row of every path; what is not listed has weight 0.

    Logits are linear in the trunk's features, with a bias towards cash that makes the start safe whatever the prices.
    """

    def __init__(self, assets: int, hidden: tuple[int, int] = (64, 64), sees_held: bool = False) -> None:
        super().__init__()
        self.assets = assets
        self.sees_held = sees_held
        self.trunk = PathTrunk(assets, hidden)
        self.output = orthogonal(nn.Linear(self.trunk.features, assets), gain=0.01)
        self.from_held = nn.Linear(assets, assets, bias=False) if sees_held else None
        with torch.no_grad():
            self.output.bias.copy_(SimplexHead(assets).initial)
            if self.from_held is not None:
                self.from_held.weight.zero_()

    def logits(self, gross_returns: Tensor, listed: Tensor, unlisted: float = -math.inf) -> Tensor:
        """Everything but the held weights' part, [P, L, A], `unlisted` where nothing is listed."""
        logits: Tensor = self.output(self.trunk(gross_returns, listed))
        return logits.masked_fill(~listed, unlisted)

    def join(self, logits: Tensor, held: Tensor) -> Tensor:
        """Logits [..., A] with the part of held weights [..., A], if the policy sees them."""
        return logits if self.from_held is None else logits + self.from_held(held)

    def weights(self, logits: Tensor, held: Tensor | None = None) -> Tensor:
        """Weights [..., A] from `logits` [..., A] and, if the policy sees them, held weights [..., A]."""
        return torch.softmax(logits if held is None else self.join(logits, held), -1)

    def forward(self, gross_returns: Tensor, listed: Tensor) -> Tensor:
        """Weights [P, L, A] of a policy that does not see what is held."""
        return self.weights(self.logits(gross_returns, listed))
