"""How a shared policy is trained: SDPO with the analytic estimator, through windows of real histories.

Every update draws windows, recent ones more often, and cuts their log growth into all periods of the limit's horizon
that overlap in them. These periods are the episodes of SDPO: it climbs the mean of their log growth, and a log barrier
keeps the CVaR of all of them inside the limit. Several members are trained from different seeds and decide together.

    policy = train_policy(market)                                                # from scratch, on all of the market
    policy = train_policy(market, FINE, parent=load_shipped_policy())            # the shipped policy, fine-tuned
    policy = train_policy(market, ends=["1959-12-31", "1969-12-31"])             # vintages for a backtest over decades
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from portfolio_sdpo.errors import HistoryError
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Day, Market
from portfolio_sdpo.portfolio.sequences import DECISIONS, EVERY, Sequences
from portfolio_sdpo.portfolio.shared_network import SharedNetwork
from portfolio_sdpo.portfolio.shared_policy import SharedPolicy, Vintage
from portfolio_sdpo.risk import Constraint, CVaR
from portfolio_sdpo.rl.algorithms.ascent import GradientAscent
from portfolio_sdpo.rl.algorithms.base import Problem
from portfolio_sdpo.rl.algorithms.pricing import CappedBarrierPricing
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo
from portfolio_sdpo.rl.checkpoint import single_thread
from portfolio_sdpo.rl.estimators.analytic import AnalyticEstimator
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import torch_generator
from portfolio_sdpo.settings import Settings


class SharedSettings(Settings):
    """How a shared policy looks and learns."""

    kind: Literal["shared"] = "shared"
    limit: CvarLimit = CvarLimit()
    hidden: int = Field(default=8, ge=1)
    """Width of every layer."""
    memory: int = Field(default=0, ge=0)
    """Units of an LSTM over the last twelve months; 0: none. It added nothing to the slow features before 1960."""
    members: int = Field(default=6, ge=1)
    """Networks trained from different seeds, whose portfolios are averaged."""
    updates: int = Field(default=200, ge=1)
    windows: int = Field(default=24, ge=2)
    """Windows of 60 sessions an update."""
    learning_rate: float = Field(default=2e-2, gt=0)
    weight_decay: float = Field(default=0.5, ge=0)
    smoothing: float = Field(default=1.0, gt=0, le=1)
    """Weight of the newest windows in the running estimate of the risk: with all of it on them, risk has its highest
    price where a crash is among them."""
    averaging: float = Field(default=0.9, ge=0, lt=1)
    """Decay, per update, of the running average of the weights that decisions are made with."""
    eta: float = Field(default=5600.0, gt=0)
    """The barrier's weight is 1 / η, in units of log growth over the horizon."""
    fee: float = Field(default=0.002, ge=0, lt=1)
    """Above any real one, so that only what lasts is worth a trade."""
    half_life: float = Field(default=20.0, gt=0)
    """Years after which a window is drawn half as often."""
    universes: int = Field(default=12, ge=1)
    """The whole universe and random parts of it."""
    whole: float = Field(default=0.5, gt=0, le=1)
    """Share of windows that see the whole universe."""

    @field_validator("limit")
    @classmethod
    def _fits_into_a_window(cls, limit: CvarLimit) -> CvarLimit:
        if limit.horizon > DECISIONS * EVERY:
            raise ValueError(f"its horizon must be at most {DECISIONS * EVERY} sessions, the length of a window")
        return limit


FINE = SharedSettings(updates=40, learning_rate=2e-3)
"""For fine-tuning: a few steps, with members that stay near their parents."""


def train_policy(
    market: Market,
    settings: SharedSettings | None = None,
    *,
    ends: Sequence[Day] | None = None,
    parent: SharedPolicy | None = None,
    seed: int = 0,
    watch: Callable[[LogRow], None] | None = None,
) -> SharedPolicy:
    """A policy with one vintage for each of the days `ends`, trained on the market up to that day; by default its last.

    With a `parent`, training starts from the parent's vintage of that day instead of from random weights, and the
    parent's own vintages are kept for the days before: that is fine-tuning, for which `FINE` has the settings.
    """
    settings = settings or SharedSettings()
    vintages = list(parent.vintages if parent is not None else ())
    for end in [market.dates[-1]] if ends is None else ends:
        history = market.between(end=end)
        last = history.dates[-1]
        old = parent.vintage_at(last) if parent is not None else None
        sequences = Sequences.of(history, settings.universes, seed)
        if len(sequences.rows) <= DECISIONS:
            raise HistoryError(
                f"Training up to {last} needs a year of history and {DECISIONS} weekly decisions after it, and there "
                f"are {len(history)} sessions: import more of them."
            )
        with single_thread():
            members = tuple(
                _train_member(sequences, settings, [seed, member], old.members[member] if old else None, watch)
                for member in range(len(old.members) if old else settings.members)
            )
        vintages.append(Vintage(last, members))
    return SharedPolicy(tuple(sorted(vintages, key=lambda vintage: vintage.until)))


def _train_member(
    sequences: Sequences,
    settings: SharedSettings,
    seed: Sequence[int],
    parent: SharedNetwork | None,
    watch: Callable[[LogRow], None] | None,
) -> SharedNetwork:
    draws = np.random.SeedSequence(seed)
    generator = torch_generator(draws)
    with torch.random.fork_rng():
        torch.manual_seed(int(draws.generate_state(1)[0]))
        network = SharedNetwork(settings.hidden, settings.memory)
    if parent is not None:
        network = copy.deepcopy(parent).requires_grad_(True)
    algorithm = _sdpo(network, sequences, settings)
    # A window starts with what the decision before its first one holds.
    starts = torch.arange(len(sequences.rows) - DECISIONS)
    age = (len(starts) - starts) * EVERY / SESSIONS_PER_YEAR
    recency = 0.5 ** (age / settings.half_life)
    others = max(sequences.universes - 1, 1)
    by_universe = torch.full((sequences.universes,), (1 - settings.whole) / others)
    by_universe[0] = settings.whole
    for update in range(settings.updates):
        start = torch.multinomial(recency, settings.windows, True, generator=generator)
        universe = torch.multinomial(by_universe, settings.windows, True, generator=generator)
        log = algorithm.update((universe, start), update, generator)
        if watch is not None:
            watch(log)
    averaged: Any = algorithm.averaged
    trained: SharedNetwork = averaged
    return trained


def _sdpo(network: SharedNetwork, sequences: Sequences, settings: SharedSettings) -> Sdpo:
    limit = settings.limit
    problem = Problem(
        discount=1.0,
        constraints=(
            Constraint(
                signal="reward",
                measure=CVaR(alpha=limit.alpha),
                sense=">=",
                bound=math.log1p(limit.bound),
                eta=settings.eta,
                margin=0.002,
            ),
        ),
    )

    def periods(policy: SharedNetwork, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Log growth [P · (60 − H + 1), H] of every period of the horizon in the windows."""
        growth = sequences.log_growth(policy, *batch, settings.fee, limit)
        return growth.unfold(1, limit.horizon, 1).flatten(0, 1)

    return Sdpo.from_parts(
        settings,
        problem,
        network,
        estimator=lambda state: AnalyticEstimator(state, problem, network, periods, settings.smoothing),
        pricing=lambda state: CappedBarrierPricing(problem.constraints),
        ascent=lambda state: GradientAscent(
            state,
            network,
            learning_rate=settings.learning_rate,
            anneal=settings.updates,
            betas=(0.9, 0.99),
            averaging=settings.averaging,
            weight_decay=settings.weight_decay,
        ),
    )
