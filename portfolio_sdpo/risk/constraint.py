"""A safety constraint, rho(Y) within a bound, and the log barrier that keeps a policy inside it (eq. 13)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

import torch
from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator
from torch import Tensor

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk.measures import BadStateProbability, CVaR, MeanSemideviation, Measure, Variance
from portfolio_sdpo.risk.spec import parse
from portfolio_sdpo.settings import Settings

Sense = Literal["<=", ">="]
Scalar = TypeVar("Scalar", float, Tensor)

Regime = Literal["interior", "margin", "violated"]
"""Where a slack is: on the logarithm, on its tangent but inside the bound, or beyond the bound."""

LEAST_MARGIN = 1e-12
"""Below this, single precision could not tell the barrier's margin from 0."""


class EtaSchedule(Settings):
    """eta growing geometrically from `start` at iteration 0 to `end` at iteration `iterations`, and constant after it.

    Iterations of phase I, which has no barrier, do not count.

    >>> EtaSchedule(start=1, end=100, iterations=10).at(5)
    10.0
    """

    start: float = Field(gt=0)
    end: float = Field(gt=0)
    iterations: int = Field(ge=1)

    @field_validator("end")
    @classmethod
    def _grows(cls, end: float, info: ValidationInfo) -> float:
        if end < info.data.get("start", end):
            raise ValueError("must be at least start, since eta only grows")
        return end

    def at(self, iteration: int) -> float:
        """eta at that iteration."""
        elapsed = min(max(iteration / self.iterations, 0.0), 1.0)
        return float(self.start ** (1 - elapsed) * self.end**elapsed)


def _eta_form(eta: Any) -> str:
    return "_schedule" if isinstance(eta, dict | EtaSchedule) else "_number"


Eta = Annotated[
    Annotated[float, Field(gt=0), Tag("_number")] | Annotated[EtaSchedule, Tag("_schedule")], Discriminator(_eta_form)
]


class Constraint(Settings):
    """rho(Y) within a bound, Y the cumulated signal of an episode.

    >>> Constraint(signal="reward", measure=CVaR(alpha=0.1), bound=51, sense=">=").name
    'cvar[0.1] of reward >= 51'
    """

    signal: str = Field(pattern=r"^[^\s<>=]+$")
    """`reward`, or the name of a cost that the environment emits."""
    measure: Measure
    sense: Sense
    bound: float
    eta: Eta = 20.0
    """The barrier's weight is 1 / eta, in units of the objective (20 is the paper's for random CMDPs)."""
    discount: float | None = Field(default=None, gt=0, le=1, validate_default=True)
    """Discount of this signal's budget: 1 bounds the plain sum over the episode, None is the training discount."""
    margin: float | None = Field(default=None, ge=LEAST_MARGIN)
    """Slack below which the barrier continues as its tangent; None lets the trainer take it from the standard error."""
    confidence: float = Field(default=0.0, ge=0)
    """How many standard errors of the estimated risk are taken off the slack."""
    name: str = Field(default="", validate_default=True)
    """How logs call it; by default `measure of signal sense bound`."""

    @classmethod
    def from_spec(cls, spec: str) -> Self:
        """The constraint behind a compact sentence, as on the command line; the grammar is in `risk.spec`.

        >>> Constraint.from_spec("cvar(0.1) of reward >= 51 eta=30").eta
        30.0
        """
        return cls(**parse(spec))

    @field_validator("sense")
    @classmethod
    def _bounds_the_bad_side(cls, sense: Sense, info: ValidationInfo) -> Sense:
        match info.data.get("measure"):
            case Variance() | BadStateProbability() if sense == ">=":
                raise ValueError("must be '<=' for this measure, of which less is safer")
            case CVaR(tail="lower") | MeanSemideviation(tail="lower") if sense == "<=":
                raise ValueError("must be '>=' for the lower tail, so take that or measure.tail 'upper'")
            case CVaR(tail="upper") | MeanSemideviation(tail="upper") if sense == ">=":
                raise ValueError("must be '<=' for the upper tail, so take that or measure.tail 'lower'")
        return sense

    @field_validator("bound")
    @classmethod
    def _can_be_met(cls, bound: float, info: ValidationInfo) -> float:
        match info.data.get("measure"):
            case Variance() if bound <= 0:
                raise ValueError("must be positive, because no variance lies strictly below 0")
            case BadStateProbability() if not 0 < bound <= 1:
                raise ValueError("must be a probability above 0 and at most 1")
        return bound

    @field_validator("discount")
    @classmethod
    def _undiscounted_probability(cls, discount: float | None, info: ValidationInfo) -> float | None:
        if isinstance(info.data.get("measure"), BadStateProbability):
            if discount not in (None, 1):
                raise ValueError("must be 1, or left out, because a discounted sum is not a probability")
            return 1.0
        return discount

    @field_validator("name", mode="before")
    @classmethod
    def _derived_name(cls, name: str | None, info: ValidationInfo) -> str:
        given = info.data
        if name or not {"measure", "signal", "sense", "bound"} <= given.keys():
            return name or "?"
        return f"{given['measure'].label} of {given['signal']} {given['sense']} {given['bound']:.10g}"

    @property
    def sign(self) -> float:
        """+1 where more of the risk is worse (<=), -1 where less of it is (>=)."""
        return 1.0 if self.sense == "<=" else -1.0

    def slack(self, risk: Scalar, standard_error: Scalar | float = 0.0) -> Scalar:
        """How far inside the bound a risk `[...]` is, whatever the sense, less `confidence` standard errors of it."""
        inside = self.bound - risk if self.sense == "<=" else risk - self.bound
        # A confidence of 0 ignores the standard error even where it is infinite (a single episode).
        return inside - self.confidence * standard_error if self.confidence else inside

    def eta_at(self, iteration: int) -> float:
        """eta at that iteration, scheduled or not."""
        return self.eta.at(iteration) if isinstance(self.eta, EtaSchedule) else self.eta


def compute_slacks(constraints: Iterable[Constraint], risks: Iterable[float], errors: Iterable[float]) -> list[float]:
    """How far inside its bound each estimated risk is, given its standard error."""
    return [item.slack(risk, error) for item, risk, error in zip(constraints, risks, errors, strict=True)]


@dataclass(frozen=True)
class Barrier:
    """(1 / eta) ln(slack) from `margin` upwards (eq. 13 of the paper), below it the tangent at `margin`.

    The tangent's slope 1 / (eta margin) is the largest shadow price, and it leads back inside after a violation.

    >>> barrier = Barrier(eta=20, margin=0.1)
    >>> barrier.regime(-0.3), barrier.price(-0.3)
    ('violated', 0.5)
    """

    eta: float
    margin: float
    """In the unit of the slack."""

    def __post_init__(self) -> None:
        for name, value, least in (("eta", self.eta, 0.0), ("margin", self.margin, LEAST_MARGIN)):
            if not (math.isfinite(value) and value >= least and value > 0):
                raise SettingsError(f"Barrier.{name}: must be a positive, finite number (got {value}).")

    def __call__(self, slack: Tensor) -> Tensor:
        """The barrier's value, to be maximised, for each slack `[...]`; finite for every finite slack."""
        on_logarithm = slack.clamp_min(self.margin)
        value = (on_logarithm.log() + (slack - on_logarithm) / self.margin) / self.eta
        limits = torch.finfo(value.dtype)
        return value.clamp(limits.min, limits.max)

    def price(self, slack: Scalar) -> Scalar:
        """The shadow price d barrier / d slack (the factor of eq. 14): what a unit of slack is worth."""
        if isinstance(slack, Tensor):
            return 1 / (self.eta * slack.clamp_min(self.margin))
        return 1 / (self.eta * max(slack, self.margin))

    def regime(self, slack: Tensor | float) -> Regime:
        """Where a single slack is; NaN counts as violated."""
        if slack >= self.margin:
            return "interior"
        return "margin" if slack > 0 else "violated"


def suboptimality_bound(constraints: Iterable[Constraint], iteration: int) -> float:
    """Most that the barriers can cost in the objective at their optimum: the sum of 1 / eta_i (Theorem 1)."""
    return sum(1 / constraint.eta_at(iteration) for constraint in constraints)
