"""Risk measures rho: functions of the distribution of a cumulated signal (Table 2 of the paper, section 4).

A distribution is given by values `[..., N]`, samples or quantiles in any order, and weights that sum to 1 over the last
axis. The dots are a batch of distributions: the paper's rho(Y) is the mean over initial states s0 of a measure of the
distributions Y(s0).
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator
from torch import Tensor

from portfolio_sdpo.common.plugins import Plugins
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk.importable import ImportableFunction
from portfolio_sdpo.risk.influence import (
    ClosedForm,
    Influence,
    PiecewiseLinear,
    Quadratic,
    broadcast_shape,
    influence_by_autograd,
)
from portfolio_sdpo.settings import Settings

Tail = Literal["lower", "upper"]
"""The bad side of a distribution: `lower` for rewards, `upper` for costs."""


class RiskMeasure(Settings):
    """A (sub)differentiable function of a distribution: a new one needs `kind` and `evaluate`, autograd does the rest.

    Defining the class makes its `kind` known to this process; an installed package makes it known everywhere by an
    entry point of the group `portfolio_sdpo.measures` whose name is the kind.

    >>> class Spread(RiskMeasure):
    ...     kind: Literal["spread"] = "spread"
    ...
    ...     def evaluate(self, values: Tensor, weights: Tensor) -> Tensor:
    ...         mean = (weights * values).sum(-1, keepdim=True)
    ...         return (weights * (values - mean).abs()).sum(-1)
    """

    kind: str
    """The name of this measure in files; a class that sets none cannot be instantiated."""

    kinds: ClassVar[Plugins[type["RiskMeasure"]]] = Plugins("portfolio_sdpo.measures")
    """Every measure by its kind; defining the class registers it here."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        kind = cls.model_fields["kind"].default
        if not isinstance(kind, str):
            return
        known = RiskMeasure.kinds.peek(kind) or cls
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{cls.__name__}: the kind {kind!r} belongs to {known.__module__}.{known.__qualname__}")
        # The same class once more is a notebook's cell that was run again.
        RiskMeasure.kinds.register(kind, cls, replace=True)

    @abstractmethod
    def evaluate(self, values: Tensor, weights: Tensor) -> Tensor:
        """rho of each distribution: values and weights, both `[..., N]`, to `[...]`, differentiable in both."""

    def differentiate(self, values: Tensor, weights: Tensor) -> Influence:
        """The influence function at each distribution `[..., N]`; override it where a closed form exists."""
        return influence_by_autograd(self.evaluate, values, weights, owner=type(self).__name__)

    def __call__(self, values: Tensor, weights: Tensor | None = None) -> Tensor:
        """rho of each distribution.

        values: `[..., N]`, samples or quantiles in any order.
        weights: broadcastable to values, nonnegative, summing to 1 over the last axis; None is 1/N each.
        Returns `[...]`, differentiable in values and in positive weights.

        >>> CVaR(alpha=0.5)(torch.tensor([4.0, 1.0, 3.0, 2.0]))
        tensor(1.5000)
        """
        return self.evaluate(*_distribution(values, weights))

    def influence(self, values: Tensor, weights: Tensor | None = None) -> Influence:
        """u with E[u(Y)] = rho at each distribution, arguments as for the measure itself; see `Influence`."""
        with torch.no_grad():
            return self.differentiate(*_distribution(values, weights))

    def estimate(self, samples: Tensor) -> tuple[float, float]:
        """rho of samples `[K]` of one distribution, and its standard error by the influence function.

        A single sample has an infinite standard error.

        >>> Expectation().estimate(torch.tensor([1.0, 3.0]))
        (2.0, 1.0)
        """
        risk = self(samples).item()
        if len(samples) < 2:
            return risk, float("inf")
        return risk, (self.influence(samples)(samples).std() / len(samples) ** 0.5).item()

    @property
    def linear(self) -> bool:
        """Whether rho is linear in the distribution, so that the policy-gradient theorem applies as it stands."""
        return False

    @property
    def narrow_tail(self) -> tuple[Tail, float] | None:
        """The side and the fraction of the distribution that this measure looks at; None: all of it.

        Critics read a narrow tail with as many quantiles as all the rest; a measure of your own may ask for that too.
        """
        return None

    @property
    def label(self) -> str:
        """Short name with its numbers, such as `cvar[0.1]`."""
        numbers = [f"{value:.10g}" for _, value in self if isinstance(value, int | float)]
        return f"{self.kind}[{', '.join(numbers)}]" if numbers else self.kind


def _resolve(data: Any) -> Any:
    """A measure, or the table of one read from a file, as the measure."""
    if isinstance(data, RiskMeasure):
        return data
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
        raise ValueError("must be a risk measure or a table with its kind")
    if data["kind"] not in RiskMeasure.kinds:
        known = ", ".join(sorted(RiskMeasure.kinds))
        raise ValueError(f"no such kind; known are {known}, and your own once the module defining it is imported")
    return RiskMeasure.kinds[data["kind"]](**data)


Measure = Annotated[SerializeAsAny[RiskMeasure], BeforeValidator(_resolve)]
"""Type of a settings field that holds any risk measure, a researcher's own too; files tell them apart by `kind`."""


class _Mean(RiskMeasure):
    """What expectation and bad-state probability share: both are the mean (the paper's table, rows 1 and 2)."""

    def evaluate(self, values: Tensor, weights: Tensor) -> Tensor:
        return (weights * values).sum(-1)

    def differentiate(self, values: Tensor, weights: Tensor) -> Influence:
        return ClosedForm(
            lambda y, mean: y.expand(broadcast_shape(y.shape, mean.shape)), self.evaluate(values, weights)
        )

    @property
    def linear(self) -> bool:
        return True


class Expectation(_Mean):
    """E[Y]; u(y) = y.

    >>> Expectation()(torch.tensor([1.0, 3.0])), Expectation()(torch.tensor([1.0, 3.0]), torch.tensor([0.75, 0.25]))
    (tensor(2.), tensor(1.5000))
    """

    kind: Literal["expectation"] = "expectation"


class BadStateProbability(_Mean):
    """P(a bad state is entered): the mean of an undiscounted signal that is 1 on entering an absorbing bad state."""

    kind: Literal["bad-state-probability"] = "bad-state-probability"


class CVaR(RiskMeasure):
    """Mean of the worst fraction alpha of the distribution (Table 2); the atom at its edge counts by the part inside.

    `lower` takes the lowest values, for rewards, to be bounded from below; `upper` the highest, for costs, to be
    bounded from above. u(y) = nu - max(nu - y, 0) / alpha, with nu the alpha-quantile (lower tail).

    >>> returns = torch.tensor([-0.10, -0.02, 0.01, 0.05])
    >>> CVaR(alpha=0.25)(returns), CVaR(alpha=0.25, tail="upper")(returns)
    (tensor(-0.1000), tensor(0.0500))
    """

    kind: Literal["cvar"] = "cvar"
    alpha: float = Field(gt=0, lt=1)
    """Tail fraction: 0.05 is the worst 5 %."""
    tail: Tail = "lower"

    def evaluate(self, values: Tensor, weights: Tensor) -> Tensor:
        # The paper's sum over tau_i <= alpha (eq. 17). The equivalent E[u(Y)] would be shorter, but among equal
        # values (all cash) it sends the whole gradient to a single one.
        ordered, mass, room = self._tail(values, weights)
        # Not torch.minimum, which would share the gradient of an atom of weight 0 beyond the tail, where both are 0.
        inside = torch.where(mass < room, mass, room)
        return (inside * ordered).sum(-1) / inside.sum(-1)

    def differentiate(self, values: Tensor, weights: Tensor) -> Influence:
        ordered, _, room = self._tail(values, weights)
        last = (room > 0).sum(-1, keepdim=True) - 1
        quantile = ordered.gather(-1, last)
        slopes = quantile.new_tensor([1 / self.alpha, 0.0] if self.tail == "lower" else [0.0, 1 / self.alpha])
        return PiecewiseLinear(quantile, quantile, slopes.expand(*quantile.shape[:-1], 2))

    @property
    def narrow_tail(self) -> tuple[Tail, float] | None:
        return self.tail, self.alpha

    def _tail(self, values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values from worst to best, their weights, and the room the tail still has for each, all `[..., N]`."""
        ordered, order = values.sort(dim=-1, descending=self.tail == "upper", stable=True)
        mass = weights.gather(-1, order)
        return ordered, mass, (self.alpha - (mass.cumsum(-1) - mass)).clamp_min(0)


class Variance(RiskMeasure):
    """E[(Y - mu)^2] (eq. 18), the distribution's own (divided by N, not N - 1); u(y) = (y - mu)^2.

    >>> Variance()(torch.tensor([[1.0, 3.0], [0.0, 4.0]]))  # a batch of two distributions
    tensor([1., 4.])
    """

    kind: Literal["variance"] = "variance"

    def evaluate(self, values: Tensor, weights: Tensor) -> Tensor:
        mean = (weights * values).sum(-1, keepdim=True)
        return (weights * (values - mean).square()).sum(-1)

    def differentiate(self, values: Tensor, weights: Tensor) -> Influence:
        return Quadratic((weights * values).sum(-1))


class Entropic(RiskMeasure):
    """(1 / beta) ln E[exp(beta Y)]: beta < 0 is pessimistic for rewards, beta > 0 for costs.

    u(y) = rho + (exp(beta (y - rho)) - 1) / beta, since E[exp(beta Y)] = exp(beta rho).
    """

    kind: Literal["entropic"] = "entropic"
    beta: float

    @field_validator("beta")
    @classmethod
    def _not_zero(cls, beta: float) -> float:
        if beta == 0:
            raise ValueError("must not be 0, where this measure is the expectation: use Expectation")
        return beta

    def evaluate(self, values: Tensor, weights: Tensor) -> Tensor:
        return torch.logsumexp(self.beta * values + weights.log(), dim=-1) / self.beta

    def differentiate(self, values: Tensor, weights: Tensor) -> Influence:
        return ClosedForm(
            lambda y, risk: risk + torch.expm1(self.beta * (y - risk)) / self.beta, self.evaluate(values, weights)
        )


class MeanSemideviation(RiskMeasure):
    """Mean worsened by `weight` times the semideviation on the bad side (coherent, as weight is at most 1).

    `lower`, for rewards: E[Y] - weight * E[max(mu - Y, 0)^order]^(1/order). `upper`, for costs: its mirror image.
    """

    kind: Literal["mean-semideviation"] = "mean-semideviation"
    weight: float = Field(gt=0, le=1)
    tail: Tail = "lower"
    order: int = Field(default=1, ge=1)

    def evaluate(self, values: Tensor, weights: Tensor) -> Tensor:
        mean = (weights * values).sum(-1)
        moment = (weights * self._shortfall(values, mean.unsqueeze(-1)).pow(self.order)).sum(-1)
        return mean - self._sign * self.weight * self._root(moment)

    def differentiate(self, values: Tensor, weights: Tensor) -> Influence:
        mean = (weights * values).sum(-1)
        shortfall = self._shortfall(values, mean.unsqueeze(-1))
        moment = (weights * shortfall.pow(self.order)).sum(-1)
        # E[max(mu - Y, 0)^(order - 1)], where 0^0 has to be 0.
        lesser = (weights * torch.where(shortfall > 0, shortfall.pow(self.order - 1), 0.0)).sum(-1)
        root = self._root(moment)
        root_slope = torch.where(moment > 0, root / (self.order * moment), 0.0)

        def formula(
            y: Tensor, mean: Tensor, moment: Tensor, lesser: Tensor, root: Tensor, root_slope: Tensor
        ) -> Tensor:
            # Derivative of the moment at y: directly, and through the mean.
            change = self._shortfall(y, mean).pow(self.order) - moment + self._sign * self.order * lesser * (y - mean)
            return y - self._sign * self.weight * (root + root_slope * change)

        return ClosedForm(formula, mean, moment, lesser, root, root_slope)

    @property
    def _sign(self) -> int:
        return 1 if self.tail == "lower" else -1

    def _shortfall(self, values: Tensor, mean: Tensor) -> Tensor:
        return torch.relu(self._sign * (mean - values))

    def _root(self, moment: Tensor) -> Tensor:
        # A root has no derivative at 0, where a constant distribution (all cash) is: the subgradient 0 is taken.
        return torch.where(moment > 0, torch.where(moment > 0, moment, 1.0).pow(1 / self.order), 0.0)


class Custom(RiskMeasure):
    """Any (sub)differentiable function of (values, weights), both `[..., N]`, to `[...]`.

    Its weights sum to 1, and it has to accept weights of zero. Files hold it by its import path, "module:name".
    """

    kind: Literal["custom"] = "custom"
    function: ImportableFunction
    name: str = Field(default="", validate_default=True)
    """How it is called in logs; by default the function's own name."""

    @field_validator("name")
    @classmethod
    def _named_after_function(cls, name: str, info: Any) -> str:
        return name or getattr(info.data.get("function"), "__name__", "custom")

    def evaluate(self, values: Tensor, weights: Tensor) -> Tensor:
        risk = self.function(values, weights)
        if risk.shape != values.shape[:-1]:
            raise SettingsError(
                f"Custom.function: {self.name} must give the shape {list(values.shape[:-1])} for values of the shape "
                f"{list(values.shape)}, not {list(risk.shape)}."
            )
        return risk

    @property
    def label(self) -> str:
        return self.name


def _distribution(values: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Values and weights, both `[..., N]` and of the values' dtype."""
    if values.dim() == 0 or values.shape[-1] == 0 or not values.is_floating_point():
        raise ValueError(
            f"a distribution needs floating-point values [..., N], N > 0, not {values.dtype} {list(values.shape)}."
        )
    if weights is None:
        return values, torch.full_like(values, 1 / values.shape[-1])
    shape = broadcast_shape(values.shape, weights.shape)
    return values.expand(shape), weights.to(values.dtype).expand(shape)
