"""What the champion earned: on the days held out before it was promoted, and since; beside rivals behind the shield.

The champion's track is what its lineage decided, none of whose members knew a later day (`registry.lineage`). It is
simulated as in the evaluation of a retrain, up to the last close.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.run import SHIELDED_BENCHMARKS
from portfolio_sdpo.backtest.same_risk import compare_at_same_risk
from portfolio_sdpo.backtest.shielded import find_remaining_limits, shield_strategy
from portfolio_sdpo.backtest.simulate import Track, simulate
from portfolio_sdpo.backtest.strategies import BENCHMARKS, make_benchmark
from portfolio_sdpo.errors import HistoryError, MissingExtraError
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.market import Market, load_latest
from portfolio_sdpo.portfolio.resume import ResumableAgent
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns
from portfolio_sdpo.registry import Model, Promotion, Registry
from portfolio_sdpo.registry.lineage import Lineage, simulate_lineage

BASE = "equal-weight"
"""The rival that chooses nothing but the size."""


@dataclass(frozen=True)
class EarningsRow:
    """What one track earned."""

    name: str
    held_out: float | None
    """Return over the held-out days; None where there were none."""
    since: float | None
    """Return since then; None where no session has ended."""
    cvar: float | None
    """Realised CVaR of both together; None where they are shorter than a period."""
    ahead: float | None
    """By how much the champion grew faster at the same realised CVaR: a year, or in all below a year; None for itself,
    and where it is not defined."""


@dataclass(frozen=True)
class Earnings:
    """The champion beside its rivals, over the same days."""

    first: date
    """The first held-out close, or else the first close that was not known in training."""
    since: date
    """The close of the promotion; of a promotion after the last close, that at which training ended."""
    promoted: bool
    """Whether `since` is the promotion."""
    last: date
    span: str
    """What `EarningsRow.ahead` is of: "year" or "track"."""
    rows: tuple[EarningsRow, ...]
    """The champion, 1/N and the strongest other rival, the last two behind the shield."""
    recent: float | None
    """The champion's return over the last period of the limit's horizon; None where there is none yet."""


def find_earnings(registry: Registry, model: Model, promotion: Promotion) -> Earnings:
    """The earnings of the champion up to the last close; a `HistoryError` where there are none."""
    market, _ = load_latest(model.config["data"].get("snapshot"), model.config["cash"])
    if market.assets != model.assets:
        raise HistoryError("The champion holds other stocks than there are prices of now, so nothing is compared.")
    record: Mapping[str, Any] = model.config.get("record", {})
    first = min((np.datetime64(day, "D") for day in record), default=np.datetime64(model.as_of, "D"))
    last = market.dates[-1]
    if first >= last:
        raise HistoryError("No session has ended since the champion was trained, so it has earned nothing yet.")
    agent = registry.load_agent(model.id)
    limit, settings = agent.settings.limit, agent.settings
    common: dict[str, Any] = {"start": first, "end": last, "fee": settings.fee, "execution": settings.execution}
    limits, form = settings.limits, settings.shield_form
    lineage = Lineage(_refuse_stand_in, agent, record, (first, last))
    track, _ = simulate_lineage(lineage, market, limit, (first, last), settings.fee, settings.execution, limits)
    rivals = {}
    for name in (each for each in SHIELDED_BENCHMARKS if each in BENCHMARKS):
        inner = make_benchmark(name, limit)
        shielded = shield_strategy(inner, limit, form=form, execution=settings.execution, limits=limits)
        with suppress(MissingExtraError):  # an optimiser that is not installed
            rivals[name] = simulate(market, shielded, **common, limits=find_remaining_limits(limits, form))
    return _compare(model, promotion, market, track, rivals, limit)


def _refuse_stand_in() -> ResumableAgent:
    raise HistoryError("The champion's record does not begin where its training ended, so nothing is compared.")


def _compare(
    model: Model,
    promotion: Promotion,
    market: Market,
    track: Track,
    rivals: Mapping[str, Track],
    limit: CvarLimit,
) -> Earnings:
    known = np.datetime64(model.as_of, "D")
    promoted = np.datetime64(promotion.at.date(), "D")
    since = promoted if promoted < market.dates[-1] else known
    split = max(int(np.searchsorted(track.dates, since, side="right")) - 1, 0)
    held = max(int(np.searchsorted(track.dates, known, side="right")) - 1, 0)

    def make_row(name: str, each: Track, ahead: float | None) -> EarningsRow:
        wealth = each.wealth
        cvar = float(conditional_value_at_risk(window_returns(each.returns, limit.horizon), limit.alpha))
        return EarningsRow(
            name,
            float(wealth[held] / wealth[0] - 1.0) if held else None,
            float(wealth[-1] / wealth[split] - 1.0) if split < len(wealth) - 1 else None,
            None if np.isnan(cvar) else cvar,
            ahead,
        )

    found = {
        name: compare_at_same_risk(
            track.returns, each.returns, track.cash_returns, limit, None, track.sessions_per_year
        )
        for name, each in rivals.items()
    }
    growths = {name: None if np.isnan(each.growth) else float(each.growth) for name, each in found.items()}
    # The strongest is the one that the champion is least ahead of.
    defined = {name: growth for name, growth in growths.items() if growth is not None and name != BASE}
    ranked = sorted(defined, key=lambda name: defined[name])
    shown = [name for name in (BASE, *ranked[:1]) if name in rivals]
    wealth, horizon = track.wealth, limit.horizon
    return Earnings(
        first=track.dates[0].astype(date),
        since=track.dates[split].astype(date),
        promoted=bool(promoted < market.dates[-1]),
        last=track.dates[-1].astype(date),
        span=next((each.span for each in found.values()), "year"),
        rows=(
            make_row("champion", track, None),
            *(make_row(f"{name} + shield", rivals[name], growths[name]) for name in shown),
        ),
        recent=float(wealth[-1] / wealth[-1 - horizon] - 1.0) if len(wealth) > horizon else None,
    )
