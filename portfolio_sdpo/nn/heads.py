"""The distributions that policies draw actions from, of the parameters that a network gives."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from portfolio_sdpo.errors import SettingsError

_LOG_2PI = math.log(2 * math.pi)
CASH_AT_START = 0.9995
"""Weight of cash before the first update."""
UNLISTED = -30.0
"""Logit of a stock that cannot be bought: none of the wealth, and still a number that a Gaussian can have as mean."""


class CategoricalHead:
    """One of `count` actions; the parameters are logits [..., count], actions integers [...]."""

    action_shape: tuple[int, ...] = ()
    action_dtype = torch.int64

    def __init__(self, count: int) -> None:
        self.count = count
        self.width = count
        self.initial = torch.zeros(count)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        # The Gumbel trick: cheaper than torch.multinomial on small batches, and exact.
        noise = torch.empty_like(parameters).exponential_(generator=generator).log_()
        return (parameters - noise).argmax(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.argmax(-1)

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        return torch.log_softmax(parameters, -1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        log = torch.log_softmax(parameters, -1)
        return -(log.exp() * log).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        log_old, log_new = torch.log_softmax(old, -1), torch.log_softmax(new, -1)
        return (log_old.exp() * (log_old - log_new)).sum(-1)

    def to_executable(self, action: Tensor) -> Tensor:
        """The action in the form that the environment takes."""
        return action


class GaussianHead:
    """A real vector of length `size`; the parameters are mean and log standard deviation, [..., 2·size]."""

    action_dtype = torch.float32

    def __init__(self, size: int) -> None:
        self.size = size
        self.action_shape: tuple[int, ...] = (size,)
        self.width = size
        self.initial = torch.zeros(size)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        mean, log_std = parameters.chunk(2, -1)
        return mean + log_std.exp() * torch.empty_like(mean).normal_(generator=generator)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.chunk(2, -1)[0]

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        mean, log_std = parameters.chunk(2, -1)
        standardised = (action - mean) * (-log_std).exp()
        return (-0.5 * standardised.square() - log_std - 0.5 * _LOG_2PI).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        log_std = parameters.chunk(2, -1)[1]
        return (log_std + 0.5 * (1 + _LOG_2PI)).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        (mean_old, log_old), (mean_new, log_new) = old.chunk(2, -1), new.chunk(2, -1)
        squared = (2 * log_old).exp() + (mean_old - mean_new).square()
        return (log_new - log_old + 0.5 * squared * (-2 * log_new).exp() - 0.5).sum(-1)

    def to_executable(self, action: Tensor) -> Tensor:
        """The action in the form that the environment takes."""
        return action


class _Bounded(torch.autograd.Function):
    """Values within ± bound; a gradient that would lead further beyond it is zero, any other passes whole.

    A tanh in its place is a trap: what is pushed far into its flat end takes as long to come back, and an Adam step is
    as large there as anywhere. Gradients that fade towards the bound (Hausknecht and Stone 2016, section 4.3) let mere
    noise pull every logit to the middle, and with them the policy to equal weights.
    """

    @staticmethod
    def forward(context: Any, values: Tensor, bound: float) -> Tensor:
        context.save_for_backward(values)
        context.bound = bound
        return values.clamp(-bound, bound)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (values,), (gradient,) = context.saved_tensors, gradients
        # A step goes against the gradient.
        leaves = (values.abs() >= context.bound) & (values * gradient < 0)
        return torch.where(leaves, 0.0, gradient), None


class SimplexHead(GaussianHead):
    """Weights on cash and stocks: the softmax of Gaussian logits, whose mean at the start is almost all in cash.

    bound: largest size c of a mean logit. Without one, what leads the first days may draw nearly all weight to itself;
    what the others earn then hardly counts, and no gradient leads back to them. With one no asset's mean weight is
    less than e^(−2c) of another's, and all of them keep being compared.
    """

    def __init__(self, assets: int, bound: float | None = None) -> None:
        super().__init__(assets)
        self.bound = bound
        lead = math.log(CASH_AT_START / (1 - CASH_AT_START) * (assets - 1))
        if bound is None:
            self.initial[0] = lead
        else:
            # Half of the lead above zero and half below, as far as the bound leaves room for it.
            start = min(0.5 * lead, bound)
            self.initial.fill_(-start)
            self.initial[0] = start

    def limit(self, logits: Tensor) -> Tensor:
        """Mean logits [..., A] of the network's output [..., A]; what is not listed stays out of reach.

        What is held shifts the `UNLISTED` logits as well, by a few units at most: half-way tells both kinds apart.
        """
        if self.bound is None:
            return logits
        bounded: Tensor = _Bounded.apply(logits, self.bound)  # type: ignore[no-untyped-call]
        return torch.where(logits > UNLISTED / 2, bounded, logits)

    def to_executable(self, action: Tensor) -> Tensor:
        """Weights [..., A] of logits [..., A]."""
        return torch.softmax(action.double(), -1)


def make_head(space: spaces.Space[Any], logit_bound: float | None = None) -> CategoricalHead | GaussianHead:
    """The head for a space of actions; logit_bound: of weights, see `SimplexHead`."""
    if getattr(space, "simplex", False) and len(space.shape or ()) == 1:
        return SimplexHead(int(space.shape[0]), logit_bound)  # type: ignore[index]
    if logit_bound is not None:
        raise SettingsError(f"logit_bound: only weights on cash and stocks have logits; leave it out for {space}.")
    if isinstance(space, spaces.Discrete):
        return CategoricalHead(int(space.n))
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return GaussianHead(int(space.shape[0]))
    raise SettingsError(f"action space {space} is not supported: use Discrete or a one-dimensional Box.")
