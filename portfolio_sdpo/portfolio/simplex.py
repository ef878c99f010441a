"""Weights on the simplex: the check that every decision passes, and the gymnasium space of such vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from portfolio_sdpo.errors import WeightsError

Array = NDArray[np.float64]

TOLERANCE = 1e-6
"""How far weights may be from the simplex: the rounding of single precision, not a wrong portfolio."""


def on_simplex(weights: ArrayLike, shape: tuple[int, ...]) -> Array:
    """The weights [..., A] in double precision, their rounding error taken off; anything else is a `WeightsError`.

    >>> on_simplex([0.5, 0.6], (2,))
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
        raise _complaint(np.asarray(weights, dtype=np.float64))
    return array / total[..., None]


def _complaint(weights: Array) -> WeightsError:
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
        """Whether `on_simplex` takes it."""
        try:
            on_simplex(x, self.shape)
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
