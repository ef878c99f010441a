"""How stormy it is today: an exponentially weighted volatility, and past days brought to it.

Volatility clusters, so days drawn as they were understate a crash that has begun and overstate one that is over.
Filtered historical simulation (Barone-Adesi, Giannopoulos and Vosper 1999) divides each past day by the volatility
known the day before and multiplies it by today's. Only falls count here: they foretell volatility better than rises.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from portfolio_sdpo.portfolio.market import Array
from portfolio_sdpo.settings import Settings


class Volatility(Settings):
    """How volatility is told from daily returns."""

    decay: float = Field(default=0.85, gt=0, lt=1)
    """Weight of a day relative to that of the day after it: 0.85 has forgotten half within five sessions."""
    floor: float = Field(default=0.5, ge=0, le=1)
    """Volatility never counts as less than this share of the long-run one: a calm can end any day."""

    def of(self, returns: Array) -> Array:
        """[T + 1, ...] volatility known before each of the T days of returns [T, ...], and after the last.

        √2 times the root of the weighted mean of min(return, 0)², which is the standard deviation where returns are
        symmetric about 0. The first day has the long-run value, that of all days with equal weights.
        """
        squares = 2.0 * np.square(np.minimum(returns, 0.0))
        longrun = squares.mean(axis=0) if len(squares) else np.zeros(squares.shape[1:])
        # Weights below 1e-9 of the first are dropped; the start is padded by the long-run value.
        reach = math.ceil(math.log(1e-9) / math.log(self.decay))
        weights = (1.0 - self.decay) * self.decay ** np.arange(reach)
        weights /= weights.sum()
        padded = np.concatenate([np.broadcast_to(longrun, (reach, *longrun.shape)), squares])
        columns = padded.reshape(len(padded), -1).T
        smooth = np.stack([np.convolve(column, weights, mode="valid") for column in columns], axis=-1)
        variance = smooth.reshape(-1, *longrun.shape)
        return np.sqrt(np.maximum(variance, self.floor**2 * longrun))

    def brought_to_today(self, returns: Array) -> Array:
        """[T] factors that scale each of the days of a series [T] to the volatility after its last."""
        known = self.of(returns)
        return np.divide(known[-1], known[:-1], out=np.ones(len(returns)), where=known[:-1] > 0.0)
