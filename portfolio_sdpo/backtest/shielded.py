"""Strategies behind the shield, in either of its forms.

The shield looks at every session and knows the account: with the calibrated form it buys and sells between the
strategy's own decisions, with the filtered form it only sells.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.simulate import AccountHistory, DecisionReplay, Strategy, Track
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.accounting import Execution, check_execution
from portfolio_sdpo.portfolio.calibrated_shield import BAND
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit, ShieldedWeights
from portfolio_sdpo.portfolio.filtered_shield import DEFAULT_CAUTION, Caution, shield_by_scenarios
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Array, Market
from portfolio_sdpo.portfolio.shield import ShieldForm, shield_within


def shield_strategy(
    inner: Strategy,
    limit: CvarLimit,
    *,
    form: ShieldForm = "calibrated",
    lookback: int = 504,
    execution: Execution = "next-close",
    limits: Limits | None = None,
) -> ShieldedStrategy | FilteredShieldStrategy:
    """The strategy behind the form of the shield that is asked for.

    lookback, execution: for the filtered one. limits: for the calibrated one; behind the filtered one those of the
    simulation are all that there are.
    """
    if form == "calibrated":
        return ShieldedStrategy(inner, limit, limits=limits)
    return FilteredShieldStrategy(inner, limit, lookback=lookback, execution=execution)


def find_remaining_limits(limits: Limits, form: ShieldForm) -> Limits:
    """Those that the simulation of a shielded strategy is to keep.

    Behind the calibrated shield the strategy itself keeps the limit on turnover, since it may have to sell more.
    """
    return limits.caps if form == "calibrated" else limits


def shield_track(
    track: Track,
    every: int,
    limit: CvarLimit,
    *,
    form: ShieldForm = "calibrated",
    lookback: int = 504,
    limits: Limits | None = None,
) -> ShieldedStrategy | FilteredShieldStrategy:
    """The decisions of a strategy's own track, made every so many sessions, behind the form of the shield.

    The filtered form only sells between decisions, so there a decision to change nothing asks again for what the
    strategy held on its own track; behind the calibrated one it changes nothing.
    """
    unchanged = track.unchanged if form == "calibrated" else ()
    replay = DecisionReplay(track.name, track.decisions, every, unchanged)
    return shield_strategy(replay, limit, form=form, lookback=lookback, execution=track.execution, limits=limits)


class ShieldedStrategy:
    """A strategy behind the calibrated shield, which reviews the account at every close; a `DailyStrategy`.

    At a decision of the strategy, its weights are scaled to what the shield allows. In between, what is held is scaled
    in the same way, up or down, but never above what the strategy asked for, and only where it is further than `band`
    away. `days` says what it did. With limits, it keeps within them as an agent that is served does (`shield_within`):
    caps hold together with the CVaR limit, and both come before the limit on turnover, so simulate it without that.
    """

    def __init__(self, inner: Strategy, limit: CvarLimit, *, band: float = BAND, limits: Limits | None = None) -> None:
        if not 0.0 <= band < 1.0:
            raise SettingsError(f"band: must be a share from 0 to below 1 (got {band}).")
        self.inner = inner
        self.limit = limit
        self.band = band
        self.limits = limits or Limits()
        self.every = inner.every
        self.days: list[dict[str, Any]] = []
        self._rhythm = _Rhythm(inner)
        self._asked: Array | None = None
        """[A] what the strategy asked for, as far as the shield knows these assets."""

    @property
    def name(self) -> str:
        return f"{self.inner.name} + shield"

    def decide(self, history: Market, held: Array) -> Array:
        """As `review`, for an account that has been all cash until now."""
        return self.review(history, AccountHistory(held, np.empty((0, len(held))), np.empty(0)))

    def review(self, history: Market, account: AccountHistory) -> Array:
        """Weights [A] to trade for, or `account.held` itself where nothing is to change."""
        held = account.held
        wanted = self.inner.decide(history, held) if self._rhythm.is_due(history) else held
        decided = True
        if self._asked is not None and wanted is held:
            # No change is asked for, and not as little as the shield has left.
            decided, wanted = False, _rescale(held, self._asked, history)
        result = shield_within(wanted, history, self.limit, self.limits, held=held, record=account)
        if decided:
            # No more than this decision may trade: the rest is left to the next one, not to the days in between.
            allowed_now = self.limits.apply(wanted, held, None, assets=history.assets)
            self._asked = np.where(np.isin(history.assets, result.removed), 0.0, allowed_now)
        self.days.append(_describe_day(history, decided, result) | {"findings": " ".join(result.findings)})
        invested, allowed = float(held[1:].sum()), float(result.weights[1:].sum())
        if not decided and abs(allowed - invested) <= self.band * invested:
            return held
        return result.weights


class FilteredShieldStrategy:
    """A strategy behind the filtered shield, which also looks at what is held every `every` sessions.

    Between the strategy's own decisions the shield only sells: what is held stays as it is, or is scaled towards cash.
    `days` says what it did. Limits of the backtest come after it, at every look: a cap on turnover may keep more risk
    for some sessions than it asks for, and one on weights also cuts what drifted above it between decisions.
    """

    def __init__(
        self,
        inner: Strategy,
        limit: CvarLimit,
        *,
        lookback: int = 504,
        every: int = 1,
        caution: Caution | None = DEFAULT_CAUTION,
        execution: Execution = "next-close",
    ) -> None:
        if every < 1:
            raise SettingsError(f"every: the shield looks every session or less often (got {every}).")
        self.inner = inner
        self.limit = limit
        self.lookback = lookback
        self.caution = caution
        self.execution = check_execution(execution)
        self.look = min(every, inner.every)
        self.every = math.gcd(self.look, inner.every)
        """Sessions from one call to the next, so that neither a look nor a decision is missed."""
        self.days: list[dict[str, Any]] = []
        self._rhythm = _Rhythm(inner)
        self._looked = 0

    @property
    def name(self) -> str:
        return f"{self.inner.name} + shield"

    def decide(self, history: Market, held: Array) -> Array:
        due = self._rhythm.is_due(history)
        if not due and len(history) - self._looked < self.look:
            return held
        self._looked = len(history)
        wanted = self.inner.decide(history, held) if due else held
        result = shield_by_scenarios(wanted, history, self.limit, lookback=self.lookback, caution=self.caution)
        self.days.append(_describe_day(history, due, result))
        # At the same close weights that do not change are no trade; at the next close they have drifted by then.
        unchanged = wanted is held and result.kappa == 1.0 and not result.removed
        return held if unchanged and self.execution == "next-close" else result.weights


class _Rhythm:
    """When the inner strategy is to decide."""

    def __init__(self, inner: Strategy) -> None:
        self._inner = inner
        self._decided: int | None = None

    def is_due(self, history: Market) -> bool:
        """Whether it is to decide now: its sessions have passed, or a replay has a decision."""
        if isinstance(self._inner, DecisionReplay) and not self._inner.regular:
            return history.dates[-1] in self._inner.decisions
        now, latest = len(history), self._decided
        due = latest is None or now <= latest or now - latest >= self._inner.every
        if not due and isinstance(self._inner, DecisionReplay):
            return history.dates[-1] in self._inner.decisions
        if due:
            self._decided = now
        return due


def _rescale(held: Array, asked: Array, history: Market) -> Array:
    """[A] what is held, in the proportions that it has drifted to, with as much invested as was asked for.

    What was asked for and has no price any more stays in cash.
    """
    listed = np.where(history.listed[-1], asked, 0.0)
    mix = held if held[1:].any() else listed
    share, invested = float(listed[1:].sum()), float(mix[1:].sum())
    scaled = mix * (share / invested if invested > 0.0 else 0.0)
    scaled[0] = max(1.0 - scaled[1:].sum(), 0.0)
    return scaled


def _describe_day(history: Market, decided: bool, result: ShieldedWeights) -> dict[str, Any]:
    return {
        "date": history.dates[-1],
        "decided": decided,
        "kappa": result.kappa,
        "before": result.before,
        "after": result.after,
        "scenarios": result.scenarios,
        "removed": ", ".join(result.removed),
        "meets": result.meets,
    }
