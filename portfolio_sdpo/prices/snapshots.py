"""Snapshots: immutable tables of prices with their provenance, each file named by the hash of its bytes.

    <root>/objects/ab/ab12….parquet   prices, wide: one float64 column per ticker, NaN = no price, `date` last
    <root>/objects/cd/cd34….json      manifest of one version; it names its Parquet file and the version before it
    <root>/names/NAME                 the hash of NAME's current manifest: the only file that is ever replaced

Since whatever points to a file names its hash, a changed byte anywhere is found on reading, and a killed process
leaves the old pointer or the new one. Writers take turns by a lock that dies with its process; readers need none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo import __version__
from portfolio_sdpo.common.files import data_directory, hold_lock
from portfolio_sdpo.common.write_group import Staged, WriteGroup
from portfolio_sdpo.errors import SettingsError, SnapshotError, did_you_mean
from portfolio_sdpo.prices.cleaning import CleanPrices, Report
from portfolio_sdpo.prices.frequency import recognise_frequency
from portfolio_sdpo.prices.manifest import Manifest, Request
from portfolio_sdpo.prices.prices import DATE_UNIT, Prices
from portfolio_sdpo.prices.snapshot_files import (
    align_companion,
    decode_parquet,
    encode_parquet,
    freeze_frame,
)
from portfolio_sdpo.prices.snapshot_files import (
    content_hash as content_hash,
)
from portfolio_sdpo.prices.survivorship import describe_survivorship

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Snapshot:
    """One version: its manifest, the hash of that manifest, and the prices (date × ticker, not to be written to)."""

    manifest: Manifest
    digest: str
    frame: pd.DataFrame

    def observed_prices(self) -> pd.DataFrame:
        """The prices without those that were carried forward."""
        return drop_carried(self.frame, self.manifest.carried)


@dataclass(frozen=True)
class SaveResult:
    """What saving did: `new` is False when the name held these very prices already."""

    snapshot: Snapshot
    new: bool


@dataclass(frozen=True)
class VersionCheck:
    """What `verify` says about one version, or about a name that cannot be followed any further (sha256 `None`)."""

    name: str
    sha256: str | None
    problem: str | None


def drop_carried(frame: pd.DataFrame, carried: Mapping[str, Any]) -> pd.DataFrame:
    """A copy of the frame without its carried cells."""
    frame = frame.copy()
    for ticker, days in carried.items():
        frame.loc[pd.DatetimeIndex(days).as_unit(DATE_UNIT), ticker] = np.nan
    return frame


class Store:
    """All snapshots below one folder; by default in the user's data directory."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or data_directory() / "snapshots"

    def list(self) -> tuple[str, ...]:
        """The names, sorted."""
        try:
            return tuple(sorted(path.name for path in (self.root / "names").iterdir() if NAME.fullmatch(path.name)))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._unusable(error) from None

    def open(self, name: str) -> Snapshot:
        """The current version of `NAME`, or with `NAME@hash` the version whose sha256 starts so."""
        digest, manifest = self.find(name)
        return Snapshot(manifest, digest, self._frame(manifest))

    def open_companion(self, manifest: Manifest, kind: str) -> pd.DataFrame:
        """A further table of a version, of the shape of its prices: `close` (not adjusted), `dividends`, `splits`."""
        if kind not in manifest.companions:
            known = ", ".join(manifest.companions) or "none"
            raise SnapshotError(f"Snapshot {manifest.name} has no table {kind!r} (known: {known}).")
        return self._frame(manifest.model_copy(update={"file_sha256": manifest.companions[kind]}))

    def open_raw_closes(self, manifest: Manifest) -> pd.DataFrame:
        """Closes as they were traded, of the shape of the prices: what an order is priced at; NaN = no close that day.

        They are the companion `close`, or the prices themselves where these are not adjusted for anything.
        """
        if "close" in manifest.companions:
            return self.open_companion(manifest, "close")
        if manifest.adjustment == "none":
            return drop_carried(self._frame(manifest), manifest.carried)
        raise SnapshotError(
            f"Snapshot {manifest.name} has no closes as they were traded, only prices with adjustment "
            f"{manifest.adjustment}: fetch it with --source yfinance, or import a file with both Close and Adj Close."
        )

    def find(self, name: str) -> tuple[str, Manifest]:
        """The manifest that `open` goes by, and its hash."""
        name, at, prefix = name.partition("@")
        if not at:
            return next(self.history(name))
        found = [version for version in self.history(name) if prefix and version[1].sha256.startswith(prefix)]
        if not found:
            raise SnapshotError(f"Snapshot {name} has no version {prefix!r}; `data show {name}` lists its versions.")
        if len({manifest.sha256 for _, manifest in found}) > 1:
            raise SnapshotError(f"Several versions of {name} start with {prefix!r}; give more of the hash.")
        return found[0]

    def history(self, name: str) -> Iterator[tuple[str, Manifest]]:
        """Manifests with their hashes, from the current version of the name to its first."""
        digest = self._current(name)
        if digest is None:
            raise self._unknown(name)
        while digest is not None:
            manifest = self._manifest(name, digest)
            yield digest, manifest
            digest = manifest.parent_manifest

    def save(
        self,
        name: str,
        cleaned: CleanPrices,
        prices: Prices,
        request: Request,
        *,
        report: Report | None = None,
        base: str | None = None,
    ) -> SaveResult:
        """Store cleaned prices as the current version of the name, unless they are there already.

        They are when the current version has the same prices, request, column, adjustment and failed tickers, or for
        an update the same prices. prices: what was cleaned, for its column, adjustment, failures and notes. report: in
        place of that of `cleaned`. base: hash of the manifest that an update continues; refused when another one is
        current by now.
        """
        check_name(name)
        frame = cleaned.frame
        if frame.empty:
            raise SnapshotError(f"There is no price to store in {name}; check the tickers and the range.")
        report = report or cleaned.report
        failures = {ticker: str(error) for ticker, error in prices.failures.items()}
        empty = dict.fromkeys(prices.frame.columns.difference(frame.columns), "It has no price.")
        frequency = recognise_frequency(pd.DatetimeIndex(frame.index))
        companions = {kind: encode_parquet(align_companion(table, frame)) for kind, table in prices.companions.items()}
        with ThreadPoolExecutor(2) as pool, self._writing(pool) as group:
            hashing = pool.submit(content_hash, frame)  # while the file is made: neither holds the interpreter
            content = encode_parquet(frame)
            sha256 = hashing.result()
            current = self._current(name)
            before = None if current is None else self._manifest(name, current)
            if base is not None and current != base and (before is None or before.sha256 != sha256):
                raise SnapshotError(f"Another process changed {name} meanwhile; run the command again.")
            # Prices that the name does not hold are hardly ever there: the disk works while they are hashed.
            early = group.stage(self.root / "objects", content) if before is None or before.sha256 != sha256 else None
            objects: dict[Path, Staged] = {}
            # Before the comparison: it mends a damaged file of these prices.
            file_sha256 = self._put(group, objects, content, "parquet", early)
            manifest = Manifest(
                name=name,
                sha256=sha256,
                file_sha256=file_sha256,
                parent=before and before.sha256,
                parent_manifest=current,
                source=request.source,
                request=request,
                tickers=tuple(frame.columns.tolist()),
                start=frame.index[0].date(),
                end=frame.index[-1].date(),
                rows=len(frame),
                column=prices.column,
                adjustment=prices.adjustment,
                fetched_at=datetime.now(UTC).replace(microsecond=0),
                failures=empty | failures,
                carried={ticker: tuple(days) for ticker, days in cleaned.carried.items() if days},
                warnings=(
                    *(f"{ticker} did not arrive: {reason}" for ticker, reason in failures.items()),
                    *(finding.sentence for finding in report.warnings),
                ),
                notes=prices.notes,
                report=tuple(report.to_json()),
                package_version=__version__,
                frequency=frequency.name,
                periods_per_year=frequency.periods_per_year,
                currency=next((prices.currencies[each] for each in frame.columns if each in prices.currencies), None),
                companions={kind: self._put(group, objects, each, "parquet") for kind, each in companions.items()},
                survivorship=describe_survivorship(frame, request.membership),
            )
            same = (
                before is not None and before.sha256 == sha256 and (base is not None or _same_origin(before, manifest))
            )
            stored = freeze_frame(frame.to_numpy(copy=True), frame.index, frame.columns)
            if current is not None and before is not None and same:
                group.publish(objects)
                objects.clear()
                if self._is_sound(before):
                    return SaveResult(Snapshot(before, current, stored), new=False)
            digest = self._put(group, objects, manifest.model_dump_json(indent=2).encode(), "json")
            pointer = group.stage(self.root / "names", f"{digest}\n".encode())
            group.publish(objects)
            group.publish({self.root / "names" / name: pointer})  # only now: it leads to the others
        return SaveResult(Snapshot(manifest, digest, stored), new=True)

    def verify(self, name: str | None = None) -> tuple[VersionCheck, ...]:
        """Read every version of the name, or of all names, and compare every hash."""
        if name is not None and name not in self.list():
            check_name(name)
            raise self._unknown(name)
        return tuple(check for each in ([name] if name else self.list()) for check in self._checks(each))

    def _checks(self, name: str) -> Iterator[VersionCheck]:
        try:
            for _, manifest in self.history(name):
                problem = None
                try:
                    for kind in manifest.companions:
                        self.open_companion(manifest, kind)
                    if content_hash(self._frame(manifest)) != manifest.sha256:
                        problem = f"Snapshot {name} does not hold the prices that its manifest names; make it again."
                except SnapshotError as error:
                    problem = str(error)
                yield VersionCheck(name, manifest.sha256, problem)
        except SnapshotError as error:
            yield VersionCheck(name, None, str(error))

    def _current(self, name: str) -> str | None:
        """The hash in the name's pointer."""
        check_name(name)
        path = self.root / "names" / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise self._unusable(error) from None
        except OSError as error:
            raise _unreadable(name, path, error) from None
        digest = content.removesuffix(b"\n").decode(errors="replace")
        if not DIGEST.fullmatch(digest) or content != f"{digest}\n".encode():
            raise SnapshotError(f"Snapshot {name} is damaged: {path} does not hold a hash; {_RESTART.format(path)}")
        return digest

    def _manifest(self, name: str, digest: str) -> Manifest:
        path, remedy = self._path(digest, "json"), _RESTART.format(self.root / "names" / name)
        content = _read(name, path, remedy)
        _check(name, path, content, remedy)
        try:
            manifest = Manifest.model_validate_json(content)
        except SettingsError as error:
            raise SnapshotError(
                f"Snapshot {name} was written by another version of portfolio_sdpo; install that one. ({error})"
            ) from None
        if manifest.name != name:
            raise SnapshotError(f"The name {name} leads to a snapshot called {manifest.name}; ask for that one.")
        return manifest

    def _frame(self, manifest: Manifest) -> pd.DataFrame:
        """The prices; hashed and decoded at the same time, and only given out if the hash is right."""
        name, path = manifest.name, self._path(manifest.file_sha256, "parquet")
        content = _read(name, path, _AGAIN)
        with ThreadPoolExecutor(1) as pool:
            check = pool.submit(_check, name, path, content, _AGAIN)
            try:
                frame = decode_parquet(content)
            except Exception as error:
                check.result()  # what cannot be decoded is hardly ever what was written
                raise SnapshotError(f"Snapshot {name} needs a newer pyarrow; update that package. ({error})") from error
            check.result()
        return frame

    def _is_sound(self, manifest: Manifest) -> bool:
        path = self._path(manifest.file_sha256, "parquet")
        try:
            _check(manifest.name, path, _read(manifest.name, path, _AGAIN), _AGAIN)
        except SnapshotError:
            return False
        return True

    def _path(self, digest: str, suffix: str) -> Path:
        return self.root / "objects" / digest[:2] / f"{digest}.{suffix}"

    def _put(
        self, group: WriteGroup, objects: dict[Path, Staged], content: bytes, suffix: str, early: Staged | None = None
    ) -> str:
        """Add the bytes to the objects to be published under their hash unless they are there already.

        early: the same bytes, if the group writes them already. Returns the hash.
        """
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest, suffix)
        if path.exists() and path.read_bytes() == content:
            group.publish_existing(path)
        else:
            objects[path] = early or group.stage(path.parent, content)
        return digest

    @contextmanager
    def _writing(self, pool: Executor) -> Iterator[WriteGroup]:
        """Only one process writes at a time, so what lies around unfinished was left by one that was killed."""
        objects, names = self.root / "objects", self.root / "names"
        try:
            new = {folder.parent for folder in (self.root, *self.root.parents) if not folder.exists()}
            for folder in (objects, names):
                folder.mkdir(parents=True, exist_ok=True)
            with hold_lock(self.root / ".lock"), WriteGroup(pool, {self.root, objects} | new) as group:
                for pattern in ("objects/*/.*", "objects/.*", "names/.*"):
                    for left_over in self.root.glob(pattern):
                        left_over.unlink()
                yield group
        except OSError as error:  # no permission, no room, a file in the place of a folder
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> SnapshotError:
        return SnapshotError(
            f"The folder of snapshots {self.root} cannot be used ({error.strerror}); make room or "
            "correct its permissions, or set the variable PORTFOLIO_SDPO_HOME to another folder."
        )

    def _unknown(self, name: str) -> SnapshotError:
        known = ", ".join(self.list()) or "none"
        return SnapshotError(
            f"There is no snapshot {name}{did_you_mean(name, self.list())} (known: {known}); make it with `data fetch` "
            "or `data import`."
        )


_RESTART = "restore it from a backup, or remove {} and import the prices again."
_AGAIN = "import or fetch the same prices again, or restore the file from a backup."


def _read(name: str, path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SnapshotError(f"Snapshot {name} is damaged: {path} is missing; {remedy}") from None
    except OSError as error:
        raise _unreadable(name, path, error) from None


def _unreadable(name: str, path: Path, error: OSError) -> SnapshotError:
    return SnapshotError(f"Snapshot {name} cannot be read ({error.strerror}: {path}); correct that file's permissions.")


def _same_origin(one: Manifest, other: Manifest) -> bool:
    """Whether both were asked for in the same way, and the source gave and lacked the same."""
    facts = [
        (each.request, each.column, each.adjustment, each.failures.keys(), each.companions, each.currency)
        for each in (one, other)
    ]
    return facts[0] == facts[1]


def _check(name: str, path: Path, content: bytes, remedy: str) -> None:
    """Raise a `SnapshotError` unless the file's name is the hash of its content."""
    if hashlib.sha256(content).hexdigest() != path.stem:
        raise SnapshotError(f"Snapshot {name} is damaged: {path} is not what was written; {remedy}")


def check_name(name: str) -> None:
    """Raise a `SnapshotError` unless the name can be one of a snapshot."""
    if not NAME.fullmatch(name):
        raise SnapshotError(
            f"A snapshot cannot be called {name!r}; use letters, digits, `.`, `_` and `-`, "
            "a letter or digit first, at most 100 of them."
        )
