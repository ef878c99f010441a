"""What weights may be: on the simplex, and within limits.

Whatever a strategy or a policy asks for, what is traded is long-only, listed, sums to one and is within the limits.
What a user says that they hold is checked in the same way (`read_held`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, field_validator

from portfolio_sdpo.common.numbers import share
from portfolio_sdpo.errors import SettingsError, WeightsError, did_you_mean
from portfolio_sdpo.portfolio.accounting import rebalance
from portfolio_sdpo.portfolio.market import CASH, Array, all_cash
from portfolio_sdpo.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

Mask = NDArray[np.bool_]

TOLERANCE = 1e-6
"""How far weights may be from the simplex: the rounding of single precision, not a wrong portfolio."""
TINY = 1e-300
"""Keeps a turnover of zero from dividing by it."""


class GroupLimit(Settings):
    """Stocks that together have a largest weight, such as those of one industry."""

    name: str = Field(min_length=1)
    tickers: tuple[str, ...] = Field(min_length=1)
    max_weight: float = Field(gt=0.0, le=1.0)
    """Largest weight of all of them together right after a trade."""


class Limits(Settings):
    """Bounds on what one decision may do; None = no bound.

    Caps on stocks and groups take what is above them to cash, which has no cap, so no two of them contradict each
    other, and a portfolio within them stays within them when the shield scales it towards cash.
    """

    max_weight: float | None = Field(default=None, gt=0.0, le=1.0)
    """Largest weight of a stock right after a trade; cash has no limit."""
    max_turnover: float | None = Field(default=None, ge=0.0)
    """Largest turnover of one decision, counted as in `accounting.turnover` (switching everything is 2)."""
    groups: tuple[GroupLimit, ...] = ()
    """Groups of stocks with a largest weight each; a stock may be in several."""

    added_later = frozenset({"groups"})

    @field_validator("groups")
    @classmethod
    def _are_told_apart(cls, groups: tuple[GroupLimit, ...]) -> tuple[GroupLimit, ...]:
        names = [group.name for group in groups]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"the group {twice} is there twice; join both")
        return groups

    @property
    def caps(self) -> Limits:
        """Those that do not depend on what is held: without the limit on turnover."""
        return self if self.max_turnover is None else self.model_copy(update={"max_turnover": None})

    def describe(self) -> str:
        """What they are, in words; empty where there are none.

        >>> tech = GroupLimit(name="tech", tickers=("A", "B"), max_weight=0.4)
        >>> Limits(max_weight=0.25, max_turnover=0.5, groups=[tech]).describe()
        'at most 25\\xa0% in a stock, at most 40\\xa0% in tech, turnover of at most 50\\xa0% at a decision'
        """
        parts = [] if self.max_weight is None else [f"at most {share(self.max_weight)} in a stock"]
        parts += [f"at most {share(group.max_weight)} in {group.name}" for group in self.groups]
        if self.max_turnover is not None:
            parts.append(f"turnover of at most {share(self.max_turnover)} at a decision")
        return ", ".join(parts)

    def tighten(self, other: Limits) -> Limits:
        """Both at once.

        >>> Limits(max_weight=0.4).tighten(Limits(max_weight=0.3, max_turnover=0.5)).model_dump(exclude={"groups"})
        {'max_weight': 0.3, 'max_turnover': 0.5}
        """
        return Limits(
            max_weight=_find_tighter(self.max_weight, other.max_weight),
            max_turnover=_find_tighter(self.max_turnover, other.max_turnover),
            groups=_join_groups(self.groups, other.groups),
        )

    def check(self, assets: Sequence[str]) -> None:
        """Refuse groups with a ticker that is not among the assets: a misspelt one would go without its limit."""
        self.find_columns(assets)

    def find_columns(self, assets: Sequence[str]) -> tuple[NDArray[np.intp], ...]:
        """The columns of each group's stocks, where CASH is the first of the assets."""
        return _find_columns(self.groups, tuple(assets))

    def apply(
        self,
        target: Array,
        held: Array,
        listed: Mask | None = None,
        fee: float = 0.0,
        assets: Sequence[str] = (),
    ) -> Array:
        """The weights [..., A] that are traded for when `target` is asked for; all arrays are [..., A].

        Weight on unlisted stocks (None: all are listed) and weight above a cap go to cash; then a trade beyond the
        turnover limit is carried out in part, every order by the same share. The turnover limit comes last and
        wins: a stock that drifted above its cap may take several sessions to come back under it.
        assets: names of the columns, which limits of groups need.

        >>> Limits(max_weight=0.4).apply(np.array([0.0, 0.7, 0.3]), np.array([1.0, 0.0, 0.0])).round(6).tolist()
        [0.3, 0.4, 0.3]
        """
        if self.max_turnover is None:
            return self.cap(target, listed, assets)
        return self.execute(target, held, listed, fee, assets)[0]

    def execute(
        self,
        target: Array,
        held: Array,
        listed: Mask | None = None,
        fee: float = 0.0,
        assets: Sequence[str] = (),
    ) -> tuple[Array, Array, Array]:
        """`apply` and, of the trade that follows, what `trade` and `turnover` say [...]."""
        target = self.cap(target, listed, assets)
        kept, traded = rebalance(held, target, fee)
        if self.max_turnover is None or not np.count_nonzero(traded > self.max_turnover):
            return target, kept, traded
        share = np.where(traded > self.max_turnover, self.max_turnover / np.maximum(traded, TINY), 1.0)
        # Orders scaled by that share leave (1 − share) · held + share · kept · target, in units of the wealth before.
        left = 1.0 - share + share * kept
        partly = held + (share * kept / left)[..., None] * (target - held)
        return np.where((share < 1.0)[..., None], partly, target), left, share * traded

    def cap(self, target: Array, listed: Mask | None = None, assets: Sequence[str] = ()) -> Array:
        """The target [..., A] with what is unlisted or above a cap in cash; weights within the caps are unchanged.

        A stock above its cap gets the cap, and then the stocks of a group above its cap are scaled by one factor.

        >>> tech = GroupLimit(name="tech", tickers=("A", "B"), max_weight=0.5)
        >>> Limits(groups=[tech]).cap(np.array([0.0, 0.6, 0.2, 0.2]), assets=("CASH", "A", "B", "C")).round(6).tolist()
        [0.3, 0.375, 0.125, 0.2]
        """
        allowed = target
        if listed is not None and np.count_nonzero(listed) < listed.size:
            allowed = np.where(listed, target, 0.0)
        if self.max_weight is not None:
            allowed = np.minimum(allowed, self.max_weight)
        for group, columns in zip(self.groups, self.find_columns(assets), strict=True):
            together = np.add.reduce(allowed[..., columns], axis=-1)
            if np.count_nonzero(together > group.max_weight):
                if allowed is target:
                    allowed = target.copy()
                # A little less, so that rounding leaves no sum above the cap, and a second time nothing changes.
                cut = group.max_weight / np.maximum(together, TINY) * (1.0 - len(columns) * np.finfo(float).eps)
                allowed[..., columns] *= np.where(together > group.max_weight, cut, 1.0)[..., None]
        if allowed is not target:
            allowed[..., 0] = target[..., 0] + np.add.reduce(target[..., 1:] - allowed[..., 1:], axis=-1)
        return allowed


def _find_tighter(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


def _join_groups(ours: tuple[GroupLimit, ...], theirs: tuple[GroupLimit, ...]) -> tuple[GroupLimit, ...]:
    """Both limits of a group that has two, under names that differ."""
    names = {group.name for group in ours}
    joined = [*ours]
    for group in theirs:
        if group not in ours:
            name = f"{group.name} (2)" if group.name in names else group.name
            joined.append(group.model_copy(update={"name": name}))
    return tuple(joined)


@lru_cache(maxsize=64)
def _find_columns(groups: tuple[GroupLimit, ...], assets: tuple[str, ...]) -> tuple[NDArray[np.intp], ...]:
    """The columns of each group's stocks."""
    found = []
    for group in groups:
        strange = next((ticker for ticker in group.tickers if ticker == CASH or ticker not in assets), None)
        if strange is not None:
            stocks = assets[1:]
            raise SettingsError(
                f"groups: {strange} of the group {group.name} is not among the prices' {len(stocks)} stocks"
                f"{did_you_mean(strange, stocks)}; correct it or leave it out of the groups."
            )
        found.append(np.array([assets.index(ticker) for ticker in group.tickers]))
    return tuple(found)


def check_weights(weights: ArrayLike, shape: tuple[int, ...]) -> Array:
    """The weights [..., A] in double precision, their rounding error taken off; anything else is a `WeightsError`.

    >>> check_weights([0.5, 0.6], (2,))
    Traceback (most recent call last):
        ...
    portfolio_sdpo.errors.WeightsError: weights sum to 1.1: they must sum to one over CASH and the stocks.
    """
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise WeightsError("weights are not numbers: give one number for CASH and one for every stock.") from None
    if array.shape != shape:
        raise WeightsError(f"weights have shape {array.shape}: it must be {shape}, CASH first and then every stock.")
    least = np.minimum.reduce(array, axis=None)
    if least < 0.0:
        array = np.maximum(array, 0.0)
    total = np.add.reduce(array, axis=-1)
    # In this direction, so that NaN fails too.
    if not (least >= -TOLERANCE and np.count_nonzero(np.abs(total - 1.0) <= TOLERANCE) == total.size):
        raise _explain(np.asarray(weights, dtype=np.float64))
    return array / total[..., None]


def _explain(weights: Array) -> WeightsError:
    """What is wrong with the first bad vector."""
    if not np.isfinite(weights).all():
        return WeightsError("weights are not finite: give numbers between 0 and 1 that sum to one.")
    if weights.min() < -TOLERANCE:
        return WeightsError(
            f"weights reach down to {weights.min():.6g}: portfolios are long-only, so none may be negative."
        )
    totals = weights.sum(axis=-1).ravel()
    worst = totals[np.abs(totals - 1.0).argmax()]
    return WeightsError(f"weights sum to {worst:.8g}: they must sum to one over CASH and the stocks.")


class Simplex(spaces.Box):
    """Boxes [..., A] between 0 and 1 whose last axis sums to one; samples are uniform on the simplex."""

    simplex = True
    """By this policies know the space: their head gives weights."""

    def __init__(self, shape: tuple[int, ...], seed: int | np.random.Generator | None = None) -> None:
        super().__init__(0.0, 1.0, shape, np.float64, seed=seed)

    def sample(self, mask: None = None, probability: None = None) -> Array:
        """A draw from the flat Dirichlet distribution."""
        weights = self.np_random.standard_exponential(self.shape)
        return weights / weights.sum(axis=-1, keepdims=True)

    def contains(self, x: Any) -> bool:
        """Whether `check_weights` takes it."""
        try:
            check_weights(x, self.shape)
        except WeightsError:
            return False
        return True

    def __repr__(self) -> str:
        return f"Simplex{self.shape}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Simplex) and self.shape == other.shape

    __hash__ = None  # type: ignore[assignment]  # as gymnasium's Box


@batch_space.register(Simplex)
def _batch(space: Simplex, n: int = 1) -> Simplex:
    return Simplex((n, *space.shape), seed=np.random.default_rng(space.np_random.integers(2**63)))


def read_held(held: Mapping[str, float] | pd.Series | None, assets: tuple[str, ...]) -> Array:
    """[A] what is held, from shares of wealth by ticker; `CASH` is what remains unless it is given.

    >>> read_held({"MSFT": 0.4}, ("CASH", "AAPL", "MSFT")).tolist()
    [0.6, 0.0, 0.4]
    """
    if held is None:
        return all_cash(len(assets))
    shares = {str(name): share for name, share in dict(held).items()}
    strange = next((name for name in shares if name not in assets), None)
    if strange is not None:
        raise WeightsError(
            f"held: there is no {strange}{did_you_mean(strange, assets)}; there are {', '.join(assets)}."
        )
    try:
        weights = np.array([float(shares.get(asset, 0.0)) for asset in assets])
    except (TypeError, ValueError):
        raise WeightsError("held: every share must be a number, such as 0.25 for a quarter of the wealth.") from None
    if CASH not in shares:
        weights[0] = 1.0 - weights[1:].sum()
    try:
        return check_weights(weights, weights.shape)
    except WeightsError as error:
        raise WeightsError(f"held: {error}") from None
