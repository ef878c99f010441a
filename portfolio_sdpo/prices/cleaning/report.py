"""What cleaning found, as sentences for a reader and as JSON for a machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, Self, get_args

Severity = Literal["error", "warning", "info"]
Kind = Literal[
    "future-date",
    "not-prices",
    "non-positive",
    "duplicate",
    "no-price",
    "missing-session",
    "extra-session",
    "unchecked",
    "large-move",
    "stale-run",
    "suspension",
    "delisting",
    "gap",
    "late-listing",
    "empty-row",
]

KINDS: tuple[Kind, ...] = get_args(Kind)
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

DATES_SHOWN = 3
"""How many dates a finding carries; `count` says how many there were."""


@dataclass(frozen=True)
class Finding:
    """One kind of problem with one ticker, or with the whole table (ticker `None`)."""

    kind: Kind
    severity: Severity
    ticker: str | None
    dates: tuple[date, ...]
    """The first few."""
    count: int
    """How many there are in all."""
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """The finding in types of JSON."""
        return {**vars(self), "dates": [day.isoformat() for day in self.dates]}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        return cls(**{**record, "dates": tuple(date.fromisoformat(day) for day in record["dates"])})


@dataclass(frozen=True)
class Report:
    """All findings: the most severe first, then by kind and ticker."""

    findings: tuple[Finding, ...] = ()

    @classmethod
    def from_findings(cls, findings: Iterable[Finding]) -> Self:
        """The findings in the report's order."""

        def rank(finding: Finding) -> tuple[int, int, str]:
            return SEVERITIES.index(finding.severity), KINDS.index(finding.kind), finding.ticker or ""

        return cls(tuple(sorted(findings, key=rank)))

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What stops an import; empty in the report of cleaned prices."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What the user should look at."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def sentences(self) -> list[str]:
        """One sentence per finding."""
        return [finding.sentence for finding in self.findings]

    def to_json(self) -> list[dict[str, Any]]:
        """The findings in types of JSON."""
        return [finding.to_json() for finding in self.findings]

    @classmethod
    def from_json(cls, records: Iterable[Mapping[str, Any]]) -> Self:
        """What `to_json` wrote."""
        return cls(tuple(Finding.from_json(record) for record in records))
