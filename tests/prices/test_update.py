"""An update fetches only what is new, trusts no overlap that changed, and never alters a stored price in silence."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import (
    NoDataInRangeError,
    PortfolioSdpoError,
    RateLimitedError,
    SnapshotError,
    SourceError,
    UnknownTickerError,
)
from portfolio_sdpo.prices.cleaning import Repairs
from portfolio_sdpo.prices.ingest import fetch_snapshot, import_snapshot
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.prices.sources import SOURCES, File
from portfolio_sdpo.prices.sources.base import select
from portfolio_sdpo.prices.update import OVERLAP, TOLERANCE, update_snapshot

NAN = float("nan")
DATES = pd.bdate_range("2020-01-01", periods=60)


class Memory:
    """A source that serves a table, with all the manners of the real ones."""

    name: ClassVar[str] = "memory"
    table: ClassVar[pd.DataFrame]
    broken: ClassVar[dict[str, SourceError]]
    column: ClassVar[str]
    asked: ClassVar[list[tuple[tuple[str, ...], date | None]]]

    def settings(self) -> dict:
        return {}

    def fetch(self, tickers: Sequence[str], start: date | None, end: date | None, progress=None) -> Prices:
        Memory.asked.append((tuple(tickers), start))
        failures = {ticker: Memory.broken[ticker] for ticker in tickers if ticker in Memory.broken}
        sound = [ticker for ticker in tickers if ticker not in failures]
        if not sound:
            raise next(iter(failures.values()))
        prices = select(Prices(to_wide(Memory.table), Memory.column, "unknown"), "memory", sound, start, end, progress)
        return Prices(prices.frame, prices.column, prices.adjustment, {**prices.failures, **failures}, ("Served.",))


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> type[Memory]:
    monkeypatch.setitem(SOURCES._items, "memory", Memory)
    reset()
    return Memory


def reset() -> None:
    values = np.random.default_rng(7).uniform(50, 60, (len(DATES), 3)).round(2)
    Memory.table = pd.DataFrame(values, index=DATES, columns=[*"ABC"])
    Memory.broken = {}
    Memory.column = "close"
    Memory.asked = []


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "snapshots")


def fetched(store: Store, rows: int = 40, tickers: str = "ABC", **options) -> pd.DataFrame:
    """A snapshot of the first rows."""
    last = DATES[rows - 1].date()
    saved = fetch_snapshot("memory", [*tickers], DATES[0].date(), last, "n", calendar=None, store=store, **options)
    Memory.asked.clear()
    return saved.snapshot.frame


def equal(frame: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(frame, to_wide(expected), check_freq=False)


def test_only_what_is_new_is_fetched(store: Store):
    old = fetched(store)
    parent = store.open("n").manifest.sha256
    updated = update_snapshot("n", store=store)
    assert Memory.asked == [(("A", "B", "C"), DATES[40 - OVERLAP].date())]
    assert updated.new and not updated.readjusted
    assert updated.sentences == (f"20 new sessions, {DATES[40].date()} to {DATES[-1].date()}.",)
    snapshot = store.open("n")
    equal(snapshot.frame, Memory.table)
    assert snapshot.manifest.parent == parent and snapshot.manifest.source == "memory"
    assert snapshot.manifest.notes == ("Served.", *updated.sentences)
    equal(store.open(f"n@{parent}").frame, old)


def test_nothing_new_makes_nothing(store: Store):
    fetched(store)
    before = store.open("n").digest
    updated = update_snapshot("n", end=DATES[39].date(), store=store)
    assert not updated.new and updated.snapshot.digest == before == store.open("n").digest
    assert updated.sentences == (f"n is up to date: memory has nothing new after {DATES[39].date()}.",)


def test_a_short_snapshot_overlaps_as_far_as_it_goes(store: Store):
    fetched(store, rows=3)
    update_snapshot("n", store=store)
    assert Memory.asked == [(("A", "B", "C"), DATES[0].date())]
    equal(store.open("n").frame, Memory.table)


def test_adjusted_history_is_fetched_in_full_and_said(store: Store):
    fetched(store)
    Memory.table.loc[: DATES[45], "B"] *= 0.999  # a dividend of B goes ex on day 46
    updated = update_snapshot("n", store=store)
    assert Memory.asked == [(("A", "B", "C"), DATES[40 - OVERLAP].date()), (("A", "B", "C"), DATES[0].date())]
    assert updated.new and updated.readjusted == ("B",)
    assert updated.sentences[0] == "memory has adjusted its history of B: all prices were fetched again."
    snapshot = store.open("n")
    equal(snapshot.frame, Memory.table)
    assert snapshot.manifest.parent is not None and updated.sentences[0] in snapshot.manifest.notes


def test_adjusted_history_without_a_new_session_is_a_new_version(store: Store):
    fetched(store, rows=60)
    Memory.table["A"] /= 2
    updated = update_snapshot("n", store=store)
    assert updated.new and updated.readjusted == ("A",) and len(updated.sentences) == 1
    equal(store.open("n").frame, Memory.table)


def test_noise_is_no_adjustment_and_changes_no_stored_price(store: Store):
    old = fetched(store)
    Memory.table *= 1 + 0.5 * TOLERANCE
    updated = update_snapshot("n", store=store)
    assert updated.new and not updated.readjusted and len(Memory.asked) == 1
    equal(store.open("n").frame.iloc[:40], old)


def test_another_column_is_another_history(store: Store):
    fetched(store)
    Memory.column = "Adj Close"
    updated = update_snapshot("n", store=store)
    assert updated.readjusted == ("A", "B", "C") and store.open("n").manifest.column == "Adj Close"


def test_a_late_price_for_a_carried_cell_is_news(store: Store):
    true = Memory.table.loc[DATES[38], "B"]
    Memory.table.loc[DATES[38:40], "B"] = NAN
    old = fetched(store)
    assert (old.loc[DATES[38:40], "B"] == old.loc[DATES[37], "B"]).all()
    assert store.open("n").manifest.carried == {"B": (DATES[38].date(), DATES[39].date())}
    Memory.table.loc[DATES[38], "B"] = true
    updated = update_snapshot("n", end=DATES[39].date(), store=store)
    assert updated.new and not updated.readjusted
    assert updated.sentences == ("1 price came late, of B.",)
    snapshot = store.open("n")
    assert (snapshot.frame.loc[DATES[38:40], "B"] == true).all()
    assert snapshot.manifest.carried == {"B": (DATES[39].date(),)}


def test_a_failed_ticker_is_asked_for_again_in_full(store: Store):
    Memory.broken = {"C": RateLimitedError("Too many requests.")}
    old = fetched(store)
    assert list(old) == ["A", "B"]
    assert store.open("n").manifest.warnings == ("C did not arrive: Too many requests.",)
    still = update_snapshot("n", end=DATES[49].date(), store=store)
    assert still.new and still.sentences[-1] == "C did not arrive: Too many requests."
    assert store.open("n").manifest.failures == {"C": "Too many requests."}
    Memory.broken = {}
    Memory.asked.clear()
    updated = update_snapshot("n", store=store)
    assert Memory.asked == [(("A", "B"), DATES[50 - OVERLAP].date()), (("C",), DATES[0].date())]
    assert "New in the snapshot: C." in updated.sentences
    snapshot = store.open("n")
    equal(snapshot.frame, Memory.table)
    assert snapshot.manifest.failures == {} and snapshot.manifest.warnings == ()


def test_a_ticker_that_fails_once_leaves_no_hole(store: Store):
    """It misses an update by more sessions than overlap; the next one asks for all of them."""
    fetched(store, rows=20)
    Memory.broken = {"C": UnknownTickerError("Nobody knows C.")}
    updated = update_snapshot("n", end=DATES[49].date(), store=store)
    assert updated.sentences[-1] == "C did not arrive: Nobody knows C."
    frame = store.open("n").frame
    assert (
        frame.loc[DATES[20:25], "C"].eq(frame.loc[DATES[19], "C"]).all() and frame.loc[DATES[25:50], "C"].isna().all()
    )
    Memory.broken = {}
    assert not update_snapshot("n", store=store).readjusted
    equal(store.open("n").frame, Memory.table)


def test_a_ticker_that_fails_while_history_is_fetched_again_keeps_its_prices(store: Store):
    old = fetched(store)
    Memory.table["A"] /= 2
    Memory.broken = {"C": UnknownTickerError("Nobody knows C.")}
    updated = update_snapshot("n", store=store)
    assert updated.readjusted == ("A",)
    frame = store.open("n").frame
    assert (frame["C"].iloc[:40] == old["C"]).all() and (frame["A"] == Memory.table["A"]).all()
    assert store.open("n").manifest.failures == {"C": "Nobody knows C."}


def test_a_delisted_ticker_is_no_failure(store: Store):
    Memory.table.loc[DATES[20:], "C"] = NAN
    fetched(store)
    updated = update_snapshot("n", store=store)
    assert updated.new and len(Memory.asked) == 1 and len(updated.sentences) == 1
    snapshot = store.open("n")
    assert snapshot.manifest.failures == {} and snapshot.frame["C"].last_valid_index() == DATES[24]


def test_a_ticker_that_comes_back_after_the_overlap_is_not_spliced_blindly(store: Store):
    """Nothing of it can be compared, so that its adjustment is unknown."""
    gone = Memory.table.loc[DATES[20:50], "C"].index
    Memory.table.loc[gone, "C"] = NAN
    Memory.table.loc[DATES[50:], "C"] *= 10
    Memory.table.loc[DATES[:20], "C"] *= 10
    fetched(store)
    Memory.table["C"] /= 10
    updated = update_snapshot("n", store=store)
    assert updated.readjusted == ("C",)
    assert store.open("n").frame["C"].max() < 100


def test_everything_delisted_is_up_to_date(store: Store):
    fetched(store)
    Memory.broken = {ticker: NoDataInRangeError("Gone.") for ticker in "ABC"}
    assert not update_snapshot("n", store=store).new


def test_no_answer_is_an_error_and_changes_nothing(store: Store):
    fetched(store)
    before = store.open("n").digest
    Memory.broken = {ticker: RateLimitedError("Too many requests.") for ticker in "ABC"}
    with pytest.raises(RateLimitedError):
        update_snapshot("n", store=store)
    assert store.open("n").digest == before


def test_prices_that_left_the_source_are_counted(store: Store):
    fetched(store)
    Memory.table = Memory.table.iloc[5:] / 2
    updated = update_snapshot("n", store=store)
    assert "15 stored prices of A, B, C left the source's history; the version before has them." in updated.sentences
    equal(store.open("n").frame, Memory.table)


def test_new_prices_that_cannot_be_right_need_a_repair(store: Store):
    Memory.table.loc[DATES[3], "A"] = 0.0
    fetched(store, repairs=Repairs(non_positive="drop"))
    [known] = [finding["sentence"] for finding in store.open("n").manifest.report if finding["kind"] == "non-positive"]
    Memory.table.loc[DATES[50], "B"] = -1.0
    update_snapshot("n", store=store)  # as allowed when the snapshot was made
    manifest = store.open("n").manifest
    repaired = [finding for finding in manifest.report if finding["kind"] == "non-positive"]
    assert [finding["ticker"] for finding in repaired] == ["A", "B"] and repaired[0]["sentence"] == known
    assert known in manifest.warnings


def test_repairs_can_be_named_late(store: Store):
    fetched(store)
    Memory.table.loc[DATES[50], "B"] = -1.0
    with pytest.raises(PortfolioSdpoError, match="non_positive=drop"):
        update_snapshot("n", store=store)
    updated = update_snapshot("n", repairs=Repairs(non_positive="drop"), store=store)
    assert updated.new and updated.snapshot.manifest.request.repairs == Repairs(non_positive="drop")


def test_samples_never_change(store: Store):
    fetch_snapshot("sample", ["AAPL", "MSFT"], date(2021, 1, 1), None, "s", store=store)
    updated = update_snapshot("s", store=store)
    assert not updated.new and updated.sentences == ("sample never changes: there is nothing to update.",)


@pytest.mark.parametrize("name", ["x", "n@12"])
def test_only_current_snapshots_are_updated(store: Store, name: str):
    with pytest.raises(SnapshotError):
        update_snapshot(name, store=store)


@given(
    first=st.integers(2, 59),
    steps=st.lists(st.integers(1, 20), max_size=4),
    holes=st.lists(st.tuples(st.integers(0, 59), st.integers(0, 2)), max_size=60),
)
@settings(max_examples=25, deadline=None)
def test_updates_in_steps_give_what_one_fetch_gives(tmp_path_factory, first, steps, holes):
    """Whatever the gaps: old values stay, and the end is the same as that of a fetch of everything."""
    reset()
    for row, column in holes:
        Memory.table.iloc[row, column] = NAN
    Memory.table.iloc[0] = 50.0
    store = Store(tmp_path_factory.mktemp("steps"))
    frame = fetched(store, rows=first)
    for step in steps:
        first = min(first + step, 60)
        longer = update_snapshot("n", end=DATES[first - 1].date(), store=store).snapshot.frame
        pd.testing.assert_frame_equal(longer.loc[frame.index, frame.columns], frame, check_freq=False)
        frame = longer
    whole = fetch_snapshot(
        "memory", [*"ABC"], DATES[0].date(), DATES[first - 1].date(), "whole", calendar=None, store=store
    )
    assert whole.snapshot.manifest.sha256 == store.open("n").manifest.sha256


# Files


@pytest.fixture
def file(store: Store, tmp_path: Path) -> Path:
    path = tmp_path / "prices.csv"
    Memory.table.iloc[:40].to_csv(path, index_label="date")
    import_snapshot(path, "n", calendar=None, store=store)
    return path


def test_a_file_is_read_again(store: Store, file: Path):
    assert not update_snapshot("n", store=store).new
    Memory.table.to_csv(file, index_label="date")
    updated = update_snapshot("n", store=store)
    assert updated.new and not updated.readjusted
    equal(store.open("n").frame, Memory.table)
    assert File(**store.open("n").manifest.request.settings).path == file


def test_a_file_with_another_history_replaces_the_snapshot(store: Store, file: Path):
    changed = Memory.table.assign(B=Memory.table["B"] / 2)
    changed.iloc[10:].to_csv(file, index_label="date")
    assert update_snapshot("n", store=store).readjusted == ("B",)
    equal(store.open("n").frame, changed.iloc[10:])


def test_a_file_that_only_has_the_latest_rows_extends_the_history(store: Store, file: Path):
    Memory.table.iloc[35:].assign(D=7.0).to_csv(file, index_label="date")
    updated = update_snapshot("n", store=store)
    assert not updated.readjusted and "New in the snapshot: D." in updated.sentences
    frame = store.open("n").frame
    equal(frame[[*"ABC"]], Memory.table)
    assert frame["D"].first_valid_index() == DATES[35]


def test_a_file_that_is_gone_is_an_error(store: Store, file: Path):
    file.unlink()
    with pytest.raises(PortfolioSdpoError, match=r"prices\.csv"):
        update_snapshot("n", store=store)
