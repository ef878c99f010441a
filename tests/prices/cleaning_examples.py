"""Prices on the days of a real calendar, and findings by their kind, for the tests of cleaning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date

import numpy as np
import pandas as pd

from portfolio_sdpo.prices.calendar import load_sessions
from portfolio_sdpo.prices.cleaning import Finding, Report
from portfolio_sdpo.prices.prices import Prices, to_wide

NAN = math.nan
FIRST = date(2018, 11, 19)  # with Thanksgiving and the day of mourning for G. H. W. Bush ahead
CALENDAR = [day.item() for day in load_sessions("XNYS", np.datetime64(FIRST), np.datetime64("2019-02-28")).days]


def prices(columns: dict[str, Sequence[float]], days: Sequence[date | str]) -> Prices:
    return Prices(
        to_wide(pd.DataFrame(columns, index=pd.DatetimeIndex([str(day) for day in days]))), "close", "unknown"
    )


def of_kind(report: Report, kind: str) -> list[Finding]:
    return [found for found in report.findings if found.kind == kind]


def only(report: Report, kind: str) -> Finding:
    (found,) = of_kind(report, kind)
    return found
