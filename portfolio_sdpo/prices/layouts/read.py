"""From a file or a folder to `Prices`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os.path import isdir  # says no where a folder above is closed, and the reader then says why
from pathlib import Path

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import adjustment_from_names
from portfolio_sdpo.prices.layouts.dates import parse_dates
from portfolio_sdpo.prices.layouts.files import ENDINGS, file_kind, open_table, ticker_of
from portfolio_sdpo.prices.layouts.options import LAYOUTS, ONE_FILE_PER_TICKER, LayoutOptions, parse_layout
from portfolio_sdpo.prices.layouts.pivot import pivot
from portfolio_sdpo.prices.layouts.raw_table import RawTable
from portfolio_sdpo.prices.layouts.recognise import Candidate, Plan, recognise
from portfolio_sdpo.prices.prices import Adjustment, Prices, join_columns, to_wide


def read_prices(path: Path, layout: str | None = None, dayfirst: bool | None = None) -> Prices:
    """Prices from a CSV, CSV.gz or Parquet file, or from a folder of them.

    layout: one of `LAYOUTS`, with options after a colon (`wide:dayfirst`, `long:ticker=tic,price=close`); None = find
    out. dayfirst: whether 03/01/2011 is in January; None = the file has to tell. The notes of the result say what was
    recognised and which column was used.
    """
    path = Path(path)
    options = parse_layout(layout).with_dayfirst(dayfirst)
    prices = _read_folder(path, options) if isdir(path) else _read_file(path, options)
    if np.isnan(prices.frame.to_numpy()).all():
        raise LayoutError(f"{path}: there is no price under {prices.column}; a file without prices cannot be used.")
    return prices


def _read_file(path: Path, options: LayoutOptions) -> Prices:
    try:
        table = open_table(path)
        return _read_table(table, recognise(table, options), options, ticker_of(path))
    except LayoutError as error:
        raise LayoutError(f"{path}: {error}") from None


def _read_table(table: RawTable, plan: Plan, options: LayoutOptions, name_of_file: str) -> Prices:
    used, texts, values = _load(table, plan)
    # nasdaq.com writes the month first, whatever else its dates could be.
    dates = parse_dates(texts[0], False if plan.layout == "nasdaq" and options.dates is None else options.dayfirst)
    dated = _find_dated_rows(dates.days, values)
    keep = slice(None) if dated.all() else dated  # mostly all of them, and a copy is spared
    days, values = dates.days[keep], values[keep]
    if plan.ticker is not None:
        frame = pivot(days, texts[1][keep], values[:, 0])
    else:
        frame = pd.DataFrame(
            values, index=pd.DatetimeIndex(days), columns=_check_unique(used.tickers or (name_of_file,))
        )
    adjustment = table.facts.adjustment or infer_adjustment(plan.layout, used.name, table.names)
    return Prices(
        frame=to_wide(frame),
        column=table.facts.column or used.name,
        adjustment=adjustment,
        notes=(
            _describe(table, plan, used, options),
            *_explain(plan, used, adjustment),
            *dates.notes,
            *table.facts.notes,
        ),
    )


def _load(table: RawTable, plan: Plan) -> tuple[Candidate, list[pd.Series], np.ndarray]:
    """The first candidate that holds any number, the columns of text, and the prices (rows × columns)."""
    words = [plan.date] if plan.ticker is None else [plan.date, plan.ticker]
    for candidate in plan.candidates:
        texts, values = table.load(words, candidate.columns)
        if not np.isnan(values).all():
            return candidate, texts, values
    return candidate, texts, values  # empty, for cleaning to report if other files of the folder have prices


def _find_dated_rows(days: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Which rows to keep: those without a date, which must be empty, go."""
    undated = np.isnat(days)
    if undated.any():
        priced = undated & ~np.isnan(values).all(axis=1)
        if priced.any():
            row = int(priced.argmax()) + 1
            raise LayoutError(f"row {row} of the data has a price and no date; add the date or drop the row.")
    return ~undated


def _check_unique(tickers: Sequence[str]) -> list[str]:
    names = [ticker.strip() for ticker in tickers]
    if "" in names:
        raise LayoutError("a column of prices has no ticker above it; add it or drop the column.")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise LayoutError(f"{count} columns are called {name}; rename them or keep one.")
    return names


def infer_adjustment(layout: str, column: str, names: Sequence[str]) -> Adjustment:
    """What a table with these columns says about its prices by its form."""
    if layout == "wide":
        return "unknown"
    if layout == "yfinance-download":  # has dividends and splits in its `Close`, unless `Adj Close` is there as well
        return adjustment_from_names(column, [*names, "Dividends", "Stock Splits"])
    return adjustment_from_names(column, names)


def _describe(table: RawTable, plan: Plan, used: Candidate, options: LayoutOptions) -> str:
    """Which layout, and which columns."""
    columns = [f"dates from {table.names[plan.date] or 'the column without a name'}"]
    if plan.ticker is not None:
        columns.append(f"tickers from {table.names[plan.ticker]}")
    elif plan.layout in ONE_FILE_PER_TICKER:
        columns.append("ticker from the name of the file")
    if plan.layout != "wide":
        columns.append(f"prices from {used.name}")
    verb = "Recognised" if options.layout is None else "Read"
    return f"{verb} as {plan.layout} ({LAYOUTS[plan.layout]}): {', '.join(columns)}."


def _explain(plan: Plan, used: Candidate, adjustment: Adjustment) -> tuple[str, ...]:
    """Why this column of prices and not another one."""
    names = [candidate.name for candidate in plan.candidates]
    place = plan.candidates.index(used)
    if place:
        return (f"{used.name} used, not {' or '.join(names[:place])}, which is empty.",)
    if names[1:]:
        why = ": adjusted prices are preferred" if adjustment == "total-return" else ""
        return (f"{used.name} used, not {' or '.join(names[1:])}{why}.",)
    if plan.layout != "wide" and adjustment == "unknown":
        return (f"Nothing says whether {used.name} is adjusted for dividends and splits.",)
    return ()


def _read_folder(folder: Path, options: LayoutOptions) -> Prices:
    """Every file of the folder, each in its own layout; no two of them may have the same ticker."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise LayoutError(f"{folder}: the folder cannot be read ({error.strerror}); check its permissions.") from None
    files = [entry for entry in entries if file_kind(entry) is not None and entry.is_file()]
    if not files:
        raise LayoutError(f"{folder}: the folder has no {ENDINGS} file.")
    parts = {file.name: _read_file(file, options) for file in files}
    owner: dict[str, str] = {}
    for name, part in parts.items():
        for ticker in part.frame.columns:
            if ticker in owner:
                raise LayoutError(f"{folder}: {owner[ticker]} and {name} both have prices of {ticker}; keep one.")
            owner[ticker] = name
    adjustments = {part.adjustment for part in parts.values()}
    notes = _gather_notes({name: part.notes for name, part in parts.items()})
    if len(adjustments) > 1:
        notes.append(f"The prices of the files are not adjusted alike: {', '.join(sorted(adjustments))}.")
    ignored = [entry.name for entry in entries if entry not in files]
    if ignored:
        notes.append(f"Ignored {_join_names(ignored)}: only {ENDINGS} files are read.")
    return Prices(
        frame=to_wide(join_columns([part.frame for part in parts.values()])),
        column=", ".join(sorted({part.column for part in parts.values()})),
        adjustment=adjustments.pop() if len(adjustments) == 1 else "unknown",
        notes=tuple(notes),
    )


def _gather_notes(notes: dict[str, tuple[str, ...]]) -> list[str]:
    """Each note once, with the files that it is about unless that is all of them."""
    files: dict[str, list[str]] = {}
    for name, sentences in notes.items():
        for sentence in sentences:
            files.setdefault(sentence, []).append(name)
    return [
        sentence if len(names) == len(notes) else f"{_join_names(names)}: {sentence}"
        for sentence, names in files.items()
    ]


def _join_names(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"
