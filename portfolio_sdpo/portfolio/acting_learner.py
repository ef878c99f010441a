"""Algorithms that act on price paths: whole batches of episodes act on given paths at once, without an environment.

Prices do not depend on actions, so every step of every episode can be looked up, decided and paid in one go; only where
trading costs something does what is held matter, and steps follow one another. The accounting is the environment's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.networks import Policy, SimplexHead
from portfolio_sdpo.portfolio.accounting import RUIN, hold_tensors, rebalance_tensors
from portfolio_sdpo.portfolio.path_codec import PathCodec
from portfolio_sdpo.portfolio.path_learner import PathLearner
from portfolio_sdpo.risk.constraint import compute_slacks
from portfolio_sdpo.rl.algorithms import AlgorithmSettings, Problem, build
from portfolio_sdpo.rl.estimators import name_estimator
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout


class _Weights(spaces.Box):
    """The space of weights [A], as far as policies look at it."""

    simplex = True


class ActingLearner(nn.Module, PathLearner):
    """One of the algorithms, whose policy and critics stand on one LSTM along the paths."""

    updates: Tensor

    def __init__(
        self, settings: AlgorithmSettings, problem: Problem, assets: int, fee: float = 0.0, episodes: int = 85
    ) -> None:
        super().__init__()
        if name_estimator(settings) == "counterfactual" and fee > 0:
            raise SettingsError(
                "estimator: a counterfactual of one step is exact only where trading is free; set the fee to 0 or "
                "choose another estimator."
            )
        self.problem = problem
        self.fee = fee
        self.episodes = episodes
        self.codec = PathCodec(assets, sees_held=fee > 0)
        self.algorithm = build(settings, problem, self.codec, _Weights(0.0, 1.0, (assets,), np.float64))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def update(self, gross_returns: Tensor, listed: Tensor, generator: torch.Generator) -> LogRow:
        self.codec.replay(gross_returns, listed)
        rollout = act_on_paths(self.algorithm.policy, self.codec, self.episodes, self.fee, generator)
        metrics = self.algorithm.update(rollout, int(self.updates), generator)
        self.updates += 1
        sampled = [
            item.measure(rollout.returns(item.signal, self.problem.discount_of(item))).item()
            for item in self.problem.constraints
        ]
        # What an algorithm does not log, or a constraint that it does not obey, is measured all the same.
        metrics.setdefault("objective", rollout.returns("reward", self.problem.discount).mean().item())
        for index, slack in enumerate(compute_slacks(self.problem.constraints, sampled, [0.0] * len(sampled))):
            metrics.setdefault(f"risk_{index}", sampled[index])
            metrics.setdefault(f"slack_{index}", slack)
            metrics.setdefault(f"regime_{index}", "none")
        return metrics

    def restart_estimates(self) -> None:
        self.algorithm.restart_estimates()

    @torch.no_grad()
    def weights(self, gross_returns: Tensor, listed: Tensor, held: Tensor) -> Tensor:
        policy = self.algorithm.policy
        self.codec.replay(gross_returns.unsqueeze(0), listed.unsqueeze(0))
        now = torch.tensor([0.0, len(gross_returns) - 1.0])
        seen = torch.cat([now, held.float()]) if self.codec.sees_held else now
        logits = policy.head.mode(policy(seen)).masked_fill(~listed[-1], -torch.inf)
        return policy.head.executed(logits)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return self.algorithm.optimisers()


@torch.no_grad()
def act_on_paths(policy: Policy, codec: PathCodec, episodes: int, fee: float, generator: torch.Generator) -> Rollout:
    """Episodes of the policy on the codec's paths, as many on each as on any other (or one more), starting in cash.

    An episode is over at the end of its path. Signals are the environment's (`reward`, `turnover`, `drawdown`) and, for
    counterfactuals, `reward_of_mode`: what the policy's most likely weights would have earned in that step.
    """
    gross_returns, listed = codec.paths
    paths, length = gross_returns.shape[0], gross_returns.shape[1] - 1
    episodes = max(episodes, paths)
    path = torch.arange(episodes) % paths
    # [E, L + 1, 2]
    place = torch.cartesian_prod(torch.arange(episodes), torch.arange(length + 1)).view(episodes, length + 1, 2).float()
    place[..., 0] = path.unsqueeze(1)
    earned, still = gross_returns[path, 1:].double(), listed[path, 1:]
    if codec.sees_held:
        steps, held = [], _cash(episodes, codec.assets)
        for t in range(length):
            seen = torch.cat([place[:, t], held.float()], -1)
            steps.append(_step(policy, seen, held, earned[:, t], still[:, t], fee, generator))
            held = steps[-1].drifted
        taken = _Step(*(torch.stack(parts, 1) for parts in zip(*steps, strict=True)))
        shown = torch.cat([_cash(episodes, codec.assets).unsqueeze(1), taken.drifted], 1).float()
        observation = torch.cat([place, shown], -1)
    else:
        observation = place
        taken = _step(policy, place[:, :-1], None, earned, still, fee, generator)
    # [E, L + 1]: the wealth of an episode, from 1 on.
    wealth = torch.cat([torch.ones(episodes, 1), taken.reward.cumsum(1).exp()], 1)
    worst = (1 - wealth / wealth.cummax(1).values).cummax(1).values
    signals = {
        "reward": taken.reward,
        "turnover": taken.turnover,
        "drawdown": worst.diff(dim=1),
        "reward_of_mode": taken.reward_of_mode,
    }
    last = torch.zeros(episodes, length, dtype=torch.bool)
    last[:, -1] = True
    flat = last.reshape(-1)
    step = torch.arange(length).repeat(episodes)
    return Rollout(
        observation=observation[:, :-1].reshape(len(flat), -1),
        action=taken.action.reshape(len(flat), -1),
        log_prob=taken.log_prob.reshape(-1),
        signals={name: values.reshape(-1).float() for name, values in signals.items()},
        next_observation=observation[:, 1:].reshape(len(flat), -1),
        terminated=flat,
        ended=flat,
        last=flat,
        episode=torch.arange(episodes).repeat_interleave(length),
        step=step,
    )


class _Step(NamedTuple):
    """What a decision [..., A] did."""

    action: Tensor
    log_prob: Tensor
    reward: Tensor
    reward_of_mode: Tensor
    turnover: Tensor
    drifted: Tensor


def _step(
    policy: Policy,
    seen: Tensor,
    held: Tensor | None,
    earned: Tensor,
    still: Tensor,
    fee: float,
    generator: torch.Generator,
) -> _Step:
    """Decide, trade and hold; with `held` None every step [E, L, ...] at once, each held from the step before."""
    head = policy.head
    assert isinstance(head, SimplexHead)
    parameters = policy(seen)
    action = head.sample(parameters, generator)
    weights = head.executed(action)
    growth, drifted = hold_tensors(weights, earned, still)
    if held is None:
        held = torch.cat([_cash(len(weights), weights.shape[-1]).unsqueeze(1), drifted[:, :-1]], 1)
    kept, turnover = rebalance_tensors(held, weights, fee)
    mode = head.executed(head.mode(parameters))
    reward_of_mode = (rebalance_tensors(held, mode, fee)[0] * (mode * earned).sum(-1)).clamp_min(RUIN).log()
    return _Step(
        action,
        head.log_prob(parameters, action),
        (kept * growth).clamp_min(RUIN).log(),
        reward_of_mode,
        turnover,
        drifted,
    )


def _cash(episodes: int, assets: int) -> Tensor:
    held = torch.zeros(episodes, assets, dtype=torch.float64)
    held[:, 0] = 1.0
    return held
