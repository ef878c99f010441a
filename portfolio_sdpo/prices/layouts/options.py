"""What the user says about a layout: `wide`, `wide:dayfirst`, `long:ticker=tic,price=adjcp`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from portfolio_sdpo.errors import LayoutError, did_you_mean

LAYOUTS: dict[str, str] = {
    "wide": "one row per date, one column per ticker",
    "long": "one row per date and ticker, with a column that names the ticker",
    "per-ticker": "one file per ticker with open, high, low, close, volume; the file's name is the ticker",
    "yfinance-history": "one file per ticker from yfinance's `history`, auto-adjusted, with Dividends and Stock Splits",
    "yfinance-download": "yfinance's `download`: two header rows, price and ticker (three in a CSV file)",
    "fields": "one column per ticker and field, such as AAPL.Close or Close_AAPL, in any order",
    "nasdaq": "one file per ticker as nasdaq.com gives it: MM/DD/YYYY, newest first, `$179.66`",
}
"""Every layout and what it looks like."""

ONE_FILE_PER_TICKER = ("per-ticker", "yfinance-history", "nasdaq")

DATE_FORMS = ("iso", "zoned", "dayfirst", "monthfirst", "yyyymmdd")
"""How dates are written: 2020-01-02, 2020-01-02 00:00:00-05:00 (New York), 02/01/2020, 01/02/2020, 20200102."""

FILE_KINDS = ("csv", "csv.gz", "parquet")
"""The files that can be read and written, by the end of their names."""


@dataclass(frozen=True)
class LayoutOptions:
    """A layout and its options; None = find out when reading, the layout's habit when writing."""

    layout: str | None = None
    dates: str | None = None
    ticker: str | None = None
    """Name of the column of tickers in `long`."""
    price: str | None = None
    """Name of the column of prices."""
    files: str | None = None
    """Kind of the files in a folder that is written."""
    decimal: str | None = None
    """`comma` or `point`, where the numbers do not show which one they have."""

    @property
    def dayfirst(self) -> bool | None:
        """Whether 03/01/2011 is in January; None when the file has to tell."""
        return {"dayfirst": True, "monthfirst": False}.get(self.dates or "")

    def with_dayfirst(self, dayfirst: bool | None) -> LayoutOptions:
        """The choice with an order of day and month, unless that is None."""
        return self if dayfirst is None else replace(self, dates="dayfirst" if dayfirst else "monthfirst")


_VALUES: dict[str, tuple[str, ...] | None] = {
    "dates": DATE_FORMS,
    "ticker": None,
    "price": None,
    "files": FILE_KINDS,
    "decimal": ("comma", "point"),
}


def spell_option(layout: str, **options: str) -> str:
    """A layout as it is written on the command line.

    >>> spell_option("long", ticker="tic", price="PX LAST"), spell_option("wide")
    ("--layout 'long:ticker=tic,price=PX LAST'", '--layout wide')
    """
    text = ",".join(f"{key}={value}" for key, value in options.items())
    return f"--layout {shlex.quote(f'{layout}:{text}' if text else layout)}"


def _split_options(text: str) -> list[str]:
    """The options at their commas; a comma may also be in the name of a column, such as `('Close', 'AAPL')`."""
    parts: list[str] = []
    for part in filter(None, text.split(",")):
        begins = part.partition("=")[0] in _VALUES or part in DATE_FORMS
        if parts and not begins and parts[-1].partition("=")[0] in ("ticker", "price"):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


def parse_layout(text: str | None) -> LayoutOptions:
    """Read `layout[:option,...]`; an option is `key=value`, or a date form alone.

    >>> parse_layout("long:ticker=tic,dayfirst")
    LayoutOptions(layout='long', dates='dayfirst', ticker='tic', price=None, files=None, decimal=None)
    """
    layout, _, rest = (text or "").partition(":")
    if layout and layout not in LAYOUTS:
        raise LayoutError(
            f"there is no layout {layout!r}{did_you_mean(layout, LAYOUTS)}: choose one of {', '.join(LAYOUTS)}."
        )
    options: dict[str, str] = {}
    for part in _split_options(rest):
        key, given, value = part.partition("=")
        if not given:
            key, value = "dates", part
        if key not in _VALUES:
            raise LayoutError(f"a layout has no option {key!r}: choose from {', '.join(_VALUES)}.")
        allowed = _VALUES[key]
        if allowed is not None and value not in allowed:
            raise LayoutError(f"the layout option {key} cannot be {value!r}: choose one of {', '.join(allowed)}.")
        options[key] = value
    return LayoutOptions(layout or None, **options)
