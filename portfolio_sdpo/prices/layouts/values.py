"""What the numbers that were read as prices look like: returns, volumes and flags are refused, column by column."""

from __future__ import annotations

import re

import pandas as pd

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import looks_like_ticker
from portfolio_sdpo.prices.layouts.melted import IDENTIFIER
from portfolio_sdpo.prices.layouts.options import spell_option
from portfolio_sdpo.prices.layouts.plan import Plan
from portfolio_sdpo.prices.plausibility import (
    Values,
    are_weights,
    describe_values,
    find_open_high_low_close,
    find_total,
    find_twins,
)

_UNITS = {"returns": "decimal", "returns in percent": "percent", "gross returns": "gross"}
_REASONS = {
    "sums of money": "holds sums of money that no security costs, such as the value of a company",
    "negative numbers": "holds mostly negative numbers, which prices are not",
    "numbers of rows": "counts the rows",
    "volumes": "holds numbers that jump like volumes and not like prices",
    "flags": "holds a few whole numbers, zero among them, like flags and not like prices",
    "rates": "holds tiny numbers that hardly ever change, like rates and not like prices",
}


_PAIR = re.compile(r"[A-Z]{6}=X|[A-Z]{3}[/-][A-Z]{3}")
"""An exchange rate that is held as a security: a rupiah is worth 0.00006 dollars, rounded so on most days."""


def check_values(frame: pd.DataFrame, plan: Plan) -> None:
    """Refuse columns that do not look like prices, with what they look like and how they can be read.

    frame: date × ticker, as it was read.
    """
    values = frame.to_numpy()
    looks = describe_values(values)
    odd = {
        ticker: look
        for ticker, look in zip(frame.columns.tolist(), looks, strict=True)
        if look is not None and not (look == "rates" and _PAIR.fullmatch(ticker))
    }
    as_prices = spell_option(plan.layout)
    returns = [look for look in odd.values() if look in _UNITS]
    if len(returns) > len(looks) / 2:
        raise LayoutError(
            f"the numbers look like {returns[0]} and not like prices: add --returns {_UNITS[returns[0]]} to turn them "
            f"into prices, or {as_prices} if they are prices."
        )
    if are_weights(values):
        raise LayoutError(
            f"the numbers of every row add up to 1, so that they look like weights and not like prices: import the "
            f"prices of these tickers, or read the numbers as prices with {as_prices}."
        )
    for ticker, look in odd.items():
        reason = _REASONS.get(look, f"holds numbers like {look}, and others hold prices")
        drop = "drop its rows" if plan.layout == "long" else "drop the column"
        # Negative numbers are refused by cleaning whatever layout is named.
        way = "" if look == "negative numbers" else f", or read all numbers as prices with {as_prices}"
        raise LayoutError(f"{ticker!r} {reason}: {drop} or name the others with --tickers{way}.")
    if plan.layout == "wide" and (total := find_total(values)) is not None:
        raise LayoutError(
            f"{frame.columns[total]!r} is in every row the sum or the mean of the others: drop the column or name the "
            f"others with --tickers, or read all numbers as prices with {as_prices}."
        )
    if plan.layout == "wide" and (found := find_open_high_low_close(values)) and not _are_tickers(frame, found):
        high, low, between = found
        ways = " or ".join(spell_option("per-ticker", price=frame.columns[column]) for column in between[:2])
        raise LayoutError(
            f"{frame.columns[high]!r} is never below and {frame.columns[low]!r} never above the columns beside them, "
            f"so they look like high and low of one security: read it with {ways}, or all columns as tickers with "
            f"{as_prices}."
        )
    if plan.layout == "wide" and (doubles := _find_doubles(frame, values)):
        raise LayoutError(
            f"{doubles[0]!r} and {doubles[1]!r} move as one in every row, like two prices of one security: drop one of "
            f"them or name the others with --tickers, or read all columns as tickers with {as_prices}."
        )
    if plan.layout in ("wide", "fields") and (twins := _find_only_twins(frame, values)):
        pair = [str(frame.columns[place]) for place in twins]
        ways = " or ".join(spell_option("per-ticker", price=name) for name in pair)
        one = f"read one of them with {ways}" if plan.layout == "wide" else "keep one of them"
        raise LayoutError(
            f"{pair[0]!r} and {pair[1]!r} move as one in every row, like two prices of one security: read all columns "
            f"as tickers with {as_prices} if they are several, or {one}."
        )


def _find_doubles(frame: pd.DataFrame, values: Values) -> tuple[str, str] | None:
    """A name and the same name with something behind a blank that move as one: `AAPL` and `AAPL TR`."""
    places = {str(name): place for place, name in enumerate(frame.columns.tolist())}
    for name, place in places.items():
        owner = name.rpartition(" ")[0]
        if owner in places and find_twins(values, (places[owner], place)):
            return owner, name
    return None


def _find_only_twins(frame: pd.DataFrame, values: Values) -> tuple[int, int] | None:
    """Two columns that move as one, where every other column does so too: prices of several securities differ.

    Columns that are called after securities, by ticker or identifier, are those of securities.
    """
    unknown = [
        place
        for place, name in enumerate(frame.columns.tolist())
        if not looks_like_ticker(name) and not IDENTIFIER.fullmatch(str(name))
    ]
    twins = find_twins(values, unknown) if len(unknown) > 1 else None
    if twins is None:
        return None
    others = (column for column in range(values.shape[1]) if column not in twins)
    return twins if all(find_twins(values, (twins[0], other)) for other in others) else None


def _are_tickers(frame: pd.DataFrame, found: tuple[int, int, tuple[int, ...]]) -> bool:
    """Whether high, low and what is between them are called like tickers, as funds on one index are."""
    high, low, between = found
    names = [str(frame.columns[place]) for place in (high, low, *between)]
    return all(len(name) >= 3 and looks_like_ticker(name) for name in names)
