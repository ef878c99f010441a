"""The critics of a run: one per (signal, discount), fitted on every rollout, read through averaged weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from portfolio_sdpo.nn.networks import Critic, MeanCritic, ObservationCodec, QuantileCritic, Trunk
from portfolio_sdpo.nn.quantiles import Tail, expect, midpoints, place_levels
from portfolio_sdpo.rl.rollout import Grid, Rollout
from portfolio_sdpo.settings import Settings


class CriticSettings(Settings):
    """How the critics look and learn."""

    kind: Literal["quantile", "mean"]
    """Implicit quantile networks, or only the expected return-to-go."""
    hidden: tuple[int, ...] = Field(default=(64, 64), min_length=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    epochs: int = Field(default=5, ge=1)
    minibatches: int = Field(default=4, ge=1)
    transitions: int | None = Field(default=None, ge=1)
    """How many of a rollout's transitions, drawn at random, a fit uses at most; None: all. Critics follow a policy that
    takes small steps on large rollouts with a part of them, and the fit is what costs time."""
    memory: int = Field(default=1, ge=1)
    """How many rollouts a fit uses: the newest, and those before it with the targets that they had then. For where
    every episode has a look of its own and one rollout shows few of them; needs `transitions`, the share of each."""
    target_lambda: float = Field(default=0.9, ge=0, le=1)
    """λ of the targets: 0 is one-step TD, 1 the plain return."""
    warm_up: int = Field(default=10, ge=1)
    """How many times the first batch is fitted before the first policy step."""
    fit_first: bool = True
    """Whether critics learn from a rollout before they judge it: they lag less behind the policy, but where a rollout
    has few episodes, each with a look of its own, they know these by heart and no action in them stands out."""
    averaging: float = Field(default=0.99, ge=0, lt=1)
    """Decay, per gradient step, of the running average of the weights through which the critics are read; 0 reads the
    newest weights."""
    table_decay: float = Field(default=0.0, ge=0)
    """Weight decay on the rows that belong to discrete states: how reluctantly states are told apart."""
    atoms: int = Field(default=128, ge=1)
    """Quantile levels drawn per minibatch (quantile critics)."""
    dimension: int = Field(default=256, ge=1)
    """Cosines in the embedding of a level (quantile critics)."""
    kappa: float = Field(default=0.0, ge=0)
    """Threshold of the Huber loss in standardised units (quantile critics); 0 is plain quantile regression, and the
    fastest. Far below the distribution's own spread, or the quadratic part of the loss turns quantiles into expectiles
    and the variance is underestimated."""
    shared_trunk: bool = False
    """Whether all critics stand on one trunk."""

    added_later: ClassVar[frozenset[str]] = frozenset({"memory", "fit_first"})

    @field_validator("memory")
    @classmethod
    def _needs_transitions(cls, memory: int, info: ValidationInfo) -> int:
        if memory > 1 and info.data.get("transitions") is None:
            raise ValueError("needs `transitions`, how many of each rollout are kept")
        return memory


class Memory(nn.Module):
    """Transitions of the last rollouts with the targets that they had then; a part of the state in checkpoints.

    Where every episode has a look of its own, one rollout's episodes are too few to tell what a good place looks like
    from what these few places look like. Buffers have their full size from the start, so that a checkpoint of any age
    can be read.
    """

    inputs: Tensor
    """[rollouts, size, D]"""
    counts: Tensor
    """[rollouts] how many transitions of each are there"""
    added: Tensor
    """rollouts that were added so far; the newest is at (added − 1) modulo rollouts"""

    def __init__(self, rollouts: int, size: int, width: int, atoms: Sequence[int]) -> None:
        """size: transitions of a rollout. width: D of an observation. atoms: N of every key's targets."""
        super().__init__()
        self.register_buffer("inputs", torch.zeros(rollouts, size, width))
        for index, count in enumerate(atoms):
            self.register_buffer(f"targets_{index}", torch.zeros(rollouts, size, count))
        self.register_buffer("counts", torch.zeros(rollouts, dtype=torch.int64))
        self.register_buffer("added", torch.zeros((), dtype=torch.int64))

    def add(self, inputs: Tensor, targets: Sequence[Tensor], *, again: bool = False) -> None:
        """Keep a rollout's inputs [n, D] and every key's targets [n, N], n at most `size`, in the place of the oldest.

        again: they are the newest rollout's, which is there already, with other targets.
        """
        self.added += not again
        place = (int(self.added) - 1) % len(self.counts)
        self.counts[place] = len(inputs)
        self.inputs[place, : len(inputs)] = inputs
        for index, target in enumerate(targets):
            self.get_buffer(f"targets_{index}")[place, : len(target)] = target

    def all(self) -> tuple[Tensor, list[Tensor]]:
        """Inputs [n, D] and every key's targets [n, N] of all rollouts that are there."""
        there = torch.arange(self.inputs.shape[1]) < self.counts.unsqueeze(-1)
        targets = [values[there] for name, values in self.named_buffers() if name.startswith("targets_")]
        return self.inputs[there], targets


Features = dict[tuple[str, float], Tensor]
"""What the trunk of every key's critic makes of a rollout's observations, [n, H]."""


@dataclass(frozen=True)
class Past:
    """What may have been cumulated before each of n transitions: J possibilities each (see `rl.past`)."""

    cumulated: Tensor
    """[J, n] what has been cumulated before, c_t"""
    share: Tensor
    """[J, n] their probabilities, which sum to 1 over J"""
    episode: Tensor
    """[J, 1] or [1, n] the episode whose influence function they meet"""

    def take(self, index: Tensor) -> Past:
        """That of the transitions `index` [m]."""
        episode = self.episode if self.episode.shape[1] == 1 else self.episode[:, index]
        return Past(self.cumulated[:, index], self.share[:, index], episode)


@dataclass(frozen=True)
class Valuation:
    """What a critic says of every transition of a rollout, calibrated on that rollout."""

    here: Tensor
    """[n, N] distribution of the return-to-go at s_t"""
    ahead: Tensor
    """[n, N] the same at s_{t+1}, before calibration zero where the sum is closed, see `CriticBank.predict`"""
    increments: Tensor
    """[n] TD errors of the means, δ_t = r_t + γ E[ahead] − E[here]"""
    weight: Tensor | None = None
    """[N] probabilities of the atoms; None: all the same"""
    past: Past | None = None
    """what came before, as a backward critic sees it; None where there is none"""


class CriticBank(nn.Module):
    """Critics by (signal, discount): a constraint on the reward shares the objective's critic when discounts agree."""

    def __init__(
        self,
        codec: ObservationCodec,
        keys: Sequence[tuple[str, float]],
        settings: CriticSettings,
        action_width: int = 0,
        tails: Mapping[tuple[str, float], Sequence[Tail]] | None = None,
    ) -> None:
        """tails: by key, the narrow tails that measures look at: there half of the quantiles are learnt and read."""
        super().__init__()
        self.settings = settings
        self.keys = list(dict.fromkeys(keys))
        self.tails = {key: (tails or {}).get(key, ()) for key in self.keys}
        shared = codec.trunk(settings.hidden, action_width) if settings.shared_trunk else None
        self.online = nn.ModuleList(
            self._critic(shared or codec.trunk(settings.hidden, action_width), self.tails[key]) for key in self.keys
        )
        self.averaged = copy.deepcopy(self.online).requires_grad_(False)
        tables = {id(p) for name, p in self.online.named_parameters() if ".tables." in name}
        groups = [
            {"params": [p for p in self.online.parameters() if id(p) in tables], "weight_decay": settings.table_decay},
            {"params": [p for p in self.online.parameters() if id(p) not in tables], "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=settings.learning_rate, foreach=True
        )
        self.register_buffer("fits", torch.zeros((), dtype=torch.int64))
        self.memory: Memory | None = None
        if settings.memory > 1 and settings.transitions is not None:
            atoms = 1 if settings.kind == "mean" else settings.atoms
            self.memory = Memory(settings.memory, settings.transitions, codec.width, [atoms] * len(self.keys))

    fits: Tensor

    def _critic(self, trunk: Trunk, tails: Sequence[Tail]) -> Critic:
        if self.settings.kind == "mean":
            return MeanCritic(trunk)
        return QuantileCritic(trunk, self.settings.dimension, self.settings.kappa, tails)

    def __getitem__(self, key: tuple[str, float]) -> Critic:
        """The critic to read: averaged weights."""
        critic = self.averaged[self.keys.index(key)]
        assert isinstance(critic, Critic)
        return critic

    @torch.no_grad()
    def extract(self, rollout: Rollout) -> Features:
        """Every key's features [n, H] of a rollout, for all that is read before the critics learn again."""
        return {key: self[key].trunk(rollout.observation) for key in self.keys}

    def fit(self, rollout: Rollout, generator: torch.Generator, features: Features | None = None) -> dict[str, float]:
        """Regression on a rollout and those in memory (Algorithm 1, lines 3–9), on the first one several times over.

        features: the rollout's, as the critics are now.
        """
        loss = 0.0
        for turn in range(self.settings.warm_up if self.fits == 0 else 1):
            inputs, targets = rollout.observation, self.targets(rollout, generator, None if turn else features)
            if self.settings.transitions is not None and self.settings.transitions < len(inputs):
                drawn = torch.randperm(len(inputs), generator=generator)[: self.settings.transitions]
                inputs, targets = inputs[drawn], [target[drawn] for target in targets]
            if self.memory is not None:
                self.memory.add(inputs, targets, again=turn > 0)
                inputs, targets = self.memory.all()
            loss = self.regress(inputs, targets, generator)
        return {"critic_loss": loss}

    def regress(self, inputs: Tensor, targets: Sequence[Tensor], generator: torch.Generator) -> float:
        """Epochs of minibatch descent: inputs [n, ...] against target samples [n, N] of every key; the last loss."""
        for key, target in zip(self.keys, targets, strict=True):
            self._follow_units(key, target)
        loss = torch.zeros(())
        for _ in range(self.settings.epochs):
            for batch in minibatches(len(inputs), self.settings.minibatches, generator):
                losses = [
                    critic.loss(inputs[batch], target[batch], generator)  # type: ignore[operator]
                    for critic, target in zip(self.online, targets, strict=True)
                ]
                loss = torch.stack(losses).sum()
                self.optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                self.optimiser.step()
                self._average()
        return loss.item()

    def targets(self, rollout: Rollout, generator: torch.Generator, features: Features | None = None) -> list[Tensor]:
        """Samples [n, N] of every key's return-to-go (λ-targets); the λ-return [n, 1] for mean critics."""
        lam = self.settings.target_lambda
        targets = []
        for key in self.keys:
            signal, discount = rollout.signals[key[0]], key[1]
            if self.settings.kind == "mean":
                _, ahead = self.predict(key, rollout, midpoints(1), features)
                targets.append(lambda_returns(rollout.grid, signal, ahead.squeeze(-1), discount, lam).unsqueeze(-1))
            else:
                levels = torch.rand(self.settings.atoms, generator=generator)
                _, ahead = self.predict(key, rollout, levels, features)
                targets.append(lambda_targets(rollout.grid, signal, ahead, discount, lam, generator))
        return targets

    @torch.no_grad()
    def predict(
        self, key: tuple[str, float], rollout: Rollout, levels: Tensor, features: Features | None = None
    ) -> tuple[Tensor, Tensor]:
        """Quantiles [n, N] of the return-to-go at s_t and at s_{t+1}; the latter is zero where the sum is closed.

        A termination closes it. Truncated, an episode would have gone on, and the critic says what is missing; but an
        undiscounted budget is the plain sum over the episode as it is, and to look beyond its end would, without
        a contraction, add up for ever.
        """
        critic = self[key]
        closed = rollout.ended if key[1] == 1 else rollout.terminated
        here = critic.predict(features[key] if features else critic.trunk(rollout.observation), levels)
        ahead = here.roll(-1, 0)
        ends = rollout.ends
        open_ended = ends[~closed[ends]]
        ahead[ends] = 0.0
        if len(open_ended):
            ahead[open_ended] = critic(rollout.next_observation[open_ended], levels)
        return here, ahead

    def value(
        self, key: tuple[str, float], rollout: Rollout, atoms: int, features: Features | None = None
    ) -> Valuation:
        """The critic's distributions at every transition, calibrated to the rollout's mean and spread.

        Location: a critic that is read through averaged weights lags behind an improving policy, by about the same
        amount in all states of a time step; the mean residual of all m episodes at that step takes the lag out. That
        fit uses up one degree of freedom, so the TD errors that are left are stretched by √(m/(m−1)), as for a sample
        variance. Scale: TD errors of the means are uncorrelated, so Var(Y(s0)) = E[Σ γ^2t δ_t²], which is far sharper
        than the spread of returns; all distributions are widened or narrowed by the factor that makes both agree.
        """
        signal, discount = key
        values, grid = rollout.signals[signal], rollout.grid
        levels = place_levels(atoms, self.tails[key])
        here, ahead = self.predict(key, rollout, levels.tau, features)
        increments = values + discount * expect(ahead, levels.weight) - expect(here, levels.weight)
        residual = grid.lay_out(grid.sum_ahead(increments, discount))
        # [L, 1]
        present = grid.lay_out(torch.ones(len(rollout))).sum(1, keepdim=True)
        mean = torch.where(present > 1, residual.sum(1, keepdim=True) / present, 0.0)
        stretch = torch.where(present > 1, (present / (present - 1)).sqrt(), 1.0)

        shift, stretch = (grid.flatten(table.expand_as(residual)) for table in (mean, stretch))
        here = here + shift.unsqueeze(-1)
        ahead = ahead + torch.where(rollout.last, 0.0, shift.roll(-1)).unsqueeze(-1)
        increments = values + discount * expect(ahead, levels.weight) - expect(here, levels.weight)
        ahead = ahead + ((stretch - 1) * increments / discount).unsqueeze(-1)
        increments = stretch * increments

        weight = discount ** (2.0 * rollout.step)
        explained = (weight * increments.square()).sum()
        critics = compute_variance(here[rollout.starts], levels.weight).sum()
        critics -= discount**2 * (weight[rollout.ends] * compute_variance(ahead[rollout.ends], levels.weight)).sum()
        if critics > 0 and explained > 0:
            factor = (explained / critics).sqrt()
            here, ahead = (
                expect(distribution, levels.weight).unsqueeze(-1).lerp(distribution, factor)
                for distribution in (here, ahead)
            )
        return Valuation(here, ahead, increments, levels.weight)

    @torch.no_grad()
    def _follow_units(self, key: tuple[str, float], targets: Tensor) -> None:
        """Keep the units in which the critic learns near those of its targets."""
        index = self.keys.index(key)
        online, averaged = self.online[index], self.averaged[index]
        assert isinstance(online, Critic) and isinstance(averaged, Critic)
        location, scale = targets.mean(), targets.std(unbiased=False).clamp_min(1e-6)
        for critic in (online, averaged):
            if self.fits == 0:
                # Nothing has been learnt yet, so predictions may move: to where the targets are.
                critic.location.copy_(location)
                critic.scale.copy_(scale)
            else:
                critic.rescale(torch.lerp(critic.location, location, 0.1), torch.lerp(critic.scale, scale, 0.1))

    @torch.no_grad()
    def _average(self) -> None:
        self.fits += 1
        # Until the window of the running average is full, a mean of all weights so far, whose shares grow linearly.
        weight = max(1.0 - self.settings.averaging, 1.0 / (1.0 + 0.5 * float(self.fits)))
        torch._foreach_lerp_(list(self.averaged.parameters()), list(self.online.parameters()), weight)


def compute_variance(values: Tensor, weight: Tensor | None) -> Tensor:
    """The variance [...] of atoms [..., N] of these weights."""
    if weight is None:
        return values.var(-1, unbiased=False)
    return expect((values - expect(values, weight).unsqueeze(-1)).square(), weight)


def minibatches(count: int, parts: int, generator: torch.Generator) -> Iterator[Tensor]:
    """A random partition of 0 … count−1 into `parts` index tensors of nearly equal size."""
    yield from torch.randperm(count, generator=generator).tensor_split(min(parts, count))


def lambda_targets(
    grid: Grid, signal: Tensor, ahead: Tensor, discount: float, lam: float, generator: torch.Generator
) -> Tensor:
    """Samples [n, N] of the return-to-go of every transition: the targets of eq. 6, mixed over all step lengths.

    The k-th sample at t is signal_t + γ · (with probability λ the k-th sample already built for t+1, else `ahead`, a
    critic sample at s_{t+1}). λ = 0 is one-step TD, λ = 1 the plain return. `ahead` [n, N] is always used in the last
    transition of an episode; it is zero there if nothing is to follow.
    """
    paid, fresh = grid.lay_out(signal), grid.lay_out(ahead)
    alive = grid.lay_out(torch.ones(len(signal), dtype=torch.bool), fill=False)
    keep = torch.rand(fresh.shape, generator=generator) < lam
    targets = torch.empty_like(fresh)
    for t in range(grid.length - 1, -1, -1):
        following = fresh[t]
        if t + 1 < grid.length:
            following = torch.where(keep[t] & alive[t + 1].unsqueeze(-1), targets[t + 1], following)
        targets[t] = paid[t].unsqueeze(-1) + discount * following
    return grid.flatten(targets)


def lambda_returns(grid: Grid, signal: Tensor, ahead: Tensor, discount: float, lam: float) -> Tensor:
    """The expectation of `lambda_targets` over its coin flips: the λ-return [n], from values ahead [n]."""
    paid, fresh = grid.lay_out(signal), grid.lay_out(ahead)
    alive = grid.lay_out(torch.ones_like(signal))
    targets = torch.empty_like(fresh)
    for t in range(grid.length - 1, -1, -1):
        following = fresh[t]
        if t + 1 < grid.length:
            following = torch.lerp(following, targets[t + 1], lam * alive[t + 1])
        targets[t] = paid[t] + discount * following
    return grid.flatten(targets)
