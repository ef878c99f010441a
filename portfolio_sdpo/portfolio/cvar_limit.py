"""The promise that is made about a portfolio, and what a shield does to weights so that it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import Field

from portfolio_sdpo.portfolio.market import Array
from portfolio_sdpo.settings import Settings


class CvarLimit(Settings):
    """A promise about simple returns over `horizon` sessions: the mean of the worst fraction α is at least `bound`.

    The default: the worst 5 % of 15-session periods lose at most 5 % on average.
    """

    bound: float = Field(default=-0.05, gt=-1, le=0)
    """Lowest CVaR allowed; a loss is negative."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Tail fraction."""
    horizon: int = Field(default=15, ge=1)
    """Sessions of a period."""

    @property
    def least_scenarios(self) -> int:
        """Fewest scenarios that a CVaR is estimated from: the tail holds a whole one."""
        return math.ceil(1.0 / self.alpha - 1e-9)


@dataclass(frozen=True, eq=False)
class ShieldedWeights:
    """What the shield did to weights."""

    weights: Array
    """[A] κ·w + (1 − κ)·CASH, after `removed`."""
    kappa: float
    """Share of the risky weights that stays."""
    before: float
    """CVaR of the given weights, those of `removed` counted as cash, as the shield sees it."""
    after: float
    """CVaR of the weights."""
    scenarios: int
    """How much of the past that rests on: sessions, or windows of the filtered form."""
    removed: tuple[str, ...] = ()
    """Assets moved to cash because of insufficient price history."""
    meets: bool = True
    """False when not even all cash, which is then held, meets the limit: a cash rate below the bound."""
    findings: tuple[str, ...] = ()
    """Sentences for the reader: a short history, a suspicious last move, a trade kept small by a limit on turnover."""
    traded: float = 1.0
    """Share of the change from what is held that a limit on turnover leaves."""
