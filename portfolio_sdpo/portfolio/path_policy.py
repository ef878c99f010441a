"""An allocation policy on price paths: its network, and what it earns on them, differentiable in its weights.

The policy takes price paths and gives weights on cash and stocks, all in cash at the start. Prices do not depend on
what is held, so the recurrent trunk runs once per distinct price path, however many episodes replay it. Held weights
join after the trunk, and only where trading costs make them matter.

What it earns is the accounting of a simulation, in torch. `grow_from_cash` is the paper's episode: it starts all in
cash and decides every session, a step further along the path each time. `grow_as_deployed` is what a backtest does:
decisions at the rhythm of the deployment, each on the sessions seen last, and trading what is held already. Either
trades at the execution that it is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from portfolio_sdpo.nn.heads import SimplexHead
from portfolio_sdpo.nn.networks import orthogonal
from portfolio_sdpo.portfolio.accounting import Execution, hold_tensors, rebalance_tensors
from portfolio_sdpo.portfolio.path_shield import PathShield

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


@dataclass(frozen=True)
class Deployment:
    """How a policy is deployed, and thereby what a training path consists of.

    The first `seen` sessions are what the first decision is made on. From its trade on N = `every` − 1 + `horizon`
    sessions are earned: every period of the horizon that begins within the first rhythm, whatever its place in it.

        seen sessions | decision → trade | N sessions, a decision every `every` of them
    """

    seen: int
    """Sessions up to the close of a decision that the policy sees."""
    horizon: int
    """Sessions of a period of the limit."""
    every: int
    """Sessions from one decision to the next."""
    execution: Execution

    @property
    def lag(self) -> int:
        """Sessions from a decision to its trade."""
        return int(self.execution == "next-close")

    @property
    def sessions(self) -> int:
        """N, sessions that are earned from the first trade on."""
        return self.every - 1 + self.horizon

    @property
    def decisions(self) -> int:
        """K, decisions whose trade is followed by a session that counts."""
        return -(-self.sessions // self.every)

    @property
    def rows(self) -> int:
        """Rows of a path."""
        return self.seen + self.lag + self.sessions

    def windows(self, rows: Tensor) -> Tensor:
        """What each decision sees: [P, rows, A] → [P · K, seen, A], one path after the other."""
        first = self.every * torch.arange(self.decisions)
        place = first.unsqueeze(-1) + torch.arange(self.seen)
        return rows[:, place].flatten(0, 1)


def draw_start(listed: Tensor, generator: torch.Generator) -> Tensor:
    """Weights [P, A] to start with: any share invested is as likely as any other, and any mix of what is listed [P, A].

    Where nothing is listed all is cash.
    """
    parts = torch.empty(listed.shape).exponential_(generator=generator) * listed
    parts[:, 0] = 0.0
    total = parts.sum(-1, keepdim=True)
    invested = torch.rand(len(listed), 1, generator=generator)
    weights = torch.where(total > 0.0, invested * parts / total.clamp_min(1e-30), 0.0)
    weights[:, 0] = 1.0 - weights.sum(-1)
    return weights


def grow_from_cash(
    policy: Allocation,
    gross_returns: Tensor,
    listed: Tensor,
    fee: float = 0.0,
    execution: Execution = "same-close",
) -> Tensor:
    """Log growth net of fees [P, L] of a policy that starts each path [P, L+1, A] in cash and decides every session.

    The fee is taken on what is traded at the wealth before it, which is the exact accounting up to fee².
    """
    logits = policy.logits(gross_returns[:, :-1], listed[:, :-1])
    earned, still = gross_returns[:, 1:], listed[:, 1:]
    if fee == 0 and execution == "same-close":
        return (policy.weights(logits) * earned).sum(-1).log()
    held = torch.zeros_like(logits[:, 0])
    held[:, 0] = 1.0
    kept = held.new_ones(len(held))
    rewards = []
    for step in range(logits.shape[1]):
        weights = policy.weights(logits[:, step], held)
        if execution == "same-close":
            kept, _ = rebalance_tensors(held, weights, fee, rounds=1)
            held = weights
        growth, drifted = hold_tensors(held, earned[:, step], still[:, step])
        rewards.append((kept * growth).log())
        if execution == "same-close":
            held = drifted
        else:
            held, kept = _trade(drifted, weights, still[:, step], fee)
    return torch.stack(rewards, 1)


def grow_as_deployed(
    policy: Allocation,
    gross_returns: Tensor,
    listed: Tensor,
    start: Tensor,
    deployment: Deployment,
    fee: float = 0.0,
    shield: PathShield | None = None,
) -> Tensor:
    """Log growth net of fees [P · every, horizon] of every period on the paths [P, rows, A].

    start: [P, A] what is held at the close of the first decision. With a shield it is the growth behind it: the policy
    decides as without, in view of what its own account holds, and what it asks for passes the shield, as in a backtest.
    """
    paths = len(gross_returns)
    seen = policy.logits(deployment.windows(gross_returns), deployment.windows(listed))[:, -1]
    logits = seen.view(paths, deployment.decisions, -1)
    held = start
    asked: list[Tensor] = []
    growths = []
    for session in range(deployment.lag + deployment.sessions):
        close = deployment.seen - 1 + session
        decision, waits = divmod(session, deployment.every)
        decides = not waits and decision < deployment.decisions
        kept = held.new_ones(paths)
        if deployment.lag and session and (session - 1) % deployment.every == 0:
            held, kept = _trade(held, asked[-1], listed[:, close], fee)
        if decides:
            asked.append(policy.weights(logits[:, decision], held))
        if decides and not deployment.lag:
            held, kept = _trade(held, asked[-1], listed[:, close], fee)
        growth, held = hold_tensors(held, gross_returns[:, close + 1], listed[:, close + 1])
        if session >= deployment.lag:
            growths.append(kept * growth)
    growth = torch.stack(growths, 1)
    if shield is not None:
        growth = shield.follow(asked, gross_returns, listed, start, deployment, fee)
    return growth.log().unfold(1, deployment.horizon, 1).flatten(0, 1)


def keep_listed(weights: Tensor, listed: Tensor) -> Tensor:
    """The weights [..., A] with those of what is not listed in cash."""
    bought = torch.where(listed, weights, 0.0)
    left = (weights - bought).sum(-1, keepdim=True)
    return torch.cat([bought[..., :1] + left, bought[..., 1:]], -1)


def _trade(held: Tensor, target: Tensor, listed: Tensor, fee: float) -> tuple[Tensor, Tensor]:
    """Weights [P, A] after a trade, in which what is not listed stays cash, and the share of wealth [P] it leaves."""
    weights = keep_listed(target, listed)
    return weights, rebalance_tensors(held, weights, fee, rounds=1)[0]
