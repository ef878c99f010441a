"""Allocation policies that respect a risk limit while they learn and when they trade.

>>> from portfolio_sdpo import SafeAllocator, load_prices
>>> prices = load_prices("sample").loc[:"2018"]
>>> policy = SafeAllocator(cvar=-0.05, max_weight=0.4).fit(prices)
>>> weights = policy.predict(prices)
>>> round(weights.sum(), 6), bool((weights.drop("CASH") <= 0.4).all())
(np.float64(1.0), True)

Every name of `__all__`, and every other name of the front door (`dir(portfolio_sdpo)`), is imported when it is first
used. The rest is in the rooms:

risk          measures, constraints, the barrier; `RiskMeasure` is the base of a measure of your own
rl            the training loop (`Trainer`) and the algorithms with their settings
prices        sources, file layouts, cleaning, snapshots
portfolio     gross returns, accounting, limits, the shield, the learning agent, `SafeAllocator`
envs          gymnasium environments, registered by importing this package
backtest      simulation, strategies, statistics; the room itself can be called: `backtest(prices, strategies)`
report        the pages of a backtest
experiments   the experiments of the paper
registry      models, champion, audit; `serving` the decision that is served
errors        one tree of errors; everything that is raised on purpose is a `PortfolioSdpoError`
"""

import sys

from portfolio_sdpo.common.environments import register_with_gymnasium

TYPE_CHECKING = False  # typing's own would cost its import; type checkers know the name
if TYPE_CHECKING:
    from inspect import Signature

    from portfolio_sdpo.errors import PortfolioSdpoError as PortfolioSdpoError
    from portfolio_sdpo.portfolio.allocator import SafeAllocator as SafeAllocator
    from portfolio_sdpo.portfolio.orders import Account as Account
    from portfolio_sdpo.portfolio.orders import OrderSettings as OrderSettings
    from portfolio_sdpo.portfolio.orders import make_orders as make_orders
    from portfolio_sdpo.prices.load import load_prices as load_prices
    from portfolio_sdpo.report.backtest import backtest as backtest
    from portfolio_sdpo.report.result import BacktestResult as BacktestResult
    from portfolio_sdpo.report.tear_sheet import tear_sheet as tear_sheet
    from portfolio_sdpo.risk import BadStateProbability as BadStateProbability
    from portfolio_sdpo.risk import Constraint as Constraint
    from portfolio_sdpo.risk import CVaR as CVaR
    from portfolio_sdpo.risk import Entropic as Entropic
    from portfolio_sdpo.risk import Expectation as Expectation
    from portfolio_sdpo.risk import MeanSemideviation as MeanSemideviation
    from portfolio_sdpo.risk import RiskMeasure as RiskMeasure
    from portfolio_sdpo.risk import Spectral as Spectral
    from portfolio_sdpo.risk import Variance as Variance
    from portfolio_sdpo.rl import ActorSettings as ActorSettings
    from portfolio_sdpo.rl import CriticSettings as CriticSettings
    from portfolio_sdpo.rl import Problem as Problem
    from portfolio_sdpo.rl import Trainer as Trainer
    from portfolio_sdpo.rl import TrainSettings as TrainSettings
    from portfolio_sdpo.rl.algorithms import CpoSettings as CpoSettings
    from portfolio_sdpo.rl.algorithms import IpoSettings as IpoSettings
    from portfolio_sdpo.rl.algorithms import PcpoSettings as PcpoSettings
    from portfolio_sdpo.rl.algorithms import PdCvarSettings as PdCvarSettings
    from portfolio_sdpo.rl.algorithms import PdSdpoSettings as PdSdpoSettings
    from portfolio_sdpo.rl.algorithms import PdVarSettings as PdVarSettings
    from portfolio_sdpo.rl.algorithms import PpoLagrangianSettings as PpoLagrangianSettings
    from portfolio_sdpo.rl.algorithms import PpoSettings as PpoSettings
    from portfolio_sdpo.rl.algorithms import SdpoSettings as SdpoSettings

__version__ = "0.1.0"

__all__ = [
    "BacktestResult",
    "CVaR",
    "Constraint",
    "Expectation",
    "RiskMeasure",
    "SafeAllocator",
    "SdpoSettings",
    "TrainSettings",
    "Trainer",
    "Variance",
    "backtest",
    "load_prices",
    "tear_sheet",
]

_MODULES = {
    "portfolio_sdpo.errors": ("PortfolioSdpoError",),
    "portfolio_sdpo.portfolio.allocator": ("SafeAllocator",),
    "portfolio_sdpo.portfolio.orders": ("Account", "OrderSettings", "make_orders"),
    "portfolio_sdpo.prices.load": ("load_prices",),
    "portfolio_sdpo.report.result": ("BacktestResult",),
    "portfolio_sdpo.report.tear_sheet": ("tear_sheet",),
    "portfolio_sdpo.risk": (
        "BadStateProbability",
        "CVaR",
        "Constraint",
        "Entropic",
        "Expectation",
        "MeanSemideviation",
        "RiskMeasure",
        "Spectral",
        "Variance",
    ),
    "portfolio_sdpo.rl": ("ActorSettings", "CriticSettings", "Problem", "TrainSettings", "Trainer"),
    "portfolio_sdpo.rl.algorithms": (
        "CpoSettings",
        "IpoSettings",
        "PcpoSettings",
        "PdCvarSettings",
        "PdSdpoSettings",
        "PdVarSettings",
        "PpoLagrangianSettings",
        "PpoSettings",
        "SdpoSettings",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
"""Name → the module that it is imported from when it is first used."""


class CallableRoom(type(sys)):  # type: ignore[misc]
    """The room `portfolio_sdpo.backtest`, which can be called as the function of the same name.

    `from portfolio_sdpo import backtest` finds the room as soon as any module has imported from it, whatever this file
    says, so the room has to be what people expect to find: something to call.
    """

    def __call__(self, *args: object, **options: object) -> "BacktestResult":
        """Run strategies through prices; see `portfolio_sdpo.report.backtest.backtest`."""
        from portfolio_sdpo.report.backtest import backtest

        return backtest(*args, **options)  # type: ignore[arg-type]

    @property
    def __signature__(self) -> "Signature":
        from inspect import signature

        from portfolio_sdpo.report.backtest import backtest

        return signature(backtest)


def __getattr__(name: str) -> object:
    """A name of the front door, imported now and remembered."""
    if name == "backtest":
        from importlib import import_module

        return import_module("portfolio_sdpo.backtest")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "backtest"})


register_with_gymnasium()
