"""Statistics across seeds (Agarwal et al., 2021, the measures of `rliable`): what a handful of runs can tell.

Scores come by stratum, a CMDP or a task: stratum → one score per run. All intervals are percentile intervals of a
stratified bootstrap: the runs of every stratum are drawn with replacement. Where a stratum has fewer than three runs
(random CMDPs with one run each) whole strata are drawn instead, and where there are fewer than three strata as well
there is no interval. With few runs an interval is too narrow rather than too wide, and where all runs agree it has no
width at all, so a comparison also has a p-value over permutations of the labels (`Comparison.chance`).

A bootstrap draw is a weight per run, so that every measure below is a few products of arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Scores = Mapping[str, Sequence[float]]
"""Stratum → one score per run."""

FEWEST = 3
"""Runs of a stratum, or strata, from which on they are resampled."""
LEVEL = 0.95
DRAWS = 2000
_PERMUTATIONS = 20_000
"""Up to so many permutations of the labels are enumerated; of more, so many are drawn."""


@dataclass(frozen=True)
class Estimate:
    """A figure over runs."""

    value: float
    low: float | None
    """where its interval begins; None if the runs are too few for one"""
    high: float | None


@dataclass(frozen=True)
class Comparison:
    """P(X > Y) over pairs of runs of the same stratum, a tie counting half."""

    better: str
    worse: str
    figure: str
    probability: Estimate
    pairs: int
    """each run of X with each run of Y of its stratum; with one run each, the two that began alike"""
    chance: float
    """p-value: share of permutations of the labels within strata that give as high a probability"""
    chance_below: float
    """the same for as low a one"""
    least_chance: float
    """that of complete separation: how much so few runs could show at best"""


@dataclass(frozen=True)
class Violation:
    """One constraint while one run learns."""

    share: float
    """of its iterations whose policy is beyond the bound"""
    depth: float
    """mean distance beyond it, over these; 0 if there are none"""
    worst: float
    """largest distance"""

    @classmethod
    def of(cls, excess: Iterable[float]) -> Violation | None:
        """Of distances beyond the bound, 0 inside it, one per iteration; None if there is none.

        >>> Violation.of([0.0, 1.0, 3.0, 0.0])
        Violation(share=0.5, depth=2.0, worst=3.0)
        """
        values = np.fromiter(excess, dtype=np.float64)
        if not len(values):
            return None
        beyond = values[values > 0]
        depth = float(beyond.mean()) if len(beyond) else 0.0
        return cls(len(beyond) / len(values), depth, float(values.max(initial=0.0)))


@dataclass(frozen=True)
class Violations:
    """One constraint over runs, as a distribution."""

    share: Estimate
    """the mean of the runs' shares, which no bad run is trimmed from"""
    quantiles: tuple[float, float, float, float, float]
    """of the runs' shares: least, lower quartile, median, upper quartile, most"""
    depth: float | None
    """mean distance beyond the bound in runs that went there; None if none did"""
    worst: float


def interquartile_mean(scores: Scores) -> Estimate:
    """The mean of the middle half of all runs, with its interval; a run at a quartile counts in part.

    >>> interquartile_mean({"task": [0.0, 1.0, 2.0, 9.0]}).value
    1.5
    """
    values, sizes = _flat(scores)
    return _estimate(_iqm(values, np.ones((1, len(values))))[0], _iqm, values, sizes)


def mean(scores: Scores) -> Estimate:
    """The plain mean of all runs, with its interval."""
    values, sizes = _flat(scores)
    return _estimate(float(values.mean()), _mean, values, sizes)


def optimality_gap(scores: Scores, optimum: float = 1.0) -> Estimate:
    """By how much runs fall short of the optimum on average; what lies beyond it makes up for nothing.

    >>> optimality_gap({"task": [0.5, 2.0]}).value
    0.25
    """
    values, sizes = _flat(scores)
    short = optimum - np.minimum(values, optimum)
    return _estimate(float(short.mean()), _mean, short, sizes)


def profile(scores: Scores, levels: Array) -> tuple[Array, Array | None, Array | None]:
    """Share of runs with a score above each level [n], and its band (None, None if the runs are too few for one)."""
    values, sizes = _flat(scores)
    above = (values[:, None] > levels).astype(np.float64)  # [runs, n]
    weights = _weights(sizes)
    if weights is None:
        return above.mean(0), None, None
    drawn = weights @ above / weights.sum(1, keepdims=True)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return above.mean(0), low, high


def compare(better: str, x: Scores, worse: str, y: Scores, figure: str = "score") -> Comparison | None:
    """How probably a run of X has a higher score than one of Y; None if no stratum has runs of both.

    Strata count alike. Both are resampled independently, within strata; where whole strata are drawn, X and Y stay
    together, so with one run each it is a paired comparison.
    """
    shared = [name for name in x if len(x[name]) and len(y.get(name, ()))]
    if not shared:
        return None
    ours = [np.asarray(x[name], dtype=np.float64) for name in shared]
    theirs = [np.asarray(y[name], dtype=np.float64) for name in shared]
    wins = [_wins(a, b) for a, b in zip(ours, theirs, strict=True)]
    value = float(np.mean([table.mean() for table in wins]))
    low = high = None
    drawn = _drawn_probability(wins)
    if drawn is not None:
        low, high = _interval(drawn)
    pairs = sum(table.size for table in wins)
    least = 1.0 / math.prod(math.comb(sum(table.shape), table.shape[0]) for table in wins)
    return Comparison(
        better, worse, figure, Estimate(value, low, high), pairs, *_permutation_shares(ours, theirs, value), least
    )


def violations(found: Mapping[str, Sequence[Violation]]) -> Violations | None:
    """Those of all runs, by stratum; None if there are none."""
    runs = [each for stratum in found.values() for each in stratum]
    if not runs:
        return None
    shares = {name: [each.share for each in stratum] for name, stratum in found.items()}
    least, lower, median, upper, most = np.quantile([each.share for each in runs], [0, 0.25, 0.5, 0.75, 1]).tolist()
    depths = [each.depth for each in runs if each.share > 0]
    return Violations(
        share=mean(shares),
        quantiles=(least, lower, median, upper, most),
        depth=float(np.mean(depths)) if depths else None,
        worst=max(each.worst for each in runs),
    )


def _flat(scores: Scores) -> tuple[Array, list[int]]:
    """All runs one after the other, and how many each stratum has."""
    strata = [np.asarray(each, dtype=np.float64) for each in scores.values() if len(each)]
    return np.concatenate(strata), [len(each) for each in strata]


def _weights(sizes: Sequence[int]) -> Array | None:
    """[draws, runs] how often each run is drawn; None if there are too few of them."""
    rng = np.random.default_rng(0)
    if min(sizes) >= FEWEST:
        return np.concatenate([_multinomial(rng, size) for size in sizes], axis=1)
    if len(sizes) >= FEWEST:
        return np.repeat(_multinomial(rng, len(sizes)), sizes, axis=1)
    return None


def _multinomial(rng: np.random.Generator, size: int) -> Array:
    return rng.multinomial(size, np.full(size, 1 / size), DRAWS).astype(np.float64)


def _estimate(
    value: float, statistic: Callable[[Array, Array], Array], values: Array, sizes: Sequence[int]
) -> Estimate:
    weights = _weights(sizes)
    if weights is None:
        return Estimate(float(value), None, None)
    return Estimate(float(value), *_interval(statistic(values, weights)))


def _interval(drawn: Array) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _mean(values: Array, weights: Array) -> Array:
    return np.asarray(weights @ values / weights.sum(1))


def _iqm(values: Array, weights: Array) -> Array:
    """[draws] of values [runs] with weights [draws, runs]: what of each run's mass lies between the quartiles."""
    order = np.argsort(values, kind="stable")
    mass = weights[:, order] / weights.sum(1, keepdims=True)
    upto = np.cumsum(mass, axis=1)
    kept = np.clip(upto, 0.25, 0.75) - np.clip(upto - mass, 0.25, 0.75)
    return np.asarray(kept @ values[order] / kept.sum(1))


def _wins(ours: Array, theirs: Array) -> Array:
    """[n, m] 1 where ours is higher, a half where both are equal."""
    return (ours[:, None] > theirs) + 0.5 * (ours[:, None] == theirs)


def _drawn_probability(wins: Sequence[Array]) -> Array | None:
    """[draws] of P(X > Y); `wins` [n, m] by stratum."""
    rng = np.random.default_rng(0)
    if min(min(table.shape) for table in wins) >= FEWEST:
        drawn = []
        for table in wins:
            ours, theirs = _multinomial(rng, table.shape[0]), _multinomial(rng, table.shape[1])
            drawn.append(((ours @ table) * theirs).sum(1) / table.size)
        return np.asarray(np.mean(drawn, axis=0))
    if len(wins) >= FEWEST:
        means = np.array([table.mean() for table in wins])
        return _mean(means, _multinomial(rng, len(wins)))
    return None


def _permutation_shares(ours: Sequence[Array], theirs: Sequence[Array], value: float) -> tuple[float, float]:
    """Shares of permutations of the labels within strata that give a probability at least as high, and as low."""
    counts = [math.comb(len(a) + len(b), len(a)) for a, b in zip(ours, theirs, strict=True)]
    rng = np.random.default_rng(0)
    every = math.prod(counts) <= _PERMUTATIONS
    shares = np.zeros(1 if every else _PERMUTATIONS)
    for a, b in zip(ours, theirs, strict=True):
        table, count = _wins(both := np.concatenate([a, b]), both), len(a)
        if every:
            assignments = np.zeros((math.comb(len(both), count), len(both)))
            for row, members in enumerate(itertools.combinations(range(len(both)), count)):
                assignments[row, list(members)] = 1.0
        else:
            places = rng.permuted(np.tile(np.arange(len(both)), (_PERMUTATIONS, 1)), axis=1)
            assignments = (places < count).astype(np.float64)
        share = ((assignments @ table) * (1.0 - assignments)).sum(1) / (len(a) * len(b) * len(counts))
        shares = (shares[:, None] + share).ravel() if every else shares + share
    extra = 0 if every else 1  # among assignments that are drawn the observed one counts as well
    close = 1e-9
    total = len(shares) + extra
    return (
        float((np.count_nonzero(shares >= value - close) + extra) / total),
        float((np.count_nonzero(shares <= value + close) + extra) / total),
    )
