"""`portfolio_sdpo.backtest`: from a frame of prices and strategies of every sort to one result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, TypeVar

import pandas as pd

from portfolio_sdpo.backtest.adapters import as_strategy
from portfolio_sdpo.backtest.entries import STRONGEST, Entry, Progress
from portfolio_sdpo.backtest.run import (
    SHIELDED_BENCHMARKS,
    BacktestSettings,
    DeclaredAgent,
    simulate_strategies,
)
from portfolio_sdpo.backtest.strategies import make_benchmark
from portfolio_sdpo.common.numbers import percent
from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.errors import SettingsError, did_you_mean
from portfolio_sdpo.portfolio.accounting import Execution, check_execution
from portfolio_sdpo.portfolio.allocator import SafeAllocator
from portfolio_sdpo.portfolio.groups import read_groups
from portfolio_sdpo.portfolio.market import load_frame
from portfolio_sdpo.portfolio.shield import CvarLimit, ShieldForm
from portfolio_sdpo.prices.frame_checks import check_prices
from portfolio_sdpo.report.result import BacktestResult
from portfolio_sdpo.settings import Settings

AnySettings = TypeVar("AnySettings", bound=Settings)


def backtest(
    prices: pd.DataFrame,
    strategies: Mapping[str, Any] | Sequence[Any] | Any,
    *,
    start: str | date | None = None,
    end: str | date | None = None,
    fee_bps: float = 5.0,
    cash: float | str | pd.Series = 0.0,
    execution: str | None = None,
    shield: bool | Iterable[str] | None = None,
    cvar: float | None = None,
    alpha: float | None = None,
    horizon: int | None = None,
    max_weight: float | None = None,
    max_turnover: float | None = None,
    groups: Any = None,
    intervals: bool | int = True,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress | None = None,
) -> BacktestResult:
    """Run strategies through the same prices, dates, fees and cash, walk-forward, and measure them.

    At every decision a strategy sees the prices up to that close and nothing later; its weights are traded at the next
    close from what has drifted until then, and the fee is paid on what is traded.

    Parameters
    ----------
    prices : DataFrame of shape (n_sessions, n_tickers)
        Adjusted closes with dates as index, also those before `start`, which strategies learn from; NaN where a ticker
        has no price. See `load_prices`.
    strategies : mapping, sequence or a single strategy
        What to compare; the keys of a mapping are the names in tables. A strategy is

        - the name of a benchmark, such as `"equal-weight"`, `"minimum-cvar"`, `"hrp"` or `"maximum-return"`, or of a
          strategy that an installed package declares;
        - a `SafeAllocator`, which starts untrained and keeps learning as time goes by, unless `retrain=False`;
        - an object with `decide(history, held)`: `history` is the `Market` so far, `held` the weights of shape
          (1 + n_tickers,) with CASH first; it returns such weights, or a Series or mapping by ticker. Its attribute
          `every` is the number of sessions from one decision to the next (default 1);
        - a skfolio optimiser, or anything else with `fit(returns)` and then `weights_`, fitted every five sessions to
          the last year of them.
    start : str or date, optional
        The day of the first decision; by default the first with a year of prices before it.
    end : str or date, optional
        The last day; by default that of the prices.
    fee_bps : float, default 5.0
        Fee on what is traded, in hundredths of a percent.
    cash : float, Series or "tbill", default 0.0
        What cash earns: an annual rate (0.02 = 2 %), a Series of annual rates by date, each known from its date on, or
        the bundled 13-week Treasury bill.
    execution : str, optional
        When a decision is traded: `"next-close"`, or `"same-close"`, at the very close that it is made at. The paper
        assumes that, and it is optimistic: the price is known when it is too late to trade at it. By default that of
        the `SafeAllocator`, or `"next-close"`.
    shield : bool or iterable of names, optional
        What is shown a second time as "... + shield", with its decisions passed through the shield: all strategies
        (True), none (False), or those named, where `"strongest"` is the benchmark of highest final wealth. By default
        every `SafeAllocator` whose own `shield` is on; where there is one, the benchmarks `"equal-weight"`,
        `"inverse-volatility"`, `"risk-parity"`, `"minimum-variance"`, `"mean-variance"` and `"maximum-return"` as far
        as they take part, and the strongest one, so that all are compared behind the same shield.
    cvar, alpha, horizon : float, float, int, optional
        The CVaR limit that all tracks are judged by and the shield keeps. By default that of the `SafeAllocator`, or
        -0.05, 0.05 and 15: the worst 5 % of 15-session periods may lose 5 % on average.
    max_weight, max_turnover : float, optional
        Limits on every decision of every strategy: the largest weight of a stock, the largest share of wealth traded.
    groups : path or DataFrame, optional
        Largest weights of groups of stocks, also for every strategy: columns `ticker`, `group` and `max_weight`.
    intervals : bool or int, default True
        Whether to draw bootstrap intervals and tests, which takes some time; a number is that of the draws (1000).
    seed : int, default 0
        Seed of the intervals; a policy has its own.
    jobs : int, default 1
        Processes that share the strategies, which then have to be picklable.
    progress : callable, optional
        Called with a strategy's name, how much of it is done and how much there is.

    Returns
    -------
    BacktestResult
        `print` shows the table of the command line. `returns` and `wealth` are frames of dates × strategies, `weights`
        one of dates × (strategy, asset), `metrics` one of strategies × figures; `report("report.html")` writes a page.

    Raises
    ------
    DataQualityError
        If the prices are no prices (returns, no dates, negative values, text).
    SettingsError, HistoryError
        If a parameter is wrong, or the prices do not reach far enough.

    Examples
    --------
    >>> from portfolio_sdpo import backtest, load_prices
    >>> prices = load_prices("sample")
    >>> result = backtest(
    ...     prices, {"1/N": "equal-weight", "cash": "cash"}, start="2019-01-02", end="2019-12-31", cash=0.02,
    ...     intervals=False,
    ... )
    >>> result.metrics[["total_return", "max_drawdown", "kept_limit"]].round(3).rename_axis(None)
          total_return  max_drawdown  kept_limit
    1/N          0.413        -0.123       False
    cash         0.020         0.000        True
    >>> result.returns.shape, result.weights["1/N"].shape
    ((251, 2), (252, 10))

    A strategy of your own is any object that decides:

    >>> class Halves:
    ...     every = 21
    ...     def decide(self, history, held):
    ...         return {"CASH": 0.5, "AAPL": 0.5}
    >>> own = backtest(prices, [Halves()], start="2019-01-02", end="2019-12-31", intervals=False)
    >>> own.wealth["Halves"].iloc[-1].round(2)
    np.float64(1.47)
    """
    frame = check_prices(prices)
    named = _name_strategies(strategies)
    shielded = _select_shielded(named, shield)
    settings = _make_settings(
        named,
        shielded,
        shield=bool(shielded),
        start=_read_day("start", start),
        end=_read_day("end", end),
        fee_bps=fee_bps,
        cash=_mean_rate(cash),
        execution=_find_execution(named) if execution is None else check_execution(execution),
        shield_form=_find_shield_form(named),
        limit=_find_limit(named, {"bound": cvar, "alpha": alpha, "horizon": horizon}),
        limits={"max_weight": max_weight, "max_turnover": max_turnover, "groups": read_groups(groups)},
        bootstrap={"seed": seed, **({} if intervals is True else {"draws": intervals})} if intervals else None,
    )
    if jobs < 1:
        raise SettingsError(f"jobs: must be at least 1 (got {jobs}).")
    if intervals:
        require_extra("A backtest with intervals", "arch", "backtest")
    market, days, data = load_frame(
        frame, cash if isinstance(cash, pd.Series) else settings.cash, settings.start, settings.end
    )
    data["notes"] = [*prices.attrs.get("notes", ()), *_describe_rates(cash)]
    entries = [_make_entry(name, each, settings, days[0], name in shielded) for name, each in named.items()]
    return BacktestResult(
        simulate_strategies(market, entries, settings, days=days, data=data, progress=progress, jobs=jobs)
    )


def _name_strategies(strategies: Any) -> dict[str, Any]:
    """Every strategy under the name that tables give it."""
    if isinstance(strategies, Mapping):
        named = {str(name): each for name, each in strategies.items()}
    else:
        given = list(strategies) if isinstance(strategies, list | tuple) else [strategies]
        names = [_own_name(each) for each in given]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise SettingsError(
                f"strategies: two are called {twice}; give a mapping with a name for each, such as "
                f"{{'{twice} 1': ..., '{twice} 2': ...}}."
            )
        named = dict(zip(names, given, strict=True))
    if not named:
        raise SettingsError("strategies: give at least one, such as 'equal-weight'.")
    return named


def _own_name(strategy: Any) -> str:
    if isinstance(strategy, str):
        return strategy
    if isinstance(strategy, SafeAllocator):
        return strategy.algorithm
    return str(getattr(strategy, "name", type(strategy).__name__))


def _select_shielded(named: Mapping[str, Any], shield: bool | Iterable[str] | None) -> set[str]:
    """The names of the strategies that are shown with the shield as well."""
    if isinstance(shield, bool):
        found = set(named) if shield else set()
    elif shield is None:
        policies = {name for name, each in named.items() if isinstance(each, SafeAllocator) and each.shield}
        rivals = {name for name, each in named.items() if isinstance(each, str) and each in SHIELDED_BENCHMARKS}
        found = policies | rivals | {STRONGEST} if policies else set()
    else:
        found = {shield} if isinstance(shield, str) else {str(name) for name in shield}
        unknown = next((name for name in sorted(found - {STRONGEST}) if name not in named), None)
        if unknown is not None:
            raise SettingsError(
                f"shield: there is no strategy {unknown!r}{did_you_mean(unknown, named)}; there are {', '.join(named)}."
            )
    taken = next((name for name in sorted(found) if f"{name} + shield" in named), None)
    if taken is not None:
        raise SettingsError(f"strategies: '{taken} + shield' is the name of {taken} with the shield; choose another.")
    return found


def _find_limit(named: Mapping[str, Any], given: Mapping[str, Any]) -> CvarLimit:
    """The limit that is given, and where it is not, the policies' own."""
    policies = [each for each in named.values() if isinstance(each, SafeAllocator)]
    own = [CvarLimit(bound=each.cvar, alpha=each.alpha, horizon=each.horizon) for each in policies] or [CvarLimit()]
    changes = {field: value for field, value in given.items() if value is not None}
    limits = [_validate(CvarLimit, **{**limit.model_dump(), **changes}) for limit in own]
    if any(limit != limits[0] for limit in limits):
        raise SettingsError(
            "cvar, alpha, horizon: the policies have different limits; give those that all tracks are judged by."
        )
    return limits[0]


def _find_shield_form(named: Mapping[str, Any]) -> ShieldForm:
    """The form of the shield that the policies' weights pass, which all tracks share."""
    forms = {
        each.strategy(name).settings.shield_form for name, each in named.items() if isinstance(each, SafeAllocator)
    }
    if len(forms) > 1:
        raise SettingsError(
            "strategies: the policies pass different forms of the shield; give them the same shield_form in their "
            "settings, or backtest them apart."
        )
    return forms.pop() if forms else "calibrated"


def _find_execution(named: Mapping[str, Any]) -> Execution:
    """When the policies reckon that their decisions are traded, which all tracks share."""
    known = {check_execution(each.execution) for each in named.values() if isinstance(each, SafeAllocator)}
    if len(known) > 1:
        raise SettingsError(
            "execution: the policies were made for different ones; give the execution that all tracks are traded at."
        )
    return known.pop() if known else "next-close"


def _make_settings(named: Mapping[str, Any], shielded: set[str], **fields: Any) -> BacktestSettings:
    """What is written down about the backtest."""
    policies = {name: each for name, each in named.items() if isinstance(each, SafeAllocator)}
    described = {
        "strategies": tuple(name for name in named if name not in policies),
        "agents": tuple(
            DeclaredAgent(label=name, settings=each.strategy(name).settings.model_dump(mode="json"))
            for name, each in policies.items()
        ),
        "shielded": tuple(sorted(shielded)),
        "seeds": tuple(dict.fromkeys(int(each.seed) for each in policies.values())) or (0,),
    }
    # Names of the user's are no names of benchmarks, so these fields are not compared with those.
    return _validate(BacktestSettings, strategies=("cash",), **fields).model_copy(update=described)


def _make_entry(name: str, strategy: Any, settings: BacktestSettings, first: date, shield: bool) -> Entry:
    """The strategy as it takes part in the simulation."""
    if isinstance(strategy, SafeAllocator):
        _check_frozen(name, strategy, first)
        return Entry(strategy.strategy(name), "agent", int(strategy.seed), shield=shield, title=name)
    if isinstance(strategy, type):
        raise SettingsError(f"strategies: {name} is a class; give an object of it, {strategy.__name__}().")
    if isinstance(strategy, str):
        benchmark = make_benchmark(strategy, settings.limit)
        return Entry(as_strategy(benchmark, name), shield=shield, title=name, benchmark=strategy)
    return Entry(as_strategy(strategy, name), shield=shield, title=name)


def _check_frozen(name: str, policy: SafeAllocator, first: date) -> None:
    """A policy that is not to learn any more must not know what comes after the first decision."""
    fitted = getattr(policy, "as_of_", None)
    if not policy.retrain and fitted is not None and fitted.date() > first:
        raise SettingsError(
            f"strategies: {name} was fitted to prices up to {fitted.date()} and is frozen, so that a backtest from "
            f"{first} would know the future; fit it to earlier prices, such as prices.loc[:'{first}'], or let it "
            "learn with retrain=True."
        )


def _read_day(field: str, value: Any) -> date | None:
    if value is None:
        return None
    try:
        day = pd.Timestamp(value)
    except (TypeError, ValueError):
        day = pd.NaT
    if day is pd.NaT:
        raise SettingsError(f"{field}: must be a day such as 2019-01-02 (got {value!r}).")
    return day.date()


def _mean_rate(cash: Any) -> Any:
    """What the settings say that cash earns: of a Series its mean."""
    if not isinstance(cash, pd.Series):
        return cash
    known = cash.dropna()
    if not isinstance(known.index, pd.DatetimeIndex) or not pd.api.types.is_numeric_dtype(known.dtype) or known.empty:
        raise SettingsError("cash: a Series must hold annual rates, such as 0.02 for 2 %, with dates as its index.")
    return float(known.mean())


def _describe_rates(cash: Any) -> list[str]:
    if not isinstance(cash, pd.Series):
        return []
    edges = f"from {percent(cash.min(), 2)} to {percent(cash.max(), 2)}"
    return [f"Cash earns {cash.count()} annual rates {edges}; shown is their mean."]


def _validate(kind: type[AnySettings], **fields: Any) -> AnySettings:
    """Settings; an error names the parameter, not the class that it goes to."""
    try:
        return kind(**fields)
    except SettingsError as error:
        sentence = re.sub(r"^(?:BacktestSettings|CvarLimit)(?:\.limits|\.bootstrap)?[.:] ?", "", str(error))
        field, colon, rest = sentence.partition(":")
        raise SettingsError({"bound": "cvar", "draws": "intervals"}.get(field, field) + colon + rest) from None
