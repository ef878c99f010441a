"""Options of `data` from text to values, and how its progress is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portfolio_sdpo.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from portfolio_sdpo.prices.cleaning import Repairs
    from portfolio_sdpo.prices.manifest import Membership


class FetchProgress:
    """Shows the status of each ticker, and remembers whether Ctrl-C interrupted the fetch."""

    def __init__(self, status: Any, console: Any, keep: bool) -> None:
        self._status, self._console, self._keep = status, console, keep
        self.interrupted = False

    def __call__(self, ticker: str, what: str) -> bool:
        """Show a status; the answer is whether to keep what has arrived after an interrupt."""
        from rich.markup import escape

        line = escape(f"{ticker}: {what}")
        if what == "fetching":
            self._status.update(line)
        else:
            self._console.print(line, style="red" if what.startswith("failed") else "dim")
        self.interrupted |= what == "interrupted"
        return self._keep


@contextmanager
def show_progress(quiet: bool, *, keep: bool = False) -> Iterator[FetchProgress]:
    """Show progress on stderr: the running request in a line that changes, finished ones in lines that stay.

    keep: whether what has arrived by Ctrl-C is kept.
    """
    from rich.console import Console

    console = Console(stderr=True, quiet=quiet)
    with console.status("") as status:
        yield FetchProgress(status, console, keep)


def parse_tickers(text: str) -> list[str]:
    """`A,B`, or the file in `@file`: tickers with commas, blanks or line ends between them."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"--tickers: {text[1:]} cannot be read ({error}); name a text file.") from None
        text = text.replace("\n", ",")
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_day(option: str, text: str | None) -> date | None:
    """`2021-10-14` as a date."""
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise SettingsError(f"{option}: must be a date such as 2021-10-14 (got {text!r}).") from None


def parse_calendar(text: str) -> str | None:
    """The calendar's name; None for `none`."""
    return None if text.lower() == "none" else text


def parse_membership(path: Path | None) -> Membership | None:
    """The memberships in a file, None where no file is named."""
    if path is None:
        return None
    from portfolio_sdpo.prices.membership import read_membership

    return read_membership(path)


def parse_repairs(pairs: list[str] | None) -> Repairs:
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


def parse_settings(pairs: list[str] | None) -> dict[str, Any]:
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
