"""Limits that the action map enforces: whatever is asked for, what is traded is long-only, listed and within them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from portfolio_sdpo.portfolio.accounting import rebalance
from portfolio_sdpo.settings import Settings

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

TINY = 1e-300
"""Keeps a turnover of zero from dividing by it."""


class Limits(Settings):
    """Bounds on what one decision may do; None = no bound."""

    max_weight: float | None = Field(default=None, gt=0.0, le=1.0)
    """Largest weight of a stock right after a trade; cash has no limit."""
    max_turnover: float | None = Field(default=None, ge=0.0)
    """Largest turnover of one decision, counted as in `accounting.turnover` (switching everything is 2)."""

    def apply(self, target: Array, held: Array, listed: Mask | None = None, fee: float = 0.0) -> Array:
        """The weights [..., A] that are traded for when `target` is asked for; all arguments are [..., A].

        Weight on unlisted stocks (None: all are listed) and weight above the cap go to cash; then a trade beyond the
        turnover limit is carried out in part, every order by the same share. The turnover limit comes last and
        wins: a stock that drifted above its cap may take several sessions to come back under it.

        >>> Limits(max_weight=0.4).apply(np.array([0.0, 0.7, 0.3]), np.array([1.0, 0.0, 0.0])).round(6).tolist()
        [0.3, 0.4, 0.3]
        """
        if self.max_turnover is None:
            return self._capped(target, listed)
        return self.execute(target, held, listed, fee)[0]

    def execute(
        self, target: Array, held: Array, listed: Mask | None = None, fee: float = 0.0
    ) -> tuple[Array, Array, Array]:
        """`apply` and, of the trade that follows, what `trade` and `turnover` say [...]."""
        target = self._capped(target, listed)
        kept, traded = rebalance(held, target, fee)
        if self.max_turnover is None or not np.count_nonzero(traded > self.max_turnover):
            return target, kept, traded
        share = np.where(traded > self.max_turnover, self.max_turnover / np.maximum(traded, TINY), 1.0)
        # Orders scaled by that share leave (1 − share) · held + share · kept · target, in units of the wealth before.
        left = 1.0 - share + share * kept
        partly = held + (share * kept / left)[..., None] * (target - held)
        return np.where((share < 1.0)[..., None], partly, target), left, share * traded

    def _capped(self, target: Array, listed: Mask | None) -> Array:
        allowed = target
        if listed is not None and np.count_nonzero(listed) < listed.size:
            allowed = np.where(listed, target, 0.0)
        if self.max_weight is not None:
            allowed = np.minimum(allowed, self.max_weight)
        if allowed is not target:
            allowed[..., 0] = target[..., 0] + np.add.reduce(target[..., 1:] - allowed[..., 1:], axis=-1)
        return allowed
