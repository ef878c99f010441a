"""What is written down about a version of a snapshot."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from pydantic import Field

from portfolio_sdpo.prices.cleaning import Repairs
from portfolio_sdpo.prices.cleaning.clean import CARRY
from portfolio_sdpo.prices.prices import Adjustment
from portfolio_sdpo.settings import Settings

Membership = dict[str, tuple[tuple[date | None, date | None], ...]]
"""By ticker, the first and last days of its memberships in a universe; None = open."""


class Request(Settings):
    """What was asked for and how it was cleaned, so that `update` can ask again; never holds a secret."""

    source: str
    settings: dict[str, Any] = Field(default_factory=dict)
    """What the source is made with; the path and layout of a file."""
    tickers: tuple[str, ...] | None = None
    """All of the source's where None."""
    start: date | None = None
    end: date | None = None
    """The last day asked for; an update goes beyond it."""
    calendar: str | None = "XNYS"
    repairs: Repairs = Repairs()
    carry: int = CARRY
    membership: Membership | None = None
    """Who was a member of the universe when; None = everything that has prices."""


class Manifest(Settings):
    """What is known about one version of a snapshot."""

    format: Literal[1] = 1
    name: str
    sha256: str
    """Hash of the content, see `content_hash`: the same prices have the same one, wherever they came from."""
    file_sha256: str
    """Hash of the bytes of the Parquet file, which is its name too."""
    parent: str | None
    """`sha256` of the version before."""
    parent_manifest: str | None
    """Hash of the manifest of the version before."""
    source: str
    request: Request
    tickers: tuple[str, ...]
    start: date
    end: date
    rows: int
    column: str
    adjustment: Adjustment
    fetched_at: datetime
    failures: dict[str, str]
    """Tickers that were asked for and of which nothing came with this version, and why."""
    carried: dict[str, tuple[date, ...]]
    """Cells that hold an earlier price, by ticker."""
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    """What the source or the file states about itself, and what the update did."""
    report: tuple[dict[str, Any], ...]
    """The findings of cleaning; `Report.from_json` reads them."""
    package_version: str
    frequency: str | None = None
    """How often prices come: daily, 24/7, weekly, monthly, ...; None in versions that are older than this field."""
    periods_per_year: float | None = None
    currency: str | None = None
    """The one currency of all prices, where the source states it."""
    companions: dict[str, str] = Field(default_factory=dict)
    """Hashes of further Parquet files of the same shape: `close` (not adjusted), `dividends`, `splits`."""
    survivorship: str | None = None
    """Whether the universe holds what has left it, in a sentence."""
