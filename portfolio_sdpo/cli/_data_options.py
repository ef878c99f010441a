"""What `data` is asked for, from text to values, and how its progress is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portfolio_sdpo.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from portfolio_sdpo.prices.cleaning import Repairs


class Said:
    """What is told of each ticker, and whether Ctrl-C came amid them."""

    def __init__(self, status: Any, console: Any, keep: bool) -> None:
        self._status, self._console, self._keep = status, console, keep
        self.interrupted = False

    def __call__(self, ticker: str, what: str) -> bool:
        """True to go on with what has arrived after an interrupt."""
        from rich.markup import escape

        line = escape(f"{ticker}: {what}")
        if what == "fetching":
            self._status.update(line)
        else:
            self._console.print(line, style="red" if what.startswith("failed") else "dim")
        self.interrupted |= what == "interrupted"
        return self._keep


@contextmanager
def progress_of(quiet: bool, *, keep: bool = False) -> Iterator[Said]:
    """On stderr: what goes on in a line that changes, what is over in one that stays. keep: what arrived by Ctrl-C."""
    from rich.console import Console

    console = Console(stderr=True, quiet=quiet)
    with console.status("") as status:
        yield Said(status, console, keep)


def tickers_of(text: str) -> list[str]:
    """`A,B`, or the file in `@file`: tickers with commas, blanks or line ends between them."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"--tickers: {text[1:]} cannot be read ({error}); name a text file.") from None
        text = text.replace("\n", ",")
    return [part.strip() for part in text.split(",") if part.strip()]


def day_of(option: str, text: str | None) -> date | None:
    """`2021-10-14` as a date."""
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise SettingsError(f"{option}: must be a date such as 2021-10-14 (got {text!r}).") from None


def calendar_of(text: str) -> str | None:
    """The calendar's name; None for `none`."""
    return None if text.lower() == "none" else text


def repairs_of(pairs: list[str] | None) -> Repairs:
    """`duplicates=first` and the like as what cleaning may repair."""
    from portfolio_sdpo.prices.cleaning import Repairs

    chosen = dict(_pair("--repair", pair) for pair in pairs or [])
    unknown = [key for key in chosen if key not in Repairs.model_fields]
    if unknown:
        raise SettingsError(
            f"--repair: there is no {unknown[0]!r}{did_you_mean(unknown[0], Repairs.model_fields)}; "
            f"there are {', '.join(Repairs.model_fields)}."
        )
    return Repairs(**chosen)


def settings_of(pairs: list[str] | None) -> dict[str, Any]:
    """`a=1` as {a: 1}, `retry.a=1` as {retry: {a: 1}}."""
    settings: dict[str, Any] = {}
    for key, value in (_pair("--setting", pair) for pair in pairs or []):
        *groups, last = key.split(".")
        inner = settings
        for group in groups:
            inner = inner.setdefault(group, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"--setting: {key} contradicts {group}, which is given as well; leave one out.")
        inner[last] = value
    return settings


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise SettingsError(f"{option}: must look like key=value (got {key!r}).")
    return key.strip().replace("-", "_"), value.strip()
