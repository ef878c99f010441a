"""From a file or a folder to `Prices`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os.path import isdir  # says no where a folder above is closed, and the reader then says why
from pathlib import Path

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.blocks import Block, split_blocks
from portfolio_sdpo.prices.layouts.column_names import (
    ADJUSTED,
    CRSP,
    CURRENCIES,
    CURRENCY,
    RAW,
    UNADJUSTED,
    adjustment_from_names,
    find_columns,
    normalise_name,
    split_unit,
)
from portfolio_sdpo.prices.layouts.dates import parse_dates
from portfolio_sdpo.prices.layouts.files import ENDINGS, file_kind, open_table, ticker_of
from portfolio_sdpo.prices.layouts.options import LAYOUTS, ONE_FILE_PER_TICKER, LayoutOptions, parse_layout
from portfolio_sdpo.prices.layouts.pivot import select_rows
from portfolio_sdpo.prices.layouts.plan import Candidate, Plan
from portfolio_sdpo.prices.layouts.raw_table import RawTable
from portfolio_sdpo.prices.layouts.recognise import recognise
from portfolio_sdpo.prices.layouts.refusals import refuse_series_of_one_name
from portfolio_sdpo.prices.layouts.securities import split_names
from portfolio_sdpo.prices.layouts.times import parse_times
from portfolio_sdpo.prices.layouts.values import check_values
from portfolio_sdpo.prices.prices import Adjustment, Prices, join_columns, to_wide
from portfolio_sdpo.prices.returns import ReturnUnit, check_unit, turn_into_prices


def read_prices(
    path: Path,
    layout: str | None = None,
    dayfirst: bool | None = None,
    *,
    returns: str | None = None,
    to_daily: bool = False,
    tickers: Sequence[str] = (),
    exchange_rates: bool = False,
) -> Prices:
    """Prices from a file (CSV, text, JSON, Excel, Parquet, also packed with gzip), or from a folder of them.

    layout: one of `LAYOUTS`, with options after a colon (`wide:dayfirst`, `long:ticker=tic,price=close`); None =
    recognise it. dayfirst: whether 03/01/2011 is in January; None = the file has to show it. returns: the unit of the
    numbers (`decimal`, `percent`, `log`, `gross`) if they are returns, which are turned into prices. to_daily: keep the
    last price of each day of intraday data. tickers: those that are wanted, so that the others may hold anything; all
    are returned nevertheless. exchange_rates: the numbers are those, and need not look like prices. The notes of the
    result say what was recognised and which column was used.
    """
    path = Path(path)
    unit = None if returns is None else check_unit(returns)
    wanted = frozenset(spelling for ticker in tickers for spelling in (ticker, ticker.upper()))
    reading = Reading(parse_layout(layout).with_dayfirst(dayfirst), unit, to_daily, wanted, exchange_rates)
    prices = _read_folder(path, reading) if isdir(path) else _read_file(path, reading)
    if not _has_price(prices.frame.to_numpy()):
        raise LayoutError(f"{path}: there is no price under {prices.column}; a file without prices cannot be used.")
    return prices if unit is None else turn_into_prices(prices, unit)


@dataclass(frozen=True)
class Reading:
    """What the user asks of a reading."""

    options: LayoutOptions
    returns: ReturnUnit | None = None
    to_daily: bool = False
    tickers: frozenset[str] = frozenset()
    """Those whose prices are wanted; all where it is empty."""
    exchange_rates: bool = False
    """Whether the numbers are those, and need not look like prices."""


def _read_file(path: Path, reading: Reading) -> Prices:
    try:
        table = open_table(path, reading.options.decimal, reading.returns == "percent")
        if blocks := split_blocks(table):
            return _join_blocks([_read_block(block, reading, ticker_of(path)) for block in blocks])
        return _read_table(table, recognise(table, reading.options, reading.tickers), reading, ticker_of(path))
    except LayoutError as error:
        raise LayoutError(f"{path}: {error}") from None


def _read_block(block: Block, reading: Reading, name_of_file: str) -> Prices:
    return _read_table(block, recognise(block, reading.options, reading.tickers), reading, name_of_file)


def _join_blocks(blocks: Sequence[Prices]) -> Prices:
    """Tables with dates of their own as one."""
    tickers = Counter(ticker for block in blocks for ticker in block.frame.columns)
    ticker, count = tickers.most_common(1)[0]
    if count > 1:
        raise LayoutError(f"{count} columns of dates have prices of {ticker}; write the ticker above each of them.")
    notes = dict.fromkeys(note for block in blocks for note in block.notes)
    return _join_parts(blocks, [f"{len(blocks)} columns of dates were read apart.", *notes])


def _read_table(table: RawTable, plan: Plan, reading: Reading, name_of_file: str) -> Prices:
    options = reading.options
    used, texts, values = _load(table, plan)
    tickers = None if plan.ticker is None else texts[1]
    # nasdaq.com writes the month first, whatever else its dates could be.
    dates = parse_dates(texts[0], False if plan.layout == "nasdaq" and options.dates is None else options.dayfirst)
    if plan.time is not None and dates.times is None:
        dates = replace(dates, times=parse_times(texts[-1]))
    notes = [_describe(table, plan, used, options)]
    if normalise_name(used.name) in CRSP and (values < 0).any():
        values = np.abs(values)
        notes.append("Negative prices were made positive: CRSP marks averages of bid and ask so.")
    names = () if plan.ticker is not None else _check_unique(used.tickers or (name_of_file,))
    rows = select_rows(dates, _find_dated_rows(dates.days, values), tickers, reading.to_daily)

    def arrange(numbers: np.ndarray) -> pd.DataFrame:
        return to_wide(rows.arrange(numbers, tickers, names))

    frame = arrange(values)
    if tickers is not None and not frame.index.is_unique and options.layout is None:
        refuse_series_of_one_name(table, plan, dates.days, tickers)
    if options.layout is None and reading.returns is None and not reading.exchange_rates:
        wanted = [ticker for ticker in frame.columns.tolist() if ticker in reading.tickers]
        check_values(frame[wanted] if wanted else frame, plan)
    adjustment = table.facts.adjustment or infer_adjustment(plan.layout, used.name, table.names)
    return Prices(
        frame=frame,
        column=table.facts.column or used.name,
        adjustment=adjustment,
        notes=(
            *notes,
            *_explain(plan, used, adjustment),
            *plan.notes,
            *_warn_of_currencies(plan, frame),
            *dates.notes,
            *rows.notes,
            *table.facts.notes,
        ),
        companions=_read_companions(table, plan, used, arrange),
        currencies=_read_units(table, plan, used, frame) | _read_currencies(table, plan, frame.columns.tolist()),
    )


def _load(table: RawTable, plan: Plan) -> tuple[Candidate, list[pd.Series], np.ndarray]:
    """The first candidate that holds any number, the columns of text, and the prices (rows × columns)."""
    words = [column for column in (plan.date, plan.ticker, plan.time) if column is not None]
    for candidate in plan.candidates:
        texts, values = table.load(words, candidate.columns)
        if _has_price(values):
            return candidate, texts, values
    return candidate, texts, values  # empty, for cleaning to report if other files of the folder have prices


def _has_price(values: np.ndarray) -> bool:
    """Whether any number is there; mostly the first column tells."""
    return any(not np.isnan(column).all() for column in values.T)


_COMPANIONS = {
    "dividends": ("dividends", "dividend", "divcash", "exdividend", "dividendamount"),
    "splits": ("stocksplits", "splits", "splitratio", "splitfactor", "splitcoefficient"),
}


def _read_companions(
    table: RawTable, plan: Plan, used: Candidate, arrange: Callable[[np.ndarray], pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """Closes that are not adjusted beside those that are, dividends and splits; each where the file has any."""
    columns: dict[str, tuple[int, ...]] = {}
    if normalise_name(used.name) in ADJUSTED:
        raw = [each for each in plan.candidates if normalise_name(each.name) in RAW and each.tickers == used.tickers]
        columns |= {"close": raw[0].columns} if raw else {}
    unadjusted = find_columns(table.names, UNADJUSTED)
    if unadjusted and plan.layout not in ("wide", "fields", "yfinance-download"):
        columns["close"] = (unadjusted[0],)  # `Close` beside it is adjusted for splits
    for kind, words in _COMPANIONS.items():
        if plan.layout in ("fields", "yfinance-download"):
            owners = _find_fields(table, words)
            columns |= {kind: tuple(owners[t] for t in used.tickers)} if set(used.tickers) <= owners.keys() else {}
        elif plan.layout != "wide" and (found := find_columns(table.names, words)):
            columns[kind] = (found[0],)
    companions = {}
    for kind, places in columns.items():
        try:
            numbers = table.load([], places)[1]
        except LayoutError:
            continue  # a dividend that is no number does not spoil the prices
        filled = ~np.isnan(numbers)
        if filled.any() and (kind == "close" or (numbers[filled] != 0).any()):
            companions[kind] = arrange(numbers)
    return companions


def _find_fields(table: RawTable, words: Sequence[str]) -> dict[str, int]:
    """The column of each ticker that is called by one of the words, in a header of tickers and fields."""
    if table.tickers is None:
        pairs = {table.names.index(name): parts for name, parts in split_names(table.names).items()}
    else:
        pairs = dict(enumerate(zip(table.tickers, table.names, strict=True)))
    return {ticker: column for column, (ticker, field) in pairs.items() if normalise_name(field) in words}


def _read_units(table: RawTable, plan: Plan, used: Candidate, frame: pd.DataFrame) -> dict[str, str]:
    """The currency of each ticker, where the name of its column states it, or a row of units: `AAPL USD`."""
    if table.facts.currencies and plan.ticker is None:
        units = [table.facts.currencies[column] for column in used.columns]
        owners = used.tickers or tuple(frame.columns)
        return {ticker.strip(): unit for ticker, unit in zip(owners, units, strict=True) if unit}
    if plan.layout == "wide":
        return {ticker: unit[1] for ticker in frame.columns.tolist() if (unit := split_unit(ticker)) is not None}
    unit = split_unit(used.name)
    return {} if unit is None else dict.fromkeys(frame.columns, unit[1])


def _read_currencies(table: RawTable, plan: Plan, tickers: Sequence[str]) -> dict[str, str]:
    """The currency of each ticker, where a column of the table states it."""
    found = [column for column in find_columns(table.names, CURRENCY) if column not in (plan.date, plan.ticker)]
    if not found or plan.layout in ("wide", "fields", "yfinance-download"):
        return {}
    texts, _ = table.load([found[0]] if plan.ticker is None else [found[0], plan.ticker], [])
    currencies = texts[0].astype("str").str.strip()
    owners = (
        pd.Series(tickers[0], index=currencies.index) if plan.ticker is None else texts[1].astype("str").str.strip()
    )
    pairs = pd.DataFrame({"ticker": owners.to_numpy(), "currency": currencies.to_numpy()}).drop_duplicates()
    pairs = pairs[~pairs["currency"].isin(["", "nan", "None"])]
    return {ticker: "/".join(sorted(group)) for ticker, group in pairs.groupby("ticker")["currency"]}


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
        columns.append(f"tickers from {table.names[plan.ticker] or 'the column without a name'}")
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


def _warn_of_currencies(plan: Plan, frame: pd.DataFrame) -> list[str]:
    """USD at 1.07 in the rates of the ECB is no price of a dollar."""
    if plan.layout != "wide" or frame.shape[1] < 2 or not all(name in CURRENCIES for name in frame.columns.tolist()):
        return []
    one = frame.columns[0]
    return [
        "The columns are named after currencies, and nothing says in which one these are priced: if the numbers are "
        f"how many {one} another currency costs, they are no prices of {one}; rename the columns to pairs such as "
        f"EUR{one if one != 'EUR' else 'USD'}."
    ]


def _read_folder(folder: Path, reading: Reading) -> Prices:
    """Every file of the folder, each in its own layout; no two of them may have the same ticker."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise LayoutError(f"{folder}: the folder cannot be read ({error.strerror}); check its permissions.") from None
    files = [entry for entry in entries if file_kind(entry) is not None and entry.is_file()]
    if not files:
        raise LayoutError(f"{folder}: the folder has no {ENDINGS} file.")
    parts = {file.name: _read_file(file, reading) for file in files}
    owner: dict[str, str] = {}
    for name, part in parts.items():
        for ticker in part.frame.columns:
            if ticker in owner:
                raise LayoutError(f"{folder}: {owner[ticker]} and {name} both have prices of {ticker}; keep one.")
            owner[ticker] = name
    notes = _gather_notes({name: part.notes for name, part in parts.items()})
    ignored = [entry.name for entry in entries if entry not in files]
    if ignored:
        notes.append(f"Ignored {_join_names(ignored)}: only {ENDINGS} files are read.")
    return _join_parts(list(parts.values()), notes)


def _join_parts(parts: Sequence[Prices], notes: Sequence[str]) -> Prices:
    """Prices of different tickers as one table."""
    adjustments = {part.adjustment for part in parts}
    if len(adjustments) > 1:
        notes = [*notes, f"The prices are not adjusted alike: {', '.join(sorted(adjustments))}."]
    return Prices(
        frame=to_wide(join_columns([part.frame for part in parts])),
        column=", ".join(sorted({part.column for part in parts})),
        adjustment=adjustments.pop() if len(adjustments) == 1 else "unknown",
        notes=tuple(notes),
        companions={
            kind: to_wide(join_columns([part.companions[kind] for part in parts if kind in part.companions]))
            for kind in sorted({kind for part in parts for kind in part.companions})
        },
        currencies={ticker: each for part in parts for ticker, each in part.currencies.items()},
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
