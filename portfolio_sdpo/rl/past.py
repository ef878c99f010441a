"""The past: what an episode may have cumulated before it came to a state, c_t given (s_t, t).

A risk advantage weighs what is to come by what has been. The policy sees s_t and not c_t, so its gradient is that of
the mean over the distribution of c_t given (s_t, t). Of this mean an episode's own c_t is one sample, consistent and
noisy (`own_past`); the batch's c_t at the same step are many, and wrong wherever the state tells something of the past,
as it does when there is something to hedge (`batch_past`). `BackwardCritics` move the batch's c_t to where the state
has them: they give the distribution of what was cumulated before a state, as critics give that of what follows.

Φ(s_t, t, τ) is a quantile critic regressed on c_t. The past of episode j, which stands at the quantile τ_j of
Φ(s_j, t), becomes

    c_j + w · (Φ(s_t, t, τ_j) − Φ(s_j, t, τ_j)).

Where the state says nothing of the past, Φ is the same in all states and the batch's own c_t are left; and lest the
noise of a critic count for knowledge, its differences between states are shrunk by w, the weight in [0, 1] that would
have explained the last rollouts best, each judged before the critic learnt from it.

All of this is about x_t = c_t − E[Ŷ(s0)], the past relative to what was expected at the episode's start, since the
influence function u belongs to s0: each transition keeps its own episode's u and meets E[Ŷ(s0)] + x_j. The first step,
where nothing is cumulated and the state tells all of E[Ŷ(s0)], is no task of the critic's: had it a say in w, a critic
that knows where episodes start would be taken at its word wherever they go.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.nn.quantiles import midpoints
from portfolio_sdpo.rl.critics import CriticBank, CriticSettings, Past
from portfolio_sdpo.rl.rollout import Rollout

LEVELS = 16
"""Quantiles of the past that are read and, in each gradient step, learnt."""
DIMENSION = 32
"""Cosines in the embedding of a level."""
ROWS = 4000
"""Transitions of a rollout that a fit uses at most."""
PACE = 3.0
"""Learning rate in units of the forward critics': with one epoch a rollout these have to keep up with the policy."""
WEIGHTS = torch.linspace(0.0, 1.0, 9)
"""Weights w that are tried."""
JUDGED = 10
"""Rollouts over which what each weight explains is averaged."""
LEAST_GAIN = 0.02
"""Share of the loss that has to be explained (about 4 % of the variance of c_t), or the batch's pasts stay as they are.
What is less bends the gradient by little, and cannot be told from noise: where states remember, they tell far more."""


def own_past(signal: Tensor, discount: float, rollout: Rollout) -> Past:
    """What the episode itself has cumulated, for a signal [n]."""
    own = rollout.grid.flatten(rollout.grid.sum_before(signal, discount)).unsqueeze(0)
    return Past(own, torch.ones_like(own), rollout.episode.unsqueeze(0))


def batch_past(signal: Tensor, discount: float, rollout: Rollout, partners: int) -> Past:
    """What up to `partners` episodes of the batch have cumulated at the same step, each with its own u."""
    chosen = choose_partners(rollout, partners)
    before = rollout.grid.sum_before(signal, discount)[:, chosen].T[:, rollout.step]
    return Past(before, share_among(rollout, chosen, signal), chosen.unsqueeze(1))


def choose_partners(rollout: Rollout, partners: int) -> Tensor:
    """[J] numbers of episodes, evenly spread over the batch."""
    return torch.linspace(0, rollout.episodes - 1, min(partners, rollout.episodes)).round().long()


def share_among(rollout: Rollout, chosen: Tensor, like: Tensor) -> Tensor:
    """[J, n] equal shares of the chosen episodes that are still under way at each transition's step."""
    alive = rollout.grid.lay_out(torch.ones_like(like))[:, chosen]
    # Where none of them is, all of them count.
    alive = torch.where(alive.sum(1, keepdim=True) > 0, alive, 1.0)
    return (alive / alive.sum(1, keepdim=True)).T[:, rollout.step]


class BackwardCritics(CriticBank):
    """The backward critics of a run: one per (signal, discount) that a non-linear measure looks at."""

    def __init__(self, codec: ObservationCodec, keys: Sequence[tuple[str, float]], settings: CriticSettings) -> None:
        """settings: of the forward critics, whose layers and weight decay these have as well."""
        changes = {
            "kind": "quantile",
            "learning_rate": PACE * settings.learning_rate,
            "dimension": DIMENSION,
            "epochs": 1,
            "averaging": 0.9,
            "kappa": 0.0,
        }
        small = CriticSettings(**{**dict(settings), **changes, "memory": 1, "transitions": None})
        super().__init__(codec, keys, small, action_width=1)
        self.register_buffer("losses", torch.zeros(len(self.keys), len(WEIGHTS), dtype=torch.float64))
        self.register_buffer("judged", torch.zeros((), dtype=torch.int64))
        self.register_buffer("longest", torch.zeros((), dtype=torch.int64))

    losses: Tensor
    """[K, W] what each weight left unexplained lately, relative to what 0 did, and `LEAST_GAIN` for all but 0"""
    judged: Tensor
    """rollouts that were judged so far"""
    longest: Tensor
    """steps of the longest episode so far, by which time is measured: where it is fixed, the horizon"""

    @torch.no_grad()
    def describe(self, key: tuple[str, float], rollout: Rollout, expected: Tensor, partners: int) -> Past:
        """The past given the state, from up to `partners` episodes; expected: [E] E[Ŷ(s0)] of every episode."""
        grid = rollout.grid
        relative, spread, target = _standardise(rollout, key, expected)
        common, quantiles = self._read(key, rollout)
        quantiles = torch.lerp(common, quantiles, WEIGHTS[self.losses[self.keys.index(key)].argmin()]).sort(-1).values
        chosen = choose_partners(rollout, partners)
        # [n]: which of the quantiles that Φ expects there each transition's past comes up to
        level = torch.searchsorted(quantiles, target.unsqueeze(-1)).squeeze(-1).clamp_max(LEVELS - 1)
        # [J, n]: the partners' pasts at each transition's step, their levels, and what Φ has there
        pasts, levels, expectations = (
            grid.lay_out(table)[:, chosen].T[:, rollout.step]
            for table in (relative, level, quantiles.gather(-1, level.unsqueeze(-1)).squeeze(-1))
        )
        moved = pasts + spread * (quantiles.gather(-1, levels.T).T - expectations)
        # Before the first step nothing has been cumulated, and without a partner there is only the episode's own past.
        under_way = grid.lay_out(torch.ones_like(level, dtype=torch.bool))[:, chosen].any(1)[rollout.step]
        cumulated = torch.where((rollout.step > 0) & under_way, moved, relative) + expected[rollout.episode]
        return Past(cumulated, share_among(rollout, chosen, relative), rollout.episode.unsqueeze(0))

    def fit_to_past(self, rollout: Rollout, expected: Sequence[Tensor], generator: torch.Generator) -> None:
        """Regress on a rollout's pasts, on the first one several times over; `expected` as in `describe`, by key."""
        later = (rollout.step > 0).nonzero().squeeze(-1)
        if not len(later):
            return
        targets = [_standardise(rollout, key, own)[2] for key, own in zip(self.keys, expected, strict=True)]
        self.longest.clamp_min_(rollout.grid.length)
        if self.fits > 0:
            self._judge(rollout, targets, later)
        inputs = self._inputs(rollout)
        for _ in range(self.settings.warm_up if self.fits == 0 else 1):
            drawn = later[torch.randperm(len(later), generator=generator)[:ROWS]]
            samples = [target[drawn].to(inputs.dtype).unsqueeze(-1).expand(-1, LEVELS) for target in targets]
            self.regress(inputs[drawn], samples, generator)

    @torch.no_grad()
    def _judge(self, rollout: Rollout, targets: Sequence[Tensor], later: Tensor) -> None:
        """What each weight leaves unexplained of a rollout from which the critics have not yet learnt."""
        self.judged += 1
        newest = max(1 / JUDGED, 1 / float(self.judged))
        for index, (key, target) in enumerate(zip(self.keys, targets, strict=True)):
            levels = midpoints(LEVELS).to(target.dtype)
            common, quantiles = (table[later] for table in self._read(key, rollout))
            loss = torch.stack(
                [pinball(torch.lerp(common, quantiles, weight), levels, target[later]) for weight in WEIGHTS]
            )
            handicap = LEAST_GAIN * (WEIGHTS > 0)
            self.losses[index].lerp_((loss / loss[0].clamp_min(1e-12) - 1 + handicap).double(), newest)

    def _inputs(self, rollout: Rollout) -> Tensor:
        """[n, D + 1]: observations, and how far the episode is."""
        longest = max(int(self.longest), rollout.grid.length)
        clock = rollout.step.to(rollout.observation.dtype) / longest
        return torch.cat([rollout.observation, clock.unsqueeze(-1)], -1)

    def _read(self, key: tuple[str, float], rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Φ at `LEVELS` levels: the mean over the states of each transition's step, and in its state, [n, LEVELS]."""
        quantiles = self[key](self._inputs(rollout), midpoints(LEVELS).to(rollout.observation.dtype))
        grid = rollout.grid
        present = grid.lay_out(torch.ones(len(rollout), dtype=quantiles.dtype)).sum(1, keepdim=True)
        return (grid.lay_out(quantiles).sum(1) / present)[rollout.step], quantiles


def pinball(quantiles: Tensor, levels: Tensor, target: Tensor) -> Tensor:
    """The loss of quantile regression: quantiles [n, N] at levels [N] against one sample each [n]; a mean []."""
    error = target.unsqueeze(-1) - quantiles
    return torch.maximum(levels * error, (levels - 1) * error).mean()


def _standardise(rollout: Rollout, key: tuple[str, float], expected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x_t, its spread over the episodes at the same step, and x_t less their mean in units of that spread, all [n].

    What it means to have much behind one grows with time: in these units Φ has the same task at every step.
    """
    grid = rollout.grid
    relative = grid.flatten(grid.sum_before(rollout.signals[key[0]], key[1])) - expected[rollout.episode]
    alive = grid.lay_out(torch.ones_like(relative))
    count, table = alive.sum(1, keepdim=True), grid.lay_out(relative)
    deviation = alive * (table - table.sum(1, keepdim=True) / count)
    spread = (deviation.square().sum(1, keepdim=True) / count).sqrt()
    standard = torch.where(spread > 0, deviation / torch.where(spread > 0, spread, 1.0), 0.0)
    return relative, grid.flatten(spread.expand_as(standard)), grid.flatten(standard)
