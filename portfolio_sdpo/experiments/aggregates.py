"""One figure over several runs or seeds: its spread, and the interval of its mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
"""Of the interval of a mean."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over runs."""

    mean: float
    sd: float | None
    """sample standard deviation; None for a single run"""

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """The spread of the values that are there; None if there are none.

        >>> Spread.of([1.0, 3.0])
        Spread(mean=2.0, sd=1.4142135623730951)
        """
        numbers = [value for value in values if value is not None]
        if not numbers:
            return None
        return cls(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None)


@dataclass(frozen=True)
class MeanInterval:
    """Mean over seeds with Student's interval at 95 %, and the range of the seeds."""

    mean: float
    low: float | None
    """lower end of the interval of the mean; None for fewer than two seeds"""
    high: float | None
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> MeanInterval | None:
        """None if there is nothing to average, or a value is not defined.

        >>> interval = MeanInterval.of([1.0, 2.0, 3.0])
        >>> interval.mean, round(interval.low, 3), round(interval.high, 3)
        (2.0, -0.484, 4.484)
        """
        numbers = list(values)
        if not numbers or any(value is None or not math.isfinite(value) for value in numbers):
            return None
        array = np.array(numbers, dtype=np.float64)
        mean, low, high = float(array.mean()), None, None
        if len(array) > 1:
            from scipy.stats import t

            half = float(t.ppf(0.5 + LEVEL / 2, len(array) - 1) * array.std(ddof=1) / math.sqrt(len(array)))
            low, high = mean - half, mean + half
        return cls(mean, low, high, float(array.min()), float(array.max()))
