"""Prices that are at hand without a network: the bundled sample, and the one that comes with skfolio."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import ClassVar

from portfolio_sdpo.prices.prices import Prices
from portfolio_sdpo.prices.sources.base import Progress, SourceSettings, select


class Sample(SourceSettings):
    """The bundled sample: the paper's nine stocks, 2016 to 2021."""

    name: ClassVar[str] = "sample"
    never_changes: ClassVar[bool] = True

    def fetch(
        self, tickers: Sequence[str], start: date | None, end: date | None, progress: Progress | None = None
    ) -> Prices:
        """See `Source.fetch`; no tickers = all of the sample."""
        from portfolio_sdpo.prices.samples import load_sample

        return select(load_sample(self.name), f"the {self.name}", tickers, start, end, progress)


class SkfolioSample(Sample):
    """Twenty stocks, 1990 to 2022, from the installed skfolio package."""

    name: ClassVar[str] = "sample-skfolio"
