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
from portfolio_sdpo.nn.heads import SimplexHead
from portfolio_sdpo.nn.networks import Policy
from portfolio_sdpo.portfolio.accounting import RUIN, Execution, hold_tensors, rebalance_tensors
from portfolio_sdpo.portfolio.path_codec import PathCodec
from portfolio_sdpo.portfolio.path_learner import PathLearner
from portfolio_sdpo.portfolio.path_policy import Deployment, draw_start, keep_listed
from portfolio_sdpo.risk.constraint import compute_slacks
from portfolio_sdpo.rl.algorithms import AlgorithmSettings, Problem, build
from portfolio_sdpo.rl.estimators import name_estimator
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout


class WeightSpace(spaces.Box):
    """The space of weights [A], as far as policies look at it."""

    simplex = True


class ActingLearner(nn.Module, PathLearner):
    """One of the algorithms, whose policy and critics stand on one LSTM along the paths."""

    updates: Tensor

    def __init__(
        self,
        settings: AlgorithmSettings,
        problem: Problem,
        assets: int,
        fee: float = 0.0,
        episodes: int = 85,
        execution: Execution = "same-close",
        deployment: Deployment | None = None,
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
        self.execution = execution
        self.deployment = deployment
        self.codec = PathCodec(assets, sees_held=fee > 0)
        self.algorithm = build(settings, problem, self.codec, WeightSpace(0.0, 1.0, (assets,), np.float64))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def update(self, gross_returns: Tensor, listed: Tensor, generator: torch.Generator) -> LogRow:
        self.codec.replay(gross_returns, listed, self.deployment)
        policy = self.algorithm.policy
        if self.deployment is None:
            rollout = act_on_paths(policy, self.codec, self.episodes, self.fee, generator, self.execution)
        else:
            rollout = act_as_deployed(policy, self.codec, self.episodes, self.fee, generator, self.deployment)
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
        return policy.head.to_executable(logits)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return self.algorithm.optimisers()


@torch.no_grad()
def act_on_paths(
    policy: Policy,
    codec: PathCodec,
    episodes: int,
    fee: float,
    generator: torch.Generator,
    execution: Execution = "same-close",
) -> Rollout:
    """Episodes of the policy on the codec's paths, as many on each as on any other (or one more), starting in cash.

    An episode is over at the end of its path. Signals are the environment's (`reward`, `turnover`, `drawdown`) and, for
    counterfactuals, `reward_of_mode`: what the policy's most likely weights would have earned in that step. At the next
    close a step earns the session after its trade, the first one that of cash before it as well, the last one nothing.
    """
    gross_returns, listed = codec.paths
    length = gross_returns.shape[1] - 1
    path, place = _assign(len(gross_returns), episodes, length + 1)
    episodes = len(path)
    earned, still = gross_returns[path, 1:].double(), listed[path, 1:]
    tradable: Tensor | None = None  # the policy sees what is listed at its decision, and leaves out the rest
    waiting = torch.zeros(episodes, dtype=torch.float64)
    if execution == "next-close":
        tradable, waiting = still, earned[:, 0, 0].log()
        earned = torch.cat([earned[:, 1:], torch.ones_like(earned[:, :1])], 1)
        still = torch.cat([still[:, 1:], still[:, -1:]], 1)
    if codec.sees_held:
        steps, held = [], _cash(episodes, codec.assets)
        shown = [held]
        for t in range(length):
            seen = torch.cat([place[:, t], shown[-1].float()], -1)
            allowed = None if tradable is None else tradable[:, t]
            steps.append(_step(policy, seen, held, allowed, earned[:, t], still[:, t], fee, generator))
            held = steps[-1].drifted
            shown.append(held if execution == "same-close" else steps[-1].weights)
        taken = _Step(*(torch.stack(parts, 1) for parts in zip(*steps, strict=True)))
        observation = torch.cat([place, torch.stack(shown, 1).float()], -1)
    else:
        observation = place
        taken = _step(policy, place[:, :-1], None, tradable, earned, still, fee, generator)
    if execution == "next-close":
        for signal in (taken.reward, taken.reward_of_mode, taken.turnover):
            signal[:, -1] = 0.0
        for signal in (taken.reward, taken.reward_of_mode):
            signal[:, 0] += waiting
    return _collect(observation, taken, _find_drawdowns(taken.reward))


@torch.no_grad()
def act_as_deployed(
    policy: Policy, codec: PathCodec, episodes: int, fee: float, generator: torch.Generator, deployment: Deployment
) -> Rollout:
    """Episodes of the policy as it is deployed, from random weights: a step is a decision and what it earns.

    Of the sessions from the first trade on, an episode counts those of one period of the horizon; episodes take turns
    at where in the rhythm it begins. Signals as those of `act_on_paths`.
    """
    gross_returns, listed = codec.paths
    path, place = _assign(len(gross_returns), episodes, deployment.decisions + 1)
    place[:, -1, 1] -= 1  # after the last decision nothing more is seen
    gross_returns = gross_returns.double()
    seen = held = draw_start(listed[path, deployment.seen - 1], generator).double()
    close = deployment.seen - 1
    if deployment.lag:
        close += 1
        _, held = hold_tensors(held, gross_returns[path, close], listed[path, close])
    first = torch.arange(len(path)) % deployment.every
    steps, shown, growth = [], [seen], []
    for decision in range(deployment.decisions):
        sessions = min(deployment.every, deployment.sessions - decision * deployment.every)
        rows = slice(close + 1, close + 1 + sessions)
        observation = torch.cat([place[:, decision], seen.float()], -1) if codec.sees_held else place[:, decision]
        taken = _decide(policy, observation, listed[path, close], generator)
        number = torch.arange(decision * deployment.every, decision * deployment.every + sessions)
        # [E, sessions]
        counts = (number >= first.unsqueeze(-1)) & (number < first.unsqueeze(-1) + deployment.horizon)
        outcomes = [
            _follow(held, weights, gross_returns[path, rows], listed[path, rows], fee)
            for weights in (taken[2], taken[3])
        ]
        logs = [torch.where(counts, outcome.growth.clamp_min(RUIN).log(), 0.0) for outcome in outcomes]
        growth.append(logs[0])
        states = outcomes[0].states
        held = states[-1]
        seen = states[min(deployment.every - deployment.lag, sessions)]
        shown.append(seen)
        close += deployment.every
        steps.append(_Step(taken[0], taken[1], logs[0].sum(1), logs[1].sum(1), outcomes[0].turnover, held, taken[2]))
    observation = torch.cat([place, torch.stack(shown, 1).float()], -1) if codec.sees_held else place
    found = _find_drawdowns(torch.cat(growth, 1))
    drawdowns = torch.stack([part.sum(1) for part in found.split(deployment.every, 1)], 1)
    return _collect(observation, _Step(*(torch.stack(parts, 1) for parts in zip(*steps, strict=True))), drawdowns)


def _assign(paths: int, episodes: int, steps: int) -> tuple[Tensor, Tensor]:
    """Path [E] of every episode, and where it is at every step, [E, steps, 2]."""
    episodes = max(episodes, paths)
    path = torch.arange(episodes) % paths
    place = torch.cartesian_prod(torch.arange(episodes), torch.arange(steps)).view(episodes, steps, 2).float()
    place[..., 0] = path.unsqueeze(1)
    return path, place


def _find_drawdowns(growth: Tensor) -> Tensor:
    """[E, L] by how much the largest drawdown grew in each step of log growth [E, L]."""
    wealth = torch.cat([torch.ones(len(growth), 1), growth.cumsum(1).exp()], 1)
    worst = (1 - wealth / wealth.cummax(1).values).cummax(1).values
    return worst.diff(dim=1)


def _collect(observation: Tensor, taken: _Step, drawdown: Tensor) -> Rollout:
    """Transitions from observations [E, L + 1, D] and what was done at the L steps."""
    episodes, length = taken.reward.shape
    signals = {
        "reward": taken.reward,
        "turnover": taken.turnover,
        "drawdown": drawdown,
        "reward_of_mode": taken.reward_of_mode,
    }
    last = torch.zeros(episodes, length, dtype=torch.bool)
    last[:, -1] = True
    flat = last.reshape(-1)
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
        step=torch.arange(length).repeat(episodes),
    )


class _Step(NamedTuple):
    """What a decision [..., A] did."""

    action: Tensor
    log_prob: Tensor
    reward: Tensor
    reward_of_mode: Tensor
    turnover: Tensor
    drifted: Tensor
    weights: Tensor


class _Outcome(NamedTuple):
    """What became of weights over S sessions."""

    growth: Tensor
    """[E, S] net of the fee of the trade before the first."""
    states: list[Tensor]
    """S + 1 times [E, A], the weights after the trade and after every session."""
    turnover: Tensor
    """[E]"""


def _step(
    policy: Policy,
    seen: Tensor,
    held: Tensor | None,
    tradable: Tensor | None,
    earned: Tensor,
    still: Tensor,
    fee: float,
    generator: torch.Generator,
) -> _Step:
    """Decide, trade and hold; with `held` None every step [E, L, ...] at once, each held from the step before."""
    action, log_prob, weights, mode = _decide(policy, seen, tradable, generator)
    growth, drifted = hold_tensors(weights, earned, still)
    if held is None:
        held = torch.cat([_cash(len(weights), weights.shape[-1]).unsqueeze(1), drifted[:, :-1]], 1)
    kept, turnover = rebalance_tensors(held, weights, fee)
    reward_of_mode = (rebalance_tensors(held, mode, fee)[0] * (mode * earned).sum(-1)).clamp_min(RUIN).log()
    reward = (kept * growth).clamp_min(RUIN).log()
    return _Step(action, log_prob, reward, reward_of_mode, turnover, drifted, weights)


def _decide(policy: Policy, seen: Tensor, tradable: Tensor | None, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Action, its log probability, and the weights that it and the most likely action come to at the trade."""
    head = policy.head
    assert isinstance(head, SimplexHead)
    parameters = policy(seen)
    action = head.sample(parameters, generator)
    weights, mode = head.to_executable(action), head.to_executable(head.mode(parameters))
    if tradable is not None:
        weights, mode = keep_listed(weights, tradable), keep_listed(mode, tradable)
    return action, head.log_prob(parameters, action), weights, mode


def _follow(held: Tensor, weights: Tensor, gross_returns: Tensor, listed: Tensor, fee: float) -> _Outcome:
    """Trade from held to weights [E, A], and hold through gross returns [E, S, A]."""
    kept, turnover = rebalance_tensors(held, weights, fee)
    states, growths = [weights], []
    for session in range(gross_returns.shape[1]):
        growth, drifted = hold_tensors(states[-1], gross_returns[:, session], listed[:, session])
        growths.append(growth)
        states.append(drifted)
    growths[0] = kept * growths[0]
    return _Outcome(torch.stack(growths, 1), states, turnover)


def _cash(episodes: int, assets: int) -> Tensor:
    held = torch.zeros(episodes, assets, dtype=torch.float64)
    held[:, 0] = 1.0
    return held
