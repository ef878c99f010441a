"""From a source or a file, through cleaning, into the store."""

from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.errors import (
    DataQualityError,
    LayoutError,
    PortfolioSdpoError,
    SettingsError,
    SnapshotError,
    UnknownTickerError,
)
from portfolio_sdpo.prices.cleaning import Repairs
from portfolio_sdpo.prices.ingest import fetch_snapshot, import_snapshot
from portfolio_sdpo.prices.layouts import LAYOUTS, write_prices
from portfolio_sdpo.prices.snapshots import Store, content_hash
from portfolio_sdpo.prices.update import update_snapshot

START, END = date(2019, 3, 1), date(2019, 6, 28)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "snapshots")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_fetch_keeps_what_was_asked_for(store: Store):
    saved = fetch_snapshot("sample", ["MSFT", "DOW"], START, END, "s", store=store)
    manifest = store.open("s").manifest
    assert saved.new and manifest == saved.snapshot.manifest
    assert manifest.tickers == ("DOW", "MSFT") and manifest.rows == 84
    assert (manifest.start, manifest.end) == (START, END)
    request = manifest.request
    assert (request.source, request.tickers, request.start, request.end) == ("sample", ("DOW", "MSFT"), START, END)
    frame = store.open("s").frame
    assert frame["DOW"].first_valid_index() == pd.Timestamp("2019-03-20")  # never back-filled
    assert any("DOW" in finding["sentence"] and finding["kind"] == "late-listing" for finding in manifest.report)


def test_no_tickers_are_all_of_a_sample(store: Store):
    manifest = fetch_snapshot("sample", [], None, None, "s", store=store).snapshot.manifest
    assert len(manifest.tickers) == 9 and manifest.rows == 1457 and manifest.request.tickers is None


def test_partial_success_is_kept_and_says_what_failed(store: Store):
    manifest = fetch_snapshot("sample", ["AAPL", "NOPE"], START, END, "s", store=store).snapshot.manifest
    assert manifest.tickers == ("AAPL",) and manifest.request.tickers == ("AAPL", "NOPE")
    assert list(manifest.failures) == ["NOPE"]
    assert manifest.warnings[0].startswith("NOPE did not arrive: ")


def test_nothing_arrived_stores_nothing(store: Store):
    with pytest.raises(UnknownTickerError):
        fetch_snapshot("sample", ["NOPE"], START, END, "s", store=store)
    assert store.list() == ()


@pytest.mark.parametrize("name", ["../s", "s@1"])
def test_the_name_is_checked_before_anything_is_fetched(store: Store, name: str):
    with pytest.raises(SnapshotError, match="cannot be called"):
        fetch_snapshot("no such source", ["A"], None, None, name, store=store)


def test_unknown_source(store: Store):
    with pytest.raises(SettingsError, match="no source 'bloomberg'"):
        fetch_snapshot("bloomberg", ["A"], None, None, "s", store=store)


def test_import_remembers_where_the_file_is(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "prices.csv", "date,A,B\n2020-01-02,1.5,\n2020-01-03,1.25,7\n")
    monkeypatch.chdir(tmp_path)
    snapshot = import_snapshot(Path("prices.csv"), "s", store=store).snapshot
    assert snapshot.frame.loc["2020-01-03"].to_dict() == {"A": 1.25, "B": 7.0}
    assert np.isnan(snapshot.frame.loc["2020-01-02", "B"])
    assert snapshot.manifest.request.settings == {"path": str(tmp_path / "prices.csv")}
    assert snapshot.manifest.source == "file" and snapshot.manifest.request.tickers is None


@pytest.mark.parametrize("layout", [None, "wide", "wide:price=x"])
def test_order_of_day_and_month(store: Store, tmp_path: Path, layout: str | None):
    path = write(tmp_path / "prices.csv", "date,A\n03/01/2011,1\n04/01/2011,2\n")
    with pytest.raises(LayoutError):
        import_snapshot(path, "s", "wide", calendar=None, store=store)
    for dayfirst, first in ((True, date(2011, 1, 3)), (False, date(2011, 3, 1))):
        saved = import_snapshot(path, "s", layout, dayfirst=dayfirst, calendar=None, store=store)
        assert saved.new and saved.snapshot.manifest.start == first


def test_errors_stop_the_import_unless_the_repair_is_named(store: Store, tmp_path: Path):
    path = write(tmp_path / "prices.csv", "date,A,B\n2020-01-02,1,5\n2020-01-03,-1,5\n2020-01-06,1.2,5\n")
    with pytest.raises(DataQualityError, match="non_positive=drop"):
        import_snapshot(path, "s", store=store)
    assert store.list() == ()
    snapshot = import_snapshot(path, "s", repairs=Repairs(non_positive="drop"), store=store).snapshot
    assert snapshot.frame["A"].tolist() == [1.0, 1.0, 1.2]
    assert snapshot.manifest.carried == {"A": (date(2020, 1, 3),)}
    assert snapshot.manifest.request.repairs == Repairs(non_positive="drop")
    assert np.isnan(snapshot.observed_prices().loc["2020-01-03", "A"])


def test_calendar_is_used_and_remembered(store: Store, tmp_path: Path):
    path = write(tmp_path / "prices.csv", "date,A\n2020-01-02,1\n2020-01-04,1.1\n")  # a Saturday
    with_calendar = import_snapshot(path, "s", store=store).snapshot.manifest
    without = import_snapshot(path, "t", calendar=None, store=store).snapshot.manifest
    assert any("closed" in warning for warning in with_calendar.warnings) and without.warnings == ()
    assert (with_calendar.request.calendar, without.request.calendar) == ("XNYS", None)


def test_a_wrong_calendar_is_refused_before_anything_is_fetched(store: Store):
    asked: dict[str, str] = {}
    with pytest.raises(SettingsError, match="calendar: 'MOON'"):
        fetch_snapshot("sample", [], None, None, "s", calendar="MOON", store=store, progress=asked.__setitem__)
    assert asked == {}


def test_a_file_that_moved_is_updated_from_its_new_place(store: Store, tmp_path: Path):
    old = write(tmp_path / "old.csv", "date,A\n2020-01-02,1\n2020-01-03,1.1\n")
    import_snapshot(old, "s", store=store)
    new = old.rename(tmp_path / "new.csv")
    import_snapshot(new, "s", store=store)
    write(new, "date,A\n2020-01-02,1\n2020-01-03,1.1\n2020-01-06,1.2\n")
    assert update_snapshot("s", store=store).snapshot.manifest.rows == 3


def test_missing_file(store: Store, tmp_path: Path):
    with pytest.raises(PortfolioSdpoError, match="nowhere"):
        import_snapshot(tmp_path / "nowhere.csv", "s", store=store)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_exported_and_imported_again_it_is_the_same_snapshot(store: Store, tmp_path: Path, layout: str, suffix: str):
    snapshot = fetch_snapshot("sample", ["DOW", "GE", "MSFT"], START, END, "s", store=store).snapshot
    kind = snapshot.manifest
    if layout in ("per-ticker", "yfinance-history", "nasdaq"):
        path, choice = tmp_path / "folder", f"{layout}:files={suffix[1:]}"
    else:
        path, choice = tmp_path / f"prices{suffix}", layout
    write_prices(snapshot.frame, path, choice, kind.adjustment, kind.column)
    again = import_snapshot(path, "t", store=store).snapshot
    assert again.manifest.sha256 == kind.sha256 == content_hash(snapshot.frame)
    assert again.manifest.file_sha256 == kind.file_sha256
