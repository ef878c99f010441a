"""Every risk measure, with functions and a measure of a user's own, and small distributions to try them on."""

from typing import Literal

import pytest
import torch
from torch import Tensor

from portfolio_sdpo.risk import (
    BadStateProbability,
    Custom,
    CustomDistortion,
    CVaR,
    Entropic,
    Expectation,
    MeanSemideviation,
    Power,
    RiskMeasure,
    Spectral,
    Variance,
    Wang,
)


def variance_twin(values: Tensor, weights: Tensor) -> Tensor:
    return (weights * values.square()).sum(-1) - (weights * values).sum(-1).square()


def square_root(tau: Tensor) -> Tensor:
    return tau.sqrt()


def expected_worst_of_two(tau: Tensor) -> Tensor:
    return 1 - (1 - tau).square()


class Spread(RiskMeasure):
    """A researcher's own measure: mean absolute deviation."""

    kind: Literal["test-spread"] = "test-spread"

    def evaluate(self, values: Tensor, weights: Tensor) -> Tensor:
        return (weights * (values - (weights * values).sum(-1, keepdim=True)).abs()).sum(-1)


MEASURES = [
    Expectation(),
    BadStateProbability(),
    CVaR(alpha=0.25),
    CVaR(alpha=0.5, tail="upper"),
    Variance(),
    Entropic(beta=-0.5),
    Entropic(beta=0.25),
    Spectral(distortion=Wang(shift=0.5)),
    Spectral(distortion=Wang(shift=-0.5)),
    Spectral(distortion=Power(exponent=2)),
    Spectral(distortion=Power(exponent=0.5)),
    Spectral(distortion=CustomDistortion(function=expected_worst_of_two)),
    Spectral(distortion=CustomDistortion(function=square_root)),
    MeanSemideviation(weight=0.5),
    MeanSemideviation(weight=0.5, order=2),
    MeanSemideviation(weight=1, order=2, tail="upper"),
    Custom(function=variance_twin),
    Spread(),
]
DISPERSIONS = (Variance, Custom, Spread)  # 0 for a constant, where the others give the constant
every_measure = pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.label)


def tensor(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def random_distribution(atoms: int = 23, distributions: tuple[int, ...] = (), seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values = 2 * torch.randn(*distributions, atoms, generator=generator, dtype=torch.float64) + 1
    weights = torch.rand(*distributions, atoms, generator=generator, dtype=torch.float64) + 0.1
    return values, weights / weights.sum(-1, keepdim=True)


def mean_of(values: Tensor, weights: Tensor) -> Tensor:
    return (weights * values).sum(-1)


VALUES, WEIGHTS = tensor(4, -2, 1, 0), tensor(0.4, 0.1, 0.3, 0.2)
