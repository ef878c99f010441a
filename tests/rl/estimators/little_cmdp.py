"""A CMDP whose distribution can be written down, and finite differences of the risk of its returns.

Under the uniform policy every path of the little CMDP is equally likely, so a rollout that holds each of them once *is*
the distribution: what is exact in expectation is exact here, and tolerances are rounding errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from portfolio_sdpo.envs.random_cmdp import Cmdp
from portfolio_sdpo.risk import (
    Custom,
    CVaR,
    Entropic,
    Expectation,
    MeanSemideviation,
    Power,
    RiskMeasure,
    Spectral,
    Variance,
    Wang,
)
from portfolio_sdpo.rl.critics import Past, Valuation
from portfolio_sdpo.rl.estimators.score import estimate_risk
from portfolio_sdpo.rl.rollout import Rollout

STATES, ACTIONS, HORIZON, ATOMS = 3, 2, 3, 32


def deviation(values: Tensor, weights: Tensor) -> Tensor:
    """Standard deviation: not linear in moments, and none of the closed forms."""
    mean = (weights * values).sum(-1, keepdim=True)
    return (weights * (values - mean).square()).sum(-1).sqrt()


MEASURES = [
    Expectation(),
    CVaR(alpha=0.3),
    CVaR(alpha=0.1, tail="upper"),
    Variance(),
    Entropic(beta=-0.7),
    Entropic(beta=1.3),
    Spectral(distortion=Wang(shift=0.5)),
    Spectral(distortion=Power(exponent=2.5)),
    MeanSemideviation(weight=0.8),
    MeanSemideviation(weight=0.5, tail="upper", order=2),
    Custom(function=deviation),
]
EACH = pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.label)
NONLINEAR = pytest.mark.parametrize("measure", MEASURES[1:], ids=lambda measure: measure.label)


@dataclass(frozen=True, eq=False)
class Little:
    """A CMDP with two equally likely successors of every pair, and every path of it once."""

    cmdp: Cmdp
    discount: float
    rollout: Rollout
    paths: Tensor
    """[E, H] states"""
    choices: Tensor
    """[E, H] actions"""
    here: Tensor
    """[H, N, ATOMS] exact distributions of the return-to-go"""
    after: Tensor
    """[H, N, M, ATOMS] the same after an action"""

    def log_prob(self, logits: Tensor) -> Tensor:
        """[E, H] of every choice, under a softmax of logits [N, M]."""
        return torch.log_softmax(logits, -1)[self.paths, self.choices]

    def risk(self, measure: RiskMeasure, logits: Tensor) -> Tensor:
        """ρ: the mean over s0 of the measure of the exact distribution from s0, by weighting every path."""
        returns = self.rollout.returns("reward", self.discount)
        weight = self.log_prob(logits).sum(-1).exp()
        starts = self.paths[:, 0]
        own = [starts == s0 for s0 in starts.unique()]
        return torch.stack([measure(returns[at], weight[at] / weight[at].sum()) for at in own]).mean()

    @cache  # noqa: B019 — littles live as long as the tests
    def gradient(self, measure: RiskMeasure, step: float = 1e-5) -> Tensor:
        """∂ρ/∂logits at the uniform policy by central differences, [N, M]."""
        logits = uniform()
        slopes = torch.zeros_like(logits)
        for index in np.ndindex(*logits.shape):
            shift = torch.zeros_like(logits)
            shift[index] = step
            slopes[index] = (self.risk(measure, logits + shift) - self.risk(measure, logits - shift)) / (2 * step)
        return slopes

    def valuation(self, shift: Tensor | float = 0.0) -> Valuation:
        """Exact distributions at every transition, or wrong by `shift` (broadcastable to [H, N, ATOMS])."""
        distributions = torch.cat([self.here + shift, torch.zeros_like(self.here[:1])])
        step, state = self.rollout.step, self.paths.flatten()
        following = self.rollout.next_observation[:, 0].long()
        here, ahead = distributions[step, state], distributions[step + 1, following]
        td = self.rollout.signals["reward"] + self.discount * ahead.mean(-1) - here.mean(-1)
        return Valuation(here, ahead, td)


@cache
def make_little(discount: float, dtype: torch.dtype = torch.float64, starts=(0, 1), forgetful=False) -> Little:
    """forgetful: all pairs share their successors, so that the past tells nothing of the state."""
    rng = np.random.default_rng(4)
    successors = np.stack([rng.permutation(STATES)[:2] for _ in range(STATES * ACTIONS)])
    if forgetful:
        successors[:] = successors[0]
    cmdp = Cmdp(
        successors=successors.reshape(STATES, ACTIONS, 2),
        probabilities=np.full((STATES, ACTIONS, 2), 0.5),
        reward=rng.normal(size=(STATES, ACTIONS)),
        noise=np.zeros((STATES, ACTIONS)),
        initial=np.bincount(starts, minlength=STATES) / len(starts),
        horizon=HORIZON,
    )
    episodes = []
    for s0, *moves in product(starts, *[list(product(range(ACTIONS), range(2)))] * HORIZON):
        path = [s0]
        for action, successor in moves:
            path.append(int(cmdp.successors[path[-1], action, successor]))
        episodes.append((path, [action for action, _ in moves]))
    paths = torch.tensor([path for path, _ in episodes])
    choices = torch.tensor([actions for _, actions in episodes])
    table = torch.tensor(cmdp.reward, dtype=dtype)
    here = torch.zeros(HORIZON + 1, STATES, ATOMS, dtype=dtype)
    after = torch.zeros(HORIZON, STATES, ACTIONS, ATOMS, dtype=dtype)
    for t in reversed(range(HORIZON)):
        for s, a in product(range(STATES), range(ACTIONS)):
            mixed = here[t + 1, cmdp.successors[s, a]].reshape(-1).sort().values
            after[t, s, a] = table[s, a] + discount * mixed[::2]
        here[t] = after[t].reshape(STATES, -1).sort(-1).values[:, ::2]
    count = len(episodes)
    last = torch.arange(HORIZON).repeat(count) == HORIZON - 1
    rollout = Rollout(
        observation=paths[:, :-1].reshape(-1, 1).to(dtype),
        action=choices.flatten(),
        log_prob=torch.full((count * HORIZON,), -np.log(ACTIONS), dtype=dtype),
        signals={"reward": table[paths[:, :-1], choices].flatten()},
        next_observation=paths[:, 1:].reshape(-1, 1).to(dtype),
        terminated=last,
        ended=last,
        last=last,
        episode=torch.arange(count).repeat_interleave(HORIZON),
        step=torch.arange(HORIZON).repeat(count),
    )
    return Little(cmdp, discount, rollout, paths[:, :-1], choices, here[:HORIZON], after)


def uniform(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(STATES, ACTIONS, dtype=dtype)


def by_score(little: Little, advantage: Tensor, logits: Tensor) -> Tensor:
    """Mean over episodes of Σ_t γ^t A_t ∇ ln π(a_t | s_t), [N, M]."""
    logits = logits.clone().requires_grad_()
    weight = little.discount ** torch.arange(HORIZON, dtype=advantage.dtype)
    total = (weight * advantage.view(-1, HORIZON) * little.log_prob(logits)).sum(-1).mean()
    return torch.autograd.grad(total, logits)[0]


def run_assess(little: Little, measure: RiskMeasure, valuation: Valuation, lam=1.0, past: Past | None = None):
    return estimate_risk(measure, ("reward", little.discount), little.rollout, valuation, lam, past)
