"""Snapshots are hashed, chained and never rewritten."""

import json
import struct
from hashlib import sha256

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import SnapshotError, SourceError
from portfolio_sdpo.prices.cleaning import CleanPrices, Finding, Report
from portfolio_sdpo.prices.prices import Prices
from portfolio_sdpo.prices.snapshots import Store, content_hash, drop_carried
from tests.prices.snapshot_examples import NAN, NEW, OLD, REQUEST, files, save, table

# What is stored


def test_opens_as_it_was_saved(store: Store):
    saved = save(store, "n", OLD)
    opened = store.open("n")
    assert saved.new and opened.manifest == saved.snapshot.manifest and opened.digest == saved.snapshot.digest
    pd.testing.assert_frame_equal(opened.frame, OLD, check_freq=False)
    pd.testing.assert_frame_equal(saved.snapshot.frame, OLD, check_freq=False)
    assert opened.frame.index.unit == "us" and opened.frame.index.name == "date"
    assert opened.frame.columns.name == "ticker"


def test_manifest_says_where_the_prices_came_from(store: Store):
    finding = Finding("gap", "warning", "B", (OLD.index[2].date(),), 1, "B was carried.")
    hint = Finding("late-listing", "info", "B", (OLD.index[1].date(),), 1, "B starts late.")
    days = {"B": [OLD.index[2].date()], "A": []}
    arrived = OLD.assign(E=NAN)
    prices = Prices(arrived, "Adj Close", "total-return", {"D": SourceError("Nobody knows D.")}, ("FetchProgress.",))
    store.save("n", CleanPrices(OLD, Report((finding, hint)), days), prices, REQUEST)
    manifest = store.open("n").manifest
    assert manifest.sha256 == content_hash(OLD)
    assert (manifest.name, manifest.tickers, manifest.rows) == ("n", ("A", "B"), 3)
    assert (str(manifest.start), str(manifest.end)) == ("2020-01-02", "2020-01-06")
    assert (manifest.source, manifest.column, manifest.adjustment) == ("file", "Adj Close", "total-return")
    assert manifest.request == REQUEST and manifest.parent is None and manifest.notes == ("FetchProgress.",)
    assert manifest.failures == {"D": "Nobody knows D.", "E": "It has no price."}
    assert manifest.warnings == ("D did not arrive: Nobody knows D.", "B was carried.")
    assert Report.from_json(manifest.report).findings == (finding, hint)
    assert manifest.carried == {"B": (OLD.index[2].date(),)}
    assert manifest.fetched_at.tzinfo is not None


def test_files_are_named_by_their_hash_and_plain_parquet(store: Store):
    save(store, "n", OLD)
    [parquet], [manifest] = files(store, "parquet"), files(store, "json")
    for path in (parquet, manifest):
        assert path.stem == sha256(path.read_bytes()).hexdigest() and path.parent.name == path.stem[:2]
    assert (store.root / "names" / "n").read_text() == f"{manifest.stem}\n"
    pd.testing.assert_frame_equal(pd.read_parquet(parquet), OLD, check_freq=False)
    assert json.loads(manifest.read_text())["file_sha256"] == parquet.stem


def test_frame_is_not_to_be_written_to(store: Store):
    frame = save(store, "n", OLD).snapshot.frame
    with pytest.raises(ValueError, match="read-only"):
        frame.iloc[0, 0] = 9.0
    mine = frame.copy()
    mine.iloc[0, 0] = 9.0
    assert frame.iloc[0, 0] == 1.0


def test_observed_leaves_out_what_was_carried(store: Store):
    day = OLD.index[2].date()
    frame = drop_carried(OLD, {"B": (day,)})
    assert np.isnan(frame.loc["2020-01-06", "B"]) and frame.isna().sum().sum() == 2
    assert OLD.loc["2020-01-06", "B"] == 6.0


def test_nothing_to_store_is_refused(store: Store):
    with pytest.raises(SnapshotError, match="no price to store"):
        save(store, "n", OLD.iloc[:0])
    assert store.list() == ()


def test_ticker_called_like_the_index_is_refused(store: Store):
    with pytest.raises(SnapshotError, match="cannot be called date"):
        save(store, "n", OLD.rename(columns={"A": "date"}))


# The hash of the content


def plain_hash(frame: pd.DataFrame) -> str:
    """The definition, with nothing but struct."""
    parts = [b"portfolio_sdpo prices 1\n", json.dumps(list(frame.columns)).encode(), b"\n"]
    parts += [struct.pack("<q", (day - pd.Timestamp(0)).days) for day in frame.index]
    for ticker in frame:
        for value in frame[ticker]:
            number = 0x7FF8000000000000 if value != value else struct.unpack("<Q", struct.pack("<d", value or 0.0))[0]
            parts.append(struct.pack("<Q", number))
    return sha256(b"".join(parts)).hexdigest()


def test_content_hash_is_pinned():
    """Old snapshots must be found by this hash for ever."""
    assert content_hash(OLD) == "14cd51aba5ec32cf44eb65baba02c102d3f3e4fa1f03eb620d460bb9d664c993"


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.floats(allow_infinity=False) | st.sampled_from([0.0, -0.0]), min_size=2, max_size=2),
        min_size=1,
        max_size=6,
    )
)
def test_content_hash_follows_its_definition(rows: list[list[float]]):
    frame = table(*rows)
    assert content_hash(frame) == plain_hash(frame)


def test_content_hash_sees_prices_and_nothing_else():
    values = OLD.to_numpy().copy()
    values.view("u8")[0, 1] = 0xFFF8000000000123  # another NaN
    twin = pd.DataFrame(np.asfortranarray(values), index=OLD.index.as_unit("ns"), columns=list(OLD.columns))
    assert content_hash(twin) == content_hash(OLD)
    bits = OLD.to_numpy().copy()
    bits[2, 0] = np.nextafter(bits[2, 0], 9.0)
    others = [
        pd.DataFrame(bits, index=OLD.index, columns=OLD.columns),
        OLD.rename(columns={"A": "AA"}),
        OLD.set_axis(OLD.index + pd.Timedelta(days=1)),
        OLD.iloc[:2],
        OLD[["A"]],
    ]
    assert len({content_hash(frame) for frame in [OLD, *others]}) == 6


# Names and versions


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "-x", "a/b", "../a", "a\\b", "a b", "a\n", "ä", "a@b", "a" * 101, "a\0"]
)
def test_bad_names_are_refused(store: Store, name: str):
    with pytest.raises(SnapshotError, match="cannot be called"):
        save(store, name, OLD)
    if "@" not in name:
        with pytest.raises(SnapshotError, match="cannot be called"):
            store.open(name)


@pytest.mark.parametrize("name", ["a", "9", "SP500.2020-v1_x", "a..b", "a" * 100])
def test_good_names(store: Store, name: str):
    save(store, name, OLD)
    assert store.list() == (name,) and store.open(name).manifest.name == name


def test_unknown_name_says_which_there_are(store: Store):
    assert store.list() == () and store.verify() == ()
    with pytest.raises(SnapshotError, match=r"no snapshot x \(known: none\)"):
        store.open("x")
    save(store, "n", OLD)
    with pytest.raises(SnapshotError, match=r"no snapshot x \(known: n\)"):
        store.open("x")


def test_versions_form_a_chain(store: Store):
    first, second, third = save(store, "n", OLD), save(store, "n", NEW), save(store, "n", OLD)
    assert first.new and second.new and third.new
    history = list(store.history("n"))
    assert [digest for digest, _ in history] == [each.snapshot.digest for each in (third, second, first)]
    assert [manifest.sha256 for _, manifest in history] == [content_hash(f) for f in (OLD, NEW, OLD)]
    assert [manifest.parent for _, manifest in history] == [content_hash(NEW), content_hash(OLD), None]
    assert len(files(store, "parquet")) == 2
    pd.testing.assert_frame_equal(store.open(f"n@{content_hash(NEW)[:8]}").frame, NEW, check_freq=False)
    assert store.open(f"n@{content_hash(OLD)}").digest == third.snapshot.digest


def test_same_prices_make_no_new_version(store: Store):
    first = save(store, "n", OLD)
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("*") if path.is_file()}
    again = save(store, "n", OLD)
    assert not again.new and again.snapshot.digest == first.snapshot.digest
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("*") if path.is_file()} == before


def test_same_prices_asked_for_in_another_way_are_a_version_of_their_own(store: Store):
    first = save(store, "n", OLD)
    moved = REQUEST.model_copy(update={"settings": {"path": "moved.csv"}})
    prices = Prices(OLD, "close", "unknown")
    known = store.save("n", CleanPrices(OLD, Report(), {}), prices, moved)
    assert known.new and store.open("n").manifest.request == moved
    assert known.snapshot.manifest.parent == known.snapshot.manifest.sha256 == first.snapshot.manifest.sha256
    adjusted = store.save("n", CleanPrices(OLD, Report(), {}), Prices(OLD, "close", "splits"), moved)
    assert adjusted.new and store.open("n").manifest.adjustment == "splits"
    failed = Prices(OLD, "close", "splits", {"D": SourceError("Nobody knows D.")})
    assert store.save("n", CleanPrices(OLD, Report(), {}), failed, moved).new
    assert not store.save("n", CleanPrices(OLD, Report(), {}), failed, moved).new
    assert len(files(store, "parquet")) == 1


def test_an_update_without_news_makes_no_version_whatever_failed_meanwhile(store: Store):
    base = save(store, "n", OLD).snapshot.digest
    failed = Prices(OLD, "close", "unknown", {"A": SourceError("Too many requests.")})
    assert not store.save("n", CleanPrices(OLD, Report(), {}), failed, REQUEST, base=base).new


def test_same_prices_under_two_names_share_a_file(store: Store):
    save(store, "n", OLD)
    assert save(store, "m", OLD).new
    assert len(files(store, "parquet")) == 1 and store.list() == ("m", "n")


@pytest.mark.parametrize("prefix", ["", "zz", "0" * 64])
def test_unknown_version(store: Store, prefix: str):
    save(store, "n", OLD)
    with pytest.raises(SnapshotError, match="no version"):
        store.open(f"n@{prefix}")


def test_ambiguous_version(store: Store):
    frames, firsts = [], set()
    for price in range(1, 40):
        frames.append(table([float(price)]))
        first = content_hash(frames[-1])[0]
        if first in firsts:
            break
        firsts.add(first)
    for frame in frames:
        save(store, "n", frame)
    with pytest.raises(SnapshotError, match="more of the hash"):
        store.open(f"n@{first}")


def test_a_version_that_is_not_based_on_the_current_one_is_refused(store: Store):
    base = save(store, "n", OLD).snapshot.digest
    save(store, "n", NEW)
    with pytest.raises(SnapshotError, match="Another process changed n"):
        save(store, "n", table([9.0]), base=base)
    assert not save(store, "n", NEW, base=base).new
