"""Backward critics: the distribution of what was cumulated before a state, as critics give that of what follows.

Φ(s_t, t, τ) is a quantile critic regressed on c_t (see `rl.past`). It moves the batch's pasts from where their states
have them to where s_t would have them: the past of episode j, which stands at the quantile τ_j of Φ(s_j, t), becomes

    c_j + Φ(s_t, t, τ_j) − Φ(s_j, t, τ_j).

Where the state says nothing of the past, Φ is the same in all states and the batch's own c_t are left; and lest the
noise of a critic count for knowledge, Φ's differences between states are shrunk to what they explain of a rollout from
which the critic has not yet learnt.

All of this is about x_t = c_t − E[Ŷ(s0)], the past relative to what was expected at the episode's start, since the
influence function u belongs to s0: each transition keeps its own episode's u and meets E[Ŷ(s0)] + x_j.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from portfolio_sdpo.nn.levels import midpoints
from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.rl.critics import CriticBank, CriticSettings
from portfolio_sdpo.rl.past import Past, choose_partners, share_among
from portfolio_sdpo.rl.rollout import Rollout

LEVELS = 16
"""Quantiles of the past that are read and, in each gradient step, learnt."""
DIMENSION = 32
"""Cosines in the embedding of a level."""
ROWS = 4000
"""Transitions of a rollout that a fit uses at most."""
PACE = 3.0
"""Learning rate in units of the forward critics': with one epoch a rollout these have to keep up with the policy."""
SHRINKAGES = torch.linspace(0.0, 1.5, 7)
"""Weights tried for Φ's differences between states: beyond 1 for a critic that has not come far enough yet."""


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

    @torch.no_grad()
    def describe(self, key: tuple[str, float], rollout: Rollout, expected: Tensor, partners: int) -> Past:
        """The past given the state, from up to `partners` episodes; expected: [E] E[Ŷ(s0)] of every episode."""
        grid = rollout.grid
        relative, spread, target = _standardise(rollout, key, expected)
        quantiles = self._read(key, rollout, target)
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
        inputs = self._inputs(rollout)
        targets = [
            _standardise(rollout, key, own)[2].to(inputs.dtype) for key, own in zip(self.keys, expected, strict=True)
        ]
        for _ in range(self.settings.warm_up if self.fits == 0 else 1):
            drawn = torch.randperm(len(inputs), generator=generator)[:ROWS]
            self.regress(
                inputs[drawn], [target[drawn].unsqueeze(-1).expand(-1, LEVELS) for target in targets], generator
            )

    def _inputs(self, rollout: Rollout) -> Tensor:
        """[n, D + 1]: observations, and how far the episode is."""
        clock = rollout.step.to(rollout.observation.dtype) / rollout.grid.length
        return torch.cat([rollout.observation, clock.unsqueeze(-1)], -1)

    def _read(self, key: tuple[str, float], rollout: Rollout, target: Tensor) -> Tensor:
        """Φ at `LEVELS` levels, [n, LEVELS] in increasing order, its differences between states shrunk."""
        levels = midpoints(LEVELS).to(target.dtype)
        quantiles = self[key](self._inputs(rollout), levels.to(rollout.observation.dtype)).to(target.dtype)
        grid = rollout.grid
        # [n, LEVELS]: their mean over the states of the step
        common = grid.lay_out(quantiles).sum(1) / grid.lay_out(torch.ones_like(target)).sum(1, keepdim=True)
        common = common[rollout.step]
        losses = torch.stack(
            [pinball(torch.lerp(common, quantiles, weight), levels, target) for weight in SHRINKAGES.to(target.dtype)]
        )
        return torch.lerp(common, quantiles, SHRINKAGES[losses.argmin()].to(target.dtype)).sort(-1).values


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
