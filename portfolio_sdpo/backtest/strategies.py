"""Benchmark strategies by name, and the registry through which other packages add theirs.

Rules that all benchmarks share: what needs history looks at the last `lookback` sessions, by default a year; a stock
takes part at close t when it has had a price at every close of them, up to and including t, and moved at all; all
others have weight 0; with no such stock the strategy is in cash. Rebalanced every `every` sessions. No strategy takes
fees into account.

The optimisers are skfolio's (extra `backtest`). Where one fails, the strategy keeps what it holds and warns, which
`simulate` records in the track's notes. Only `MaximumReturn` chooses how much cash to hold: a minimum of risk with cash
allowed would always be all cash, so those are fully invested. Those that are a formula are in `closed_form`.

A package adds a strategy by an entry point, whose name `--strategies` then accepts; the object is a class or function
that makes anything with `decide(history, held)`. If it has parameters `limit` or `alpha`, they are the backtest's.

    [project.entry-points."portfolio_sdpo.strategies"]
    momentum = "my_package.momentum:Momentum"
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from portfolio_sdpo.backtest.closed_form import InverseVolatility, MeanVariance, Momentum
from portfolio_sdpo.backtest.lookback import LookbackStrategy, fit_weights
from portfolio_sdpo.backtest.simulate import Strategy
from portfolio_sdpo.common.plugins import Plugins, require_extra
from portfolio_sdpo.errors import SettingsError, did_you_mean
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.filtered_shield import largest_share, scenarios
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array, Market, all_cash
from portfolio_sdpo.settings import Settings


class AllCash(Settings):
    """Nothing but cash."""

    name: Literal["cash"] = "cash"
    every: ClassVar[int] = 1

    def decide(self, history: Market, held: Array) -> Array:
        return all_cash(len(held))


class BuyAndHold(Settings):
    """Equal parts of what is listed at the first decision, then no trade.

    What is listed later is not bought, and what a delisting pays out stays in cash: only when it holds nothing but cash
    (at the start, or after the last delisting) does it buy again.
    """

    name: Literal["buy-and-hold"] = "buy-and-hold"
    every: ClassVar[int] = 1

    def decide(self, history: Market, held: Array) -> Array:
        return held if held[1:].any() else _equal(history.listed[-1, 1:])


class EqualWeight(Settings):
    """1/N over the stocks listed at the decision, new listings included; cash when there is none."""

    name: Literal["equal-weight"] = "equal-weight"
    every: int = Field(default=5, ge=1)
    """Sessions from one decision to the next."""

    def decide(self, history: Market, held: Array) -> Array:
        return _equal(history.listed[-1, 1:])


class MinimumVariance(LookbackStrategy):
    """The fully invested long-only mix of least variance."""

    name: Literal["minimum-variance"] = "minimum-variance"

    def allocate(self, returns: Array, cash: float) -> Array:
        skfolio = _skfolio(self.name)
        return fit_weights(skfolio.MeanRisk(risk_measure=_measure("VARIANCE")), returns)


class MinimumCvar(LookbackStrategy):
    """The fully invested long-only mix whose worst days, the fraction α of them, lose least on average."""

    name: Literal["minimum-cvar"] = "minimum-cvar"
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Tail fraction."""

    def allocate(self, returns: Array, cash: float) -> Array:
        skfolio = _skfolio(self.name)
        return fit_weights(skfolio.MeanRisk(risk_measure=_measure("CVAR"), cvar_beta=1.0 - self.alpha), returns)


class HierarchicalRiskParity(LookbackStrategy):
    """López de Prado's HRP: variance shared out along a tree of correlated stocks."""

    name: Literal["hrp"] = "hrp"

    def allocate(self, returns: Array, cash: float) -> Array:
        return fit_weights(_skfolio(self.name).HierarchicalRiskParity(), returns)


class RiskParity(LookbackStrategy):
    """Every stock contributes the same share of variance."""

    name: Literal["risk-parity"] = "risk-parity"

    def allocate(self, returns: Array, cash: float) -> Array:
        return fit_weights(_skfolio(self.name).RiskBudgeting(risk_measure=_measure("VARIANCE")), returns)


class MaximumReturn(LookbackStrategy):
    """The strongest rival: the highest mean return under the agent's own CVaR limit, with as much cash as it takes.

    Scenarios are the simple returns over every window of the limit's horizon, in excess of cash, which is taken to earn
    what it earned in the last session; stocks may sum to less than 1. When not even all cash meets the limit (a cash
    rate below the bound) it holds all cash and warns.
    """

    name: Literal["maximum-return"] = "maximum-return"
    limit: CvarLimit = CvarLimit()

    @model_validator(mode="after")
    def _enough_scenarios(self) -> MaximumReturn:
        lookback = self.lookback or SESSIONS_PER_YEAR
        if lookback < self._least:
            raise SettingsError(
                f"maximum-return: {self.limit.horizon}-session windows and a tail of {self.limit.alpha:g} need at "
                f"least {self._least} sessions, and it looks at {lookback}; choose a larger alpha or leave it out."
            )
        return self

    @property
    def _least(self) -> int:
        """Sessions in which there are enough windows for a tail."""
        return self.limit.horizon + self.limit.least_scenarios - 1

    def count_sessions(self, history: Market) -> int:
        return self.lookback or max(super().count_sessions(history), self._least)

    def sample(self, history: Market) -> Array:
        return scenarios(history, self.limit.horizon, self.count_sessions(history))[0]

    def allocate(self, returns: Array, cash: float) -> Array:
        skfolio = _skfolio(self.name)
        earned = (1.0 + cash) ** self.limit.horizon - 1.0
        excess = returns - earned
        if earned < self.limit.bound:
            warnings.warn(f"holds all cash, which itself misses the limit of {self.limit.bound:g}.", stacklevel=3)
            return np.zeros(returns.shape[1])
        model = skfolio.MeanRisk(
            objective_function=skfolio.ObjectiveFunction.MAXIMIZE_RETURN,
            risk_measure=_measure("CVAR"),
            cvar_beta=1.0 - self.limit.alpha,
            max_cvar=earned - self.limit.bound,
            # Cash is what the stocks leave of the budget: skfolio refuses a riskless column.
            budget=None,
            min_budget=0.0,
            max_budget=1.0,
        )
        parts = np.maximum(fit_weights(model, excess), 0.0)
        parts /= max(parts.sum(), 1.0)
        # The solver stops within its tolerance of the limit; the benchmark is held to it exactly.
        share, _ = largest_share(excess @ parts, earned, self.limit)
        return share * parts


_BENCHMARKS: dict[str, Callable[..., Strategy]] = {
    "cash": AllCash,
    "equal-weight": EqualWeight,
    "buy-and-hold": BuyAndHold,
    "inverse-volatility": InverseVolatility,
    "minimum-variance": MinimumVariance,
    "minimum-cvar": MinimumCvar,
    "hrp": HierarchicalRiskParity,
    "risk-parity": RiskParity,
    "mean-variance": MeanVariance,
    "momentum-12-1": Momentum,
    "maximum-return": MaximumReturn,
}
BENCHMARKS = tuple(_BENCHMARKS)
"""The names of this package's own."""
STRATEGIES: Plugins[Callable[..., Any]] = Plugins("portfolio_sdpo.strategies", _BENCHMARKS)
"""Every strategy that can be made by name, with its settings as keyword arguments."""


def make_strategy(name: str, **settings: Any) -> Strategy:
    """A strategy by its name: a benchmark, or what an installed package declares.

    >>> make_strategy("minimum-variance", lookback=120).name
    'minimum-variance'
    """
    check_name(name)
    strategy = STRATEGIES[name](**settings)
    # A strategy is known by the name that it is registered under, whatever it calls itself.
    if getattr(strategy, "name", None) == name and hasattr(strategy, "every"):
        return cast("Strategy", strategy)
    from portfolio_sdpo.backtest.adapters import as_strategy

    return as_strategy(strategy, name)


def make_benchmark(name: str, limit: CvarLimit) -> Strategy:
    """A strategy by its name, which is told the backtest's CVaR limit if it has a parameter `limit` or `alpha`."""
    check_name(name)
    try:
        parameters = inspect.signature(STRATEGIES[name]).parameters
    except (TypeError, ValueError):
        return make_strategy(name)
    offered = {"limit": limit, "alpha": limit.alpha}
    return make_strategy(name, **{field: value for field, value in offered.items() if field in parameters})


def check_name(name: str) -> None:
    """Raise a `SettingsError` that lists what there is, unless there is a strategy of that name."""
    if name not in STRATEGIES:
        raise SettingsError(
            f"strategies: there is no {name!r}{did_you_mean(name, STRATEGIES)}; there are {', '.join(STRATEGIES)}."
        )


def _equal(listed: NDArray[np.bool_]) -> Array:
    """[A] equal parts of the listed stocks [N]."""
    weights = all_cash(1 + len(listed))
    if listed.any():
        weights[0] = 0.0
        weights[1:] = listed / listed.sum()
    return weights


def _skfolio(name: str) -> Any:
    """skfolio's optimisers, imported when first needed: it takes seconds."""
    require_extra(name, "skfolio", "backtest")
    import skfolio.optimization

    return skfolio.optimization


def _measure(name: str) -> Any:
    from skfolio import RiskMeasure

    return RiskMeasure[name]
