"""Sources of prices behind one small protocol: Yahoo, Quandl, the user's files, bundled samples, other packages.

    prices = make_source("yfinance").fetch(["AAPL", "MSFT"], date(2020, 1, 1), date(2020, 12, 31))

What arrived is in `prices.frame`, what did not in `prices.failures`, each with an error that says why: rate limited,
source unreachable, unknown ticker, no data in range, key missing or refused.

Another package adds a source without a change here: it declares a class with the members of `Source` as an entry point
of the group `portfolio_sdpo.sources`, or calls `SOURCES.register(name, factory)`.
"""

from collections.abc import Callable
from typing import Any

from portfolio_sdpo.common.plugins import Plugins
from portfolio_sdpo.errors import SettingsError, did_you_mean
from portfolio_sdpo.prices.sources.base import Progress, Source
from portfolio_sdpo.prices.sources.file import File
from portfolio_sdpo.prices.sources.french import French
from portfolio_sdpo.prices.sources.quandl_source import NasdaqDataLink, Quandl
from portfolio_sdpo.prices.sources.retry import RetrySettings
from portfolio_sdpo.prices.sources.sample import Sample, SkfolioSample
from portfolio_sdpo.prices.sources.yahoo import Yahoo

SOURCES: Plugins[Callable[..., Source]] = Plugins(
    "portfolio_sdpo.sources",
    {kind.name: kind for kind in (Yahoo, NasdaqDataLink, Quandl, French, File, Sample, SkfolioSample)},
)
"""Every source by the name that `--source` takes."""

__all__ = [
    "SOURCES",
    "File",
    "French",
    "NasdaqDataLink",
    "Progress",
    "Quandl",
    "RetrySettings",
    "Sample",
    "SkfolioSample",
    "Source",
    "Yahoo",
    "make_source",
]


def make_source(name: str, **settings: Any) -> Source:
    """The source of that name; a `SettingsError` names the ones there are, or the setting that is wrong."""
    known = tuple(SOURCES) if name not in SOURCES else ()
    if known:
        raise SettingsError(
            f"source: there is no source {name!r}{did_you_mean(name, known)}; choose from {', '.join(known)}."
        )
    return SOURCES[name](**settings)
