"""Bringing a snapshot up to date: only what is new is fetched, and what is stored is checked against the source.

The last sessions are fetched once more. Where the source still gives the stored prices, the new ones are appended and
no stored price changes. Where it does not, it has adjusted its history (a dividend, a split, a correction): old and new
prices do not belong together, and everything is fetched again. A price that comes late for a cell that was empty or
carried is news, not an adjustment. Tickers that failed before are asked for over the full range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pandas as pd

from portfolio_sdpo.errors import NoDataInRangeError, SourceError
from portfolio_sdpo.prices.cleaning import Finding, Repairs, Report, inspect
from portfolio_sdpo.prices.cleaning.table import format_count
from portfolio_sdpo.prices.manifest import Manifest, Request
from portfolio_sdpo.prices.membership import clean_request
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import Snapshot, Store, check_name, drop_carried
from portfolio_sdpo.prices.sources import Progress, make_source

OVERLAP = 10
"""How many stored sessions are fetched again for comparison."""
TOLERANCE = 5e-6
"""Relative difference up to which two prices are the same. Yahoo's adjusted closes differ by up to 5e-7 from
one request to the next, and even a cent of dividend on a share of 200 dollars moves its history by 5e-5."""


@dataclass(frozen=True)
class UpdateResult:
    """What an update did."""

    snapshot: Snapshot
    """The version that is current now."""
    new: bool
    readjusted: tuple[str, ...]
    """Tickers whose stored prices the source no longer gives, so that everything was fetched again."""
    sentences: tuple[str, ...]


def update_snapshot(
    name: str,
    *,
    end: date | None = None,
    settings: Mapping[str, Any] | None = None,
    repairs: Repairs | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> UpdateResult:
    """Fetch what came after the last session of the snapshot and store it as a new version of it.

    end: the last day to ask for, None = today. settings: what the source needs and no manifest holds, such as a key.
    repairs: in place of those that the snapshot was made with.
    """
    check_name(name)
    store = store or Store()
    base = store.open(name)
    manifest = base.manifest
    request = manifest.request if repairs is None else manifest.request.model_copy(update={"repairs": repairs})
    source = make_source(request.source, **{**request.settings, **(settings or {})})
    if getattr(source, "never_changes", False):
        return UpdateResult(base, False, (), (f"{manifest.source} never changes: there is nothing to update.",))
    whole = bool(getattr(source, "reads_everything", False))

    def ask(tickers: Sequence[str], start: date | None, known_until: date | None = None) -> _Part:
        return _Part.from_prices(source.fetch(tickers, start, end, progress), request, known_until)

    old = base.observed_prices()
    parts = _fetch_new(ask, old, manifest, whole)
    if not parts:
        return UpdateResult(base, False, (), (_nothing_new(manifest),))
    readjusted = _find_readjusted(old, parts, manifest)
    if readjusted:
        if whole:
            parts = [_Part.from_prices(parts[0].prices, request)]
        else:
            parts = [ask(request.tickers or (), request.start)]
        stuck = [ticker for ticker in old if ticker in parts[0].prices.failures]
        frame = parts[0].frame.combine_first(old[stuck])
        inherited: tuple[Finding, ...] = ()
    else:
        frame = old
        for part in parts:
            frame = frame.combine_first(part.frame)
        inherited = _select_permanent_findings(Report.from_json(manifest.report), request)
    failures = {ticker: error for part in parts for ticker, error in part.prices.failures.items()}
    prices = replace(parts[0].prices, frame=to_wide(frame), failures=failures)
    prices = replace(prices, companions=_join_companions(base, parts, store, bool(readjusted)))
    cleaned = clean_request(prices, request)
    sentences = _sentences(old, drop_carried(cleaned.frame, cleaned.carried), manifest, readjusted)
    notes = dict.fromkeys(note for part in parts for note in part.prices.notes)
    saved = store.save(
        name,
        cleaned,
        replace(prices, notes=(*notes, *sentences)),
        request,
        report=Report.from_findings(
            dict.fromkeys([*cleaned.report.findings, *inherited, *(f for p in parts for f in p.unseen)])
        ),
        base=base.digest,
    )
    if not saved.new:
        sentences = (_nothing_new(manifest),)
    reasons = (f"{ticker} did not arrive: {error}" for ticker, error in failures.items())
    return UpdateResult(saved.snapshot, saved.new, readjusted, (*sentences, *reasons))


@dataclass(frozen=True)
class _Part:
    """What one request to the source gave."""

    prices: Prices
    frame: pd.DataFrame
    """CleanPrices, without carried prices."""
    unseen: tuple[Finding, ...]

    @classmethod
    def from_prices(cls, prices: Prices, request: Request, known_until: date | None = None) -> _Part:
        cleaned = clean_request(prices, request)
        news = prices.frame if known_until is None else prices.frame[prices.frame.index > pd.Timestamp(known_until)]
        report = inspect(
            replace(prices, frame=news), calendar=request.calendar, repairs=request.repairs, carry=request.carry
        )
        return cls(prices, drop_carried(cleaned.frame, cleaned.carried), _select_permanent_findings(report, request))


def _join_companions(base: Snapshot, parts: Sequence[_Part], store: Store, replaced: bool) -> dict[str, pd.DataFrame]:
    """Closes that are not adjusted, dividends and splits: what came now before what is stored.

    replaced: whether everything was fetched again, so that nothing stored is left.
    """
    joined: dict[str, pd.DataFrame] = {}
    for part in parts:
        for kind, table in part.prices.companions.items():
            table = table[~table.index.duplicated(keep="last")]
            joined[kind] = joined[kind].combine_first(table) if kind in joined else table
    for kind in () if replaced else base.manifest.companions:
        stored = store.open_companion(base.manifest, kind)
        joined[kind] = joined[kind].combine_first(stored) if kind in joined else stored
    return joined


def _fetch_new(ask: Callable[..., _Part], old: pd.DataFrame, manifest: Manifest, whole: bool) -> list[_Part]:
    """The last sessions of the tickers that are there, the full range of those that failed."""
    request = manifest.request
    if whole:
        return [ask(request.tickers or (), request.start, manifest.end)]
    again = list(manifest.failures)
    known = [ticker for ticker in old if ticker not in manifest.failures]
    parts = []
    try:
        if known:
            recent = ask(known, old.index[-OVERLAP:][0].date(), manifest.end)
            # Delisted or suspended is no failure.
            failures = {t: e for t, e in recent.prices.failures.items() if not isinstance(e, NoDataInRangeError)}
            parts.append(replace(recent, prices=replace(recent.prices, failures=failures)))
    except NoDataInRangeError:
        pass
    try:
        if again:
            parts.append(ask(again, request.start))
    except SourceError as error:
        if not parts:
            raise
        nothing = replace(parts[0].prices, frame=old.iloc[:0, :0], failures=dict.fromkeys(again, error), notes=())
        parts.append(_Part(nothing, nothing.frame, ()))
    return parts


def _find_readjusted(old: pd.DataFrame, parts: Sequence[_Part], manifest: Manifest) -> tuple[str, ...]:
    """The stored tickers whose prices the source gives differently, or not at all where it gives later ones."""
    found: set[str] = set()
    for part in parts:
        new = part.frame[part.frame.columns.intersection(old.columns)]
        stored = old.reindex(index=new.index, columns=new.columns)
        both = stored.notna() & new.notna()
        if (part.prices.column, part.prices.adjustment) == (manifest.column, manifest.adjustment):
            same = both & ((new - stored).abs() <= TOLERANCE * stored.abs())
        else:
            same = both & False
        odd = (both & ~same).any() | (new.notna().any() & ~both.any())
        found.update(odd.index[odd])
    return tuple(sorted(found))


def _select_permanent_findings(report: Report, request: Request) -> tuple[Finding, ...]:
    """What was mended for good, so that cleaning the result once more does not find it."""
    kinds = ["duplicate", "non-positive", "empty-row", *(["extra-session"] if request.repairs.extra_sessions else [])]
    return tuple(finding for finding in report.findings if finding.kind in kinds)


def _sentences(old: pd.DataFrame, new: pd.DataFrame, manifest: Manifest, readjusted: Sequence[str]) -> tuple[str, ...]:
    """What is different, for the user to read."""
    sentences = []
    if readjusted:
        sentences.append(
            f"{manifest.source} has adjusted its history of {_some(readjusted)}: all prices were fetched again."
        )
    added = new.index[new.index > pd.Timestamp(manifest.end)]
    if len(added):
        sentences.append(f"{format_count(len(added), 'new session')}, {added[0].date()} to {added[-1].date()}.")
    first = [ticker for ticker in new if ticker not in old]
    if first:
        sentences.append(f"New in the snapshot: {_some(first)}.")
    before = new.reindex(index=old.index, columns=old.columns)
    late = (before.notna() & old.isna()).sum()
    if late.any():
        sentences.append(f"{format_count(late.sum(), 'price')} came late, of {_some(late.index[late > 0])}.")
    gone = (before.isna() & old.notna()).sum()
    if gone.any():
        sentences.append(
            f"{format_count(gone.sum(), 'stored price')} of {_some(gone.index[gone > 0])} "
            "left the source's history; the version before has them."
        )
    return tuple(sentences)


def _nothing_new(manifest: Manifest) -> str:
    return f"{manifest.name} is up to date: {manifest.source} has nothing new after {manifest.end}."


def _some(tickers: Sequence[str]) -> str:
    """The first few of the tickers."""
    return ", ".join(tickers[:10]) + (f" and {len(tickers) - 10} more" if len(tickers) > 10 else "")
