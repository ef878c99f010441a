"""What an episode replays: price paths that are known at a day t and hold nothing from after it.

`window_paths` replays the last sessions as they were, as the paper does. `bootstrap_paths` draws new paths from
trailing history by the stationary block bootstrap (Politis and Romano 1994): whole days are drawn, all assets together,
so that their correlation survives, and in blocks, so that calm and volatile weeks do. With `filtered` every day is
first scaled to today's volatility, so that the paths are as volatile as the market is now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.errors import HistoryError, SettingsError
from portfolio_sdpo.portfolio.market import Array, Day, Market, Mask
from portfolio_sdpo.portfolio.return_measures import Volatility

Rows = NDArray[np.int64]
Seed = int | np.random.SeedSequence | np.random.Generator
ScenarioKind = Literal["window", "bootstrap"]

COVERAGE = 0.5
"""Share of the trailing history that a stock's present listing must cover to take part in bootstrapped paths."""


@dataclass(frozen=True, eq=False)
class Paths:
    """P distinct price paths of L decisions: row l is seen at decision l, row l+1 is earned by it."""

    gross_returns: Array
    """[P, L+1, A]"""
    listed: Mask
    """[P, L+1, A]"""
    days: Rows | None = None
    """[P, L+1] session of the market that each row is, where it comes from one."""

    def __post_init__(self) -> None:
        shape = self.gross_returns.shape
        if len(shape) != 3 or shape != self.listed.shape or shape[0] < 1 or shape[1] < 2 or shape[2] < 2:
            raise SettingsError(
                f"Paths: gross_returns {shape} and listed {self.listed.shape} must be [paths, decisions + 1, cash and "
                "stocks], with at least one of each."
            )
        if not (np.isfinite(self.gross_returns) & (self.gross_returns >= 0.0)).all():
            raise SettingsError("Paths.gross_returns: must be finite and not negative.")
        if not self.listed[..., 0].all() or (self.gross_returns[~self.listed] != 1.0).any():
            raise SettingsError("Paths.listed: cash is always listed, and a stock that is not has the gross return 1.")

    def __len__(self) -> int:
        return len(self.gross_returns)

    @property
    def length(self) -> int:
        """Decisions in a path, L."""
        return int(self.gross_returns.shape[1]) - 1

    @property
    def assets(self) -> int:
        """Cash and stocks, A."""
        return int(self.gross_returns.shape[2])


def window_paths(market: Market, t: int, window: int) -> Paths:
    """One path: the growth of the last `window` sessions up to and including t, as it was."""
    _check_window(window)
    known = market.until(t)
    if t < window:
        raise HistoryError(
            f"a window of {window} sessions needs {window + 1} closes and there are {t + 1} up to {known.dates[-1]}: "
            "start later or shorten the window."
        )
    if not known.listed[-1, 1:].any():
        raise HistoryError(f"no stock is listed on {known.dates[-1]}: choose another day.")
    days = np.arange(t - window, t + 1)[None]
    return Paths(known.gross_returns[days], known.listed[days], days)


def bootstrap_paths(
    market: Market,
    t: int,
    window: int,
    count: int,
    block: float | None = None,
    seed: Seed = 0,
    history: int | None = None,
    coverage: float = COVERAGE,
    filtered: Volatility | None = None,
    shrink: float = 0.0,
) -> Paths:
    """`count` paths of `window` decisions from the last `history` sessions up to and including t (None: from all).

    A stock takes part if it is listed at t and its present listing covers at least `coverage` of that history and one
    window; it is unlisted in the paths otherwise. The days drawn from are those since the youngest stock that takes
    part was listed, so every row is a true day of them all. `block` is the mean block length (None: `block_length`).
    With `filtered` rows are those days, scaled to the volatility at t (`scale_to_current_volatility`). `shrink` pulls
    every stock's mean growth towards that of the average stock by this share: past winners owe much of theirs to luck.
    """
    if count < 1:
        raise SettingsError(f"count: needs at least one path (got {count}).")
    source = Resample.of(market, t, window, block, history, coverage, filtered, shrink)
    rng = np.random.default_rng(seed)
    rows = source.draw(rng, source.choose(rng, count))
    return Paths(source.gross_returns[rows], source.listed[rows], rows + source.first)


def block_length(moves: Array) -> float:
    """Mean block length for gross returns [n, stocks] by the rule of Politis and White (2004), at least 1.

    Applied to the absolute growth of the equally weighted stocks: returns hardly depend on yesterday's, their size
    does, and that is what makes a bad fortnight.
    """
    try:
        return politis_white(np.abs(np.log(moves.mean(axis=1))))
    except ModuleNotFoundError:
        raise SettingsError(
            "block: choosing it needs arch; give a number or install portfolio_sdpo[backtest]."
        ) from None


def politis_white(series: Array) -> float:
    """The mean block length that the rule chooses for a series [n]; 1 where it is too short or too flat to say."""
    from arch.bootstrap import optimal_block_length

    # The rule divides by the variance and looks five lags ahead.
    if len(series) < 10 or np.ptp(series) < 1e-12:
        return 1.0
    with np.errstate(all="ignore"):  # where autocovariances cancel out there is no best length
        best = float(optimal_block_length(series)["stationary"].iloc[0])
    return min(max(best, 1.0), float(len(series))) if np.isfinite(best) else 1.0


def scale_to_current_volatility(gross_returns: Array, volatility: Volatility) -> Array:
    """Gross returns [n, stocks] with each day's log growth scaled from the volatility known before it to the one now.

    The volatility is that of the equally weighted stocks, so that a day's stocks are scaled alike and their correlation
    survives. Every stock keeps its mean log growth: volatility changes how far prices move, not where to.
    """
    growth = np.log(gross_returns)
    mean = growth.mean(axis=0)
    scaled = (growth - mean) * volatility.scale_to_today(gross_returns.mean(axis=1) - 1.0)[:, None]
    return np.exp(scaled - scaled.mean(axis=0) + mean)


def stationary_rows(starts: Rows, uniform: Array, block: float, days: int) -> Rows:
    """[count, n] days 0 … days−1: day after day, from the last on to the first, and from `starts` where u ≤ 1/block."""
    place = np.arange(starts.shape[1])
    starts_block = uniform <= 1.0 / block
    starts_block[:, 0] = True
    latest = np.maximum.accumulate(np.where(starts_block, place, 0), axis=1)
    return (np.take_along_axis(starts, latest, axis=1) + place - latest) % days


@dataclass(frozen=True, eq=False)
class Replay:
    """Consecutive rows of a table of days: given paths, or every window of a stretch of the market."""

    gross_returns: Array
    """[R, A]"""
    listed: Mask
    """[R, A]"""
    length: int
    """Decisions in an episode, L."""
    firsts: Rows
    """[P] row at which each path starts."""

    @classmethod
    def of_paths(cls, paths: Paths) -> Replay:
        rows = len(paths) * (paths.length + 1)
        table = paths.gross_returns.reshape(rows, paths.assets), paths.listed.reshape(rows, paths.assets)
        return cls(*table, paths.length, np.arange(len(paths)) * (paths.length + 1))

    @classmethod
    def of_market(cls, market: Market, window: int | None) -> Replay:
        """Every stretch of `window` decisions; None: the whole market is one."""
        length = len(market) - 1 if window is None else _check_window(window)
        if length < 1 or len(market) < length + 1:
            raise HistoryError(
                f"an episode of {max(length, 1)} decisions needs {max(length, 1) + 1} sessions and there are "
                f"{len(market)} between start and end: move them apart or shorten the window."
            )
        if not market.listed[:, 1:].any():
            raise HistoryError(f"no stock is listed from {market.dates[0]} to {market.dates[-1]}: choose other days.")
        return cls(market.gross_returns, market.listed, length, np.arange(len(market) - length))

    @property
    def paths(self) -> int:
        """How many distinct paths there are to choose from by number."""
        return len(self.firsts)

    def choose(self, rng: np.random.Generator, count: int) -> Rows:
        """[count] numbers of paths: every path ⌊count / P⌋ times, the rest without repetition, in random order."""
        if count == 1:
            return rng.integers(self.paths, size=1)
        rounds, rest = divmod(count, self.paths)
        chosen = rng.choice(self.paths, rest, replace=False)
        if not rounds:
            return chosen
        return rng.permutation(np.concatenate([np.tile(np.arange(self.paths), rounds), chosen]))

    def draw(self, rng: np.random.Generator, chosen: Rows) -> Rows:
        """[count, L+1] rows of the episodes with these numbers."""
        return self.firsts[chosen][:, None] + np.arange(self.length + 1)


@dataclass(frozen=True, eq=False)
class Resample:
    """Stationary block bootstrap of a table of days, a new path for every episode."""

    gross_returns: Array
    """[R, A]"""
    listed: Mask
    """[R, A]"""
    length: int
    """Decisions in an episode, L."""
    block: float
    """Mean length of a block."""
    first: int
    """Session of the market that the table's row 0 is."""

    @classmethod
    def of(
        cls,
        market: Market,
        t: int,
        window: int,
        block: float | None = None,
        history: int | None = None,
        coverage: float = COVERAGE,
        filtered: Volatility | None = None,
        shrink: float = 0.0,
    ) -> Resample:
        """The days and stocks that `bootstrap_paths` describes."""
        length = _check_window(window)
        if block is not None and not 1.0 <= block < np.inf:
            raise SettingsError(f"block: a mean length must be at least 1 (got {block}).")
        if not 0.0 <= coverage <= 1.0:
            raise SettingsError(f"coverage: must be between 0 and 1 (got {coverage}).")
        if not 0.0 <= shrink <= 1.0:
            raise SettingsError(f"shrink: must be between 0 and 1 (got {shrink}).")
        first, joined = _trailing(market.until(t), length, history, coverage)
        listed = np.broadcast_to(joined, (t + 1 - first, len(joined)))
        gross_returns = np.where(joined, market.gross_returns[first : t + 1], 1.0)
        stocks = np.flatnonzero(joined)[1:]
        if filtered is not None:
            gross_returns[:, stocks] = scale_to_current_volatility(gross_returns[:, stocks], filtered)
        if shrink:
            mean = np.log(gross_returns[:, stocks]).mean(axis=0)
            gross_returns[:, stocks] *= np.exp(shrink * (mean.mean() - mean))
        mean = block_length(gross_returns[:, joined][:, 1:]) if block is None else float(block)
        return cls(gross_returns, listed, length, mean, first)

    @property
    def paths(self) -> int:
        """None has a number: every episode is a new draw."""
        return 0

    def choose(self, rng: np.random.Generator, count: int) -> Rows:
        """[count] times no number, −1."""
        return np.full(count, -1)

    def draw(self, rng: np.random.Generator, chosen: Rows) -> Rows:
        """[count, L+1] rows of as many new episodes as there are `chosen`."""
        days, shape = len(self.gross_returns), (len(chosen), self.length + 1)
        return stationary_rows(rng.integers(days, size=shape), rng.random(shape), self.block, days)


Scenarios = Replay | Resample
"""A table of days, [R, A] each, and episodes as sequences of its rows."""


def scenarios_of(
    market: Market,
    kind: ScenarioKind,
    window: int | None,
    start: Day | None = None,
    end: Day | None = None,
    block: float | None = None,
) -> Scenarios:
    """Episodes of `window` decisions from the sessions between start and end, replayed as they were or bootstrapped."""
    first, last = market.span(start, end)
    if kind == "window":
        return Replay.of_market(market.between(start, end), window)
    if kind != "bootstrap":
        raise SettingsError(f"scenarios: must be 'window' or 'bootstrap' (got {kind!r}).")
    if window is None:
        raise SettingsError("window: bootstrapped episodes need a length.")
    return Resample.of(market, last, window, block, history=last - first + 1)


def _check_window(window: int) -> int:
    if window < 1:
        raise SettingsError(f"window: an episode needs at least one decision (got {window}).")
    return int(window)


def _trailing(known: Market, window: int, history: int | None, coverage: float) -> tuple[int, Mask]:
    """First day to draw from, and which assets [A] take part."""
    last = len(known) - 1
    if history is not None and history < window:
        raise HistoryError(f"a history of {history} sessions is shorter than the window of {window}: lengthen it.")
    # The first session of all has no gross return since the day before.
    first = 1 if history is None else max(1, last - history + 1)
    days = last - first + 1
    if days < window:
        raise HistoryError(
            f"a window of {window} sessions needs as many days of history and there are {days} up to "
            f"{known.dates[-1]}: start later or shorten the window."
        )
    if not known.listed[-1, 1:].any():
        raise HistoryError(f"no stock is listed on {known.dates[-1]}: choose another day.")
    # [days, A], latest first: there is a return since the day before, and the asset has been listed ever since.
    whole = (known.listed[first:] & known.listed[first - 1 : -1])[::-1]
    since = np.where(whole.all(axis=0), days, whole.argmin(axis=0))
    joined = since >= max(window, coverage * days)
    if not joined[1:].any():
        raise HistoryError(
            f"no stock listed on {known.dates[-1]} has been so for {max(window, coverage * days):.0f} sessions: "
            "start later, or shorten the window or the history."
        )
    return last - int(since[joined].min()) + 1, joined
