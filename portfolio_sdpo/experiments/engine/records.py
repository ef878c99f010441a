"""How a record of finished runs is written: JSON that is indented, but for columns of numbers, each on one line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from portfolio_sdpo.errors import RunError


class Column(list[Any]):
    """Values that are written on one line."""


def round_number(value: float, digits: int) -> float:
    """So many digits that count.

    >>> round_number(123456.7, 5), round_number(0.1000000015, 5)
    (123460.0, 0.1)
    """
    return float(f"{value:.{digits}g}")


def round_column(values: Iterable[float], digits: int) -> Column:
    """So many digits each, and whole numbers without their point.

    >>> round_column([123456.7, 0.1000000015], 5)
    [123460, 0.1]
    """
    rounded = [round_number(value, digits) for value in values]
    return Column(int(value) if value == int(value) else value for value in rounded)


def format_record(record: dict[str, Any]) -> str:
    """
    >>> print(format_record({"label": "ppo", "columns": {"cost": Column([1, 0.5])}}), end="")
    {
      "label": "ppo",
      "columns": {
        "cost": [1, 0.5]
      }
    }
    """
    columns: list[str] = []

    def hide(value: Any) -> Any:
        if isinstance(value, Column):
            columns.append(json.dumps(value))
            return f"@{len(columns) - 1}@"
        if isinstance(value, dict):
            return {name: hide(each) for name, each in value.items()}
        return [hide(each) for each in value] if isinstance(value, list) else value

    text = json.dumps(hide(record), indent=2)
    for place, column in enumerate(columns):
        text = text.replace(f'"@{place}@"', column)
    return text + "\n"


def nothing_to_record(root: Path, experiment: str) -> RunError:
    """No run has the declared settings and is finished."""
    return RunError(
        f"no run in {root} is finished with the declared settings: see `portfolio-sdpo experiment show {experiment}`."
    )


def unreadable_record(path: Path, what: str, experiment: str, error: Exception) -> RunError:
    """The file is something else, or of another experiment."""
    return RunError(
        f"{path} is not a record of a {what} of {experiment} ({error!r}): write it again with "
        f"`portfolio-sdpo experiment summarise {experiment} --out ...`."
    )
