"""What a policy earns on price paths, differentiable in its weights: the accounting of a simulation, in torch.

`grow_from_cash` is the paper's episode: it starts all in cash and decides every session, a step further along the path
each time. `grow_as_deployed` is what a backtest does: decisions at the rhythm of the deployment, each on the sessions
seen last, and trading what is held already. Either trades at the execution that it is given.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from portfolio_sdpo.portfolio.accounting import Execution, hold_tensors, rebalance_tensors
from portfolio_sdpo.portfolio.path_shield import PathShield
from portfolio_sdpo.portfolio.policy_network import Allocation


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
