"""What "safe" means: risk measures, constraints on them, and the barrier that keeps a policy inside."""

from portfolio_sdpo.risk.constraint import Barrier, Constraint, EtaSchedule, Regime, Sense, suboptimality_bound
from portfolio_sdpo.risk.influence import ClosedForm, Influence, PiecewiseLinear, Quadratic
from portfolio_sdpo.risk.measures import (
    BadStateProbability,
    Custom,
    CVaR,
    Entropic,
    Expectation,
    MeanSemideviation,
    Measure,
    RiskMeasure,
    Tail,
    Variance,
)
from portfolio_sdpo.risk.spectral import CustomDistortion, Distortion, Power, Spectral, Wang

__all__ = [
    "BadStateProbability",
    "Barrier",
    "CVaR",
    "ClosedForm",
    "Constraint",
    "Custom",
    "CustomDistortion",
    "Distortion",
    "Entropic",
    "EtaSchedule",
    "Expectation",
    "Influence",
    "MeanSemideviation",
    "Measure",
    "PiecewiseLinear",
    "Power",
    "Quadratic",
    "Regime",
    "RiskMeasure",
    "Sense",
    "Spectral",
    "Tail",
    "Variance",
    "Wang",
    "suboptimality_bound",
]
