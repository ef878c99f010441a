"""Figures that are cut to days."""

from __future__ import annotations

from datetime import date

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.report.through_time import draw_trading
from portfolio_sdpo_app.dashboard.widgets.figures import cut_to_days


@pytest.mark.parametrize(
    ("first", "last", "months"),
    [
        (date(2019, 2, 19), date(2019, 3, 20), ["2019-02-01", "2019-03-01"]),
        (date(2019, 2, 1), date(2019, 2, 28), ["2019-02-01"]),
        (date(2019, 3, 4), date(2019, 3, 8), ["2019-03-01"]),
        (date(2019, 1, 2), date(2019, 4, 30), ["2019-01-01", "2019-02-01", "2019-03-01", "2019-04-01"]),
    ],
)
@pytest.mark.parametrize("until", ["2019-02-28", "2019-04-30"])
def test_a_month_is_shown_if_any_of_its_days_is(first: date, last: date, months: list[str], until: str):
    """Of two months that traded the same as well, which make no straight line."""
    days = pd.bdate_range("2019-01-02", until)
    months = [month for month in months if month <= until]
    place = days.to_series().groupby(days.month).cumcount().to_numpy()
    turnover = np.where(place < 5, 0.1, 0.0)  # a half in every month
    rows = pd.DataFrame({"date": days, "turnover": turnover, "cost": turnover / 1000, "wealth": 1.0})
    bars, line = cut_to_days(draw_trading(rows), first, last)["data"]
    assert bars["x"] == months and bars["y"] == [0.5] * len(months)
    assert line["x"] == [str(day.date()) for day in days if first <= day.date() <= last]
