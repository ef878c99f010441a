"""Limits of groups of stocks as people state them: a table with a row for every stock of a group."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.limits import GroupLimit

if TYPE_CHECKING:
    import pandas as pd

TICKER, GROUP, LIMIT = "ticker", "group", "max_weight"


def read_groups(source: str | os.PathLike[str] | pd.DataFrame | Sequence[Any] | None) -> tuple[GroupLimit, ...]:
    """The groups of a CSV file, of a frame with the same columns, or as they are stored.

    The columns are `ticker`, `group` and `max_weight`, the largest weight of the whole group; it may be left blank in
    all rows of a group but one. A stock may be in several groups.
    """
    if source is None:
        return ()
    if isinstance(source, str | os.PathLike):
        return parse_groups(_read_text(Path(source)))
    if hasattr(source, "to_csv"):
        return parse_groups(source.to_csv(index=False))
    try:
        return tuple(GroupLimit.model_validate(each) for each in source)
    except SettingsError as error:
        raise SettingsError(f"groups: {re.sub(r'^GroupLimit[.:] *', '', str(error))}") from None
    except (TypeError, ValueError):
        raise SettingsError(
            f"groups: must be a CSV file or a frame with the columns {TICKER}, {GROUP} and {LIMIT} (got {source!r})."
        ) from None


def parse_groups(text: str) -> tuple[GroupLimit, ...]:
    """The groups of a CSV.

    >>> parse_groups("ticker,group,max_weight\\nAAPL,tech,0.4\\nMSFT,tech,\\n")
    (GroupLimit(name='tech', tickers=('AAPL', 'MSFT'), max_weight=0.4),)
    """
    try:
        rows = [row for row in csv.reader(io.StringIO(text.removeprefix("\ufeff")), strict=True) if any(row)]
    except csv.Error as error:
        raise SettingsError(f"groups: this is no CSV ({error}); write rows such as `AAPL,tech,0.4`.") from None
    header = [name.strip().lower() for name in rows[0]] if rows else []
    if sorted(header) != sorted((TICKER, GROUP, LIMIT)):
        raise SettingsError(
            f"groups: there are the columns {', '.join(header)[:100] or 'none'}; the file needs {TICKER}, {GROUP} and "
            f"{LIMIT}."
        )
    members: dict[str, list[str]] = {}
    limits: dict[str, float] = {}
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(header):
            raise SettingsError(f"groups: row {number} has {len(row)} cells and needs {len(header)}; correct it.")
        cells = {name: cell.strip() for name, cell in zip(header, row, strict=True)}
        _add_row(f"groups: row {number} ({cells[TICKER][:40]})", cells, members, limits)
    if not members:
        raise SettingsError("groups: the file has no rows; write some such as `AAPL,tech,0.4`, or leave it out.")
    without = next((name for name in members if name not in limits), None)
    if without is not None:
        raise SettingsError(f"groups: {without} has no {LIMIT}; give it in one of its rows, such as 0.4 for 40 %.")
    return tuple(
        GroupLimit(name=name, tickers=tuple(known), max_weight=limits[name]) for name, known in members.items()
    )


def _add_row(where: str, cells: Mapping[str, str], members: dict[str, list[str]], limits: dict[str, float]) -> None:
    ticker, group, limit = cells[TICKER], cells[GROUP], cells[LIMIT]
    if not ticker or not group:
        raise SettingsError(f"{where}: needs a {TICKER} and a {GROUP}; fill in both.")
    known = members.setdefault(group, [])
    if ticker in known:
        raise SettingsError(f"{where}: is in the group {group} twice; leave out one row.")
    known.append(ticker)
    if not limit or limit.lower() == "nan":
        return
    try:
        share = float(limit)
    except ValueError:
        share = float("nan")
    if not 0.0 < share <= 1.0:
        raise SettingsError(f"{where}: {limit[:40]!r} is no share of the account; write 0.4 for 40 %.")
    if limits.setdefault(group, share) != share:
        raise SettingsError(
            f"{where}: the group {group} has two limits, {limits[group]:g} and {share:g}; decide on one."
        )


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise SettingsError(f"groups: there is no file {path}; name a CSV with {TICKER}, {GROUP}, {LIMIT}.") from None
    except IsADirectoryError:
        raise SettingsError(f"groups: {path} is a folder; name the CSV in it.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"groups: {path} is no text in UTF-8; save it as CSV in UTF-8.") from None
    except OSError as error:
        raise SettingsError(f"groups: {path} cannot be read ({error.strerror}); name another file.") from None
