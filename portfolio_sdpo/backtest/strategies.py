"""Benchmark strategies by name, and the registry through which other packages add theirs.

Rules that all benchmarks share: what needs history looks at the last `lookback` sessions; a stock takes part at close t
when it has had a price at every close of them, up to and including t, and moved at all; all others have weight 0; with
no such stock the strategy is in cash. Rebalanced every `every` sessions. No strategy takes fees into account.

The optimisers are skfolio's (extra `backtest`). Where one fails, the strategy keeps what it holds and warns, which
`simulate` records in the track's notes. Only `MaximumReturn` chooses how much cash to hold: a minimum of risk with cash
allowed would always be all cash, so those are fully invested.

A package adds a strategy by an entry point, whose name `--strategies` then accepts; the object is a class or function
that makes anything with `decide(history, held)`. If it has parameters `limit` or `alpha`, they are the backtest's.

    [project.entry-points."portfolio_sdpo.strategies"]
    momentum = "my_package.momentum:Momentum"
"""

from __future__ import annotations

import inspect
import warnings
from abc import abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from portfolio_sdpo.backtest.simulate import Strategy
from portfolio_sdpo.common.plugins import Registry, require_extra
from portfolio_sdpo.errors import SettingsError, did_you_mean
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.filtered_shield import largest_share, scenarios
from portfolio_sdpo.portfolio.market import Array, Market, all_cash
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


class LookbackStrategy(Settings):
    """What the strategies share that estimate from the last `lookback` sessions."""

    lookback: int = Field(default=252, ge=2)
    """Sessions of returns that are looked at."""
    every: int = Field(default=5, ge=1)
    """Sessions from one decision to the next."""

    @abstractmethod
    def allocate(self, returns: Array, cash: float) -> Array:
        """[n] weights of the stocks that take part, summing to at most 1; the rest is cash.

        returns: [S, n] what `sample` gave. cash: what cash earned in the last session.
        """

    def sample(self, history: Market) -> Array:
        """[S, A] the returns that are looked at; daily ones if not said otherwise."""
        return history.gross_returns[-self.lookback :] - 1.0

    def decide(self, history: Market, held: Array) -> Array:
        """The weights [A], or `held` and a warning where no solution was found."""
        stocks = select_stocks(history, self.lookback)
        cash = float(history.gross_returns[-1, 0] - 1.0)
        return allocate_or_hold(lambda: self.allocate(self.sample(history)[:, stocks], cash), stocks, held)


class InverseVolatility(LookbackStrategy):
    """Weights in proportion to one over the standard deviation of daily returns."""

    name: Literal["inverse-volatility"] = "inverse-volatility"

    def allocate(self, returns: Array, cash: float) -> Array:
        inverse = 1.0 / returns.std(axis=0, ddof=1)
        return inverse / inverse.sum()


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
        least = self.limit.horizon + self.limit.least_scenarios - 1
        if self.lookback < least:
            raise SettingsError(
                f"maximum-return: {self.limit.horizon}-session windows and a tail of {self.limit.alpha:g} need at "
                f"least {least} sessions, and it looks at {self.lookback}; choose a larger alpha or leave it out."
            )
        return self

    def sample(self, history: Market) -> Array:
        return scenarios(history, self.limit.horizon, self.lookback)[0]

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
    "maximum-return": MaximumReturn,
}
BENCHMARKS = tuple(_BENCHMARKS)
"""The names of this package's own."""
STRATEGIES: Registry[Callable[..., Any]] = Registry("portfolio_sdpo.strategies", _BENCHMARKS)
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


def select_stocks(history: Market, lookback: int) -> NDArray[np.intp]:
    """Columns of the stocks with a price at each of the last `lookback` + 1 closes, whose price moved in them."""
    if len(history) <= lookback:
        return np.empty(0, dtype=np.intp)
    listed = np.asarray(history.listed[-lookback - 1 :].all(axis=0))
    # A price that never moves is stale, has no correlation with anything, and would pass for cash.
    moved = history.gross_returns[-lookback:].std(axis=0) > 1e-9
    return np.flatnonzero(listed & moved & (np.arange(len(listed)) > 0))


def allocate_or_hold(allocate: Callable[[], Array], stocks: NDArray[np.intp], held: Array) -> Array:
    """Weights [A] from those of the stocks in these columns, the rest in cash; `held` and a warning if that fails."""
    weights = all_cash(len(held))
    if not len(stocks):
        return weights
    try:
        parts = allocate()
    except _failures() as error:
        reason = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        warnings.warn(f"found no solution and keeps what it holds ({reason}).", stacklevel=3)
        return held
    parts = np.maximum(parts, 0.0)
    weights[stocks] = parts / max(parts.sum(), 1.0)
    weights[0] = max(1.0 - weights[stocks].sum(), 0.0)
    return weights


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


def fit_weights(model: Any, returns: Any) -> Array:
    """Fit a skfolio optimiser to returns [S, n], an array or a frame; its weights [n]."""
    model.fit(returns)
    return np.asarray(model.weights_, dtype=np.float64)


def _failures() -> tuple[type[Exception], ...]:
    """What an optimiser raises when it finds no solution."""
    if find_spec("skfolio") is None:
        return ()
    from skfolio.exceptions import SkfolioError

    return SkfolioError, ValueError, ArithmeticError, np.linalg.LinAlgError
