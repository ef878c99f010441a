"""`load_prices`: one call from a file, a snapshot or a frame to a table of prices that has passed the checks."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pandas as pd

from portfolio_sdpo.errors import DataQualityError, LayoutError, SettingsError, SnapshotError, did_you_mean
from portfolio_sdpo.prices.frame_checks import check_prices


def load_prices(
    source: str | os.PathLike[str] | pd.DataFrame,
    *,
    layout: str | None = None,
    dayfirst: bool | None = None,
    returns: str | None = None,
    to_daily: bool = False,
    calendar: str | None = "XNYS",
) -> pd.DataFrame:
    """Load adjusted closes from a file, a snapshot or a DataFrame, and check them.

    Prices are never filled from the future. A file is cleaned as `portfolio-sdpo data import` cleans it: a gap of at
    most five sessions keeps the last price, and what cannot be right is an error. A DataFrame is checked and otherwise
    returned as it is.

    Parameters
    ----------
    source : str, path or DataFrame
        A CSV, gzipped CSV or Parquet file, or a folder of them; the name of a snapshot (`mine`, or `mine@hash` for one
        of its versions); `"sample"`, the bundled prices of nine US stocks from 2016 to 2021, or `"sample-skfolio"`; or
        a DataFrame of shape (n_sessions, n_tickers) with dates as its index. A text is taken as a snapshot's name
        where there is such a snapshot, otherwise as a path.
    layout : str, optional
        The layout of the file, such as `"wide"`; by default it is recognised.
    dayfirst : bool, optional
        Whether 03/01/2011 is in January; by default the file has to tell.
    returns : {"decimal", "percent", "log", "gross"}, optional
        The unit of the numbers in a file of returns, which are turned into prices; by default they must be prices.
    to_daily : bool, default False
        Whether to keep the last price of each day of a file with intraday prices, which is refused otherwise.
    calendar : str or None, default "XNYS"
        The exchange whose sessions the dates of a file are compared with; None takes every date as a session.

    Returns
    -------
    DataFrame of shape (n_sessions, n_tickers)
        float64, index `date` ascending, NaN where a ticker has no price. For files, snapshots and samples,
        `attrs["notes"]` is a tuple of sentences about the prices.

    Raises
    ------
    LayoutError, DataQualityError, SnapshotError
        If the file cannot be understood, the prices cannot be right, or there is no such snapshot or file.

    Examples
    --------
    >>> prices = load_prices("sample")
    >>> prices.shape
    (1457, 9)
    >>> prices.loc["2021-10-14", "MSFT"]
    np.float64(302.75)
    >>> load_prices(prices.pct_change().dropna())
    Traceback (most recent call last):
        ...
    portfolio_sdpo.errors.DataQualityError: prices: these look like returns, not prices; give the adjusted closes \
themselves, or build them from simple returns with 100 * (1 + returns).cumprod().
    """
    if not isinstance(source, str | os.PathLike):
        return check_prices(source)
    options = {"layout": layout, "dayfirst": dayfirst, "returns": returns, "to_daily": to_daily}
    try:
        frame, notes = _read(source, options, calendar)
    except (LayoutError, DataQualityError) as error:
        raise type(error)(_name_parameters(str(error))) from None
    frame = check_prices(frame)
    frame.attrs["notes"] = notes
    return frame


def _name_parameters(sentence: str) -> str:
    """The sentence with the parameters of `load_prices` where it names options of the command line.

    >>> _name_parameters("add --returns gross, or --to-daily.")
    "add returns='gross', or to_daily=True."
    >>> _name_parameters("read it with --layout long:ticker=tic,price=px, or --layout 'per-ticker:price=PX LAST'.")
    "read it with layout='long:ticker=tic,price=px', or layout='per-ticker:price=PX LAST'."
    """
    sentence = sentence.replace("--to-daily", "to_daily=True").replace("--dayfirst", "dayfirst=True")
    sentence = sentence.replace(" or name the others with --tickers", "")
    return re.sub(r"--(returns|layout) (?:'([^']*)'|(\S+?))(?=[.,;]?(?:\s|$))", r"\1='\2\3'", sentence)


def _read(
    source: str | os.PathLike[str], options: dict[str, Any], calendar: str | None
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The cleaned prices of a snapshot, a file or a sample, and what is said about them."""
    from portfolio_sdpo.prices.layouts import read_prices
    from portfolio_sdpo.prices.samples import SAMPLES, load_sample
    from portfolio_sdpo.prices.snapshots import NAME, Store

    store = Store()
    if isinstance(source, str) and NAME.fullmatch(source.partition("@")[0]):
        if source.partition("@")[0] in store.list():
            if any(value not in (None, False) for value in options.values()):
                raise SettingsError(f"{', '.join(options)}: are for files, and {source} is a snapshot; leave them out.")
            snapshot = store.open(source)
            return snapshot.frame, (*snapshot.manifest.notes, *snapshot.manifest.warnings)
        if not Path(source).exists():
            if source in SAMPLES:
                return _clean(load_sample(source), "XNYS")
            if not Path(source).suffix:
                raise _unknown(source, (*store.list(), *SAMPLES))
    return _clean(read_prices(Path(source).expanduser(), **options), calendar)


def _clean(prices: Any, calendar: str | None) -> tuple[pd.DataFrame, tuple[str, ...]]:
    from portfolio_sdpo.prices.cleaning import clean

    cleaned = clean(prices, calendar=calendar)
    return cleaned.frame, (*prices.notes, *(finding.sentence for finding in cleaned.report.warnings))


def _unknown(source: str, known: tuple[str, ...]) -> SnapshotError:
    return SnapshotError(
        f"prices: there is neither a snapshot nor a file called {source}{did_you_mean(source, known)}; name a file "
        f"such as prices.csv, or one of {', '.join(known)}."
    )
