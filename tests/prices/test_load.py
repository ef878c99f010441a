"""One call for a file, a folder, a snapshot, a sample or a frame."""

import pandas as pd
import pytest

from portfolio_sdpo.errors import DataQualityError, LayoutError, SettingsError, SnapshotError
from portfolio_sdpo.prices.ingest import import_snapshot
from portfolio_sdpo.prices.load import load_prices
from portfolio_sdpo.prices.snapshots import Store


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sample():
    return load_prices("sample").loc["2019-01":"2019-06"]


def test_a_file_is_cleaned_as_an_import_cleans_it(place, sample):
    sample.to_csv("prices.csv")
    found = load_prices("prices.csv")
    stored = import_snapshot(place / "prices.csv", "mine").snapshot
    pd.testing.assert_frame_equal(found, stored.frame)
    pd.testing.assert_frame_equal(load_prices(place / "prices.csv"), found)
    assert any("Recognised as wide" in note for note in found.attrs["notes"])


def test_a_snapshot_by_its_name_and_version(place, sample):
    sample.to_csv("prices.csv")
    first = import_snapshot(place / "prices.csv", "mine").snapshot
    sample.iloc[:-5].to_csv("prices.csv")
    import_snapshot(place / "prices.csv", "mine")
    assert len(load_prices("mine")) == len(sample) - 5
    pd.testing.assert_frame_equal(load_prices(f"mine@{first.manifest.sha256[:8]}"), first.frame)
    with pytest.raises(SnapshotError, match="no version"):
        load_prices("mine@0123456789")
    with pytest.raises(SettingsError, match="mine is a snapshot"):
        load_prices("mine", layout="wide")


def test_a_snapshot_comes_before_a_folder_of_its_name(place, sample):
    (place / "mine").mkdir()
    sample[["AAPL"]].to_csv(place / "mine" / "only.csv")
    assert list(load_prices("mine")) == ["AAPL"]
    sample.to_csv("prices.csv")
    import_snapshot(place / "prices.csv", "mine")
    assert load_prices("mine").shape == sample.shape
    assert list(load_prices(place / "mine")) == ["AAPL"]


def test_a_frame_is_checked_and_never_written_to(sample):
    before = sample.copy()
    pd.testing.assert_frame_equal(load_prices(sample), before, check_freq=False)
    with pytest.raises(DataQualityError, match="look like returns"):
        load_prices(sample.pct_change().dropna())


def test_what_is_read_may_be_written_to(place, sample):
    sample.to_csv("prices.csv")
    import_snapshot(place / "prices.csv", "mine")
    found = load_prices("mine")
    found.iloc[0, 0] = 1.0
    assert Store().open("mine").frame.iloc[0, 0] == sample.iloc[0, 0]


def test_what_is_not_there_is_told_with_what_is(sample):
    with pytest.raises(SnapshotError, match=r"called sampel \(did you mean 'sample'\?\).*sample, sample-skfolio"):
        load_prices("sampel")
    with pytest.raises(LayoutError, match=r"nowhere\.csv: there is no such file"):
        load_prices("nowhere.csv")
    with pytest.raises(DataQualityError, match="got NoneType"):
        load_prices(None)


def test_returns_in_a_file_are_refused_unless_their_unit_is_given(sample):
    sample = sample.dropna(axis=1)
    (sample / sample.shift()).dropna().to_csv("gross.csv")
    with pytest.raises(LayoutError, match="look like gross returns and not like prices: add returns='gross'"):
        load_prices("gross.csv")
    found = load_prices("gross.csv", returns="gross")
    wanted = sample.pct_change().loc[found.index]
    pd.testing.assert_frame_equal(found.pct_change().iloc[1:], wanted.iloc[1:], check_freq=False)


def test_intraday_prices_are_refused_unless_the_last_of_a_day_is_wanted(sample):
    hours = [day + pd.Timedelta(hours=hour) for day in sample.index[:40] for hour in (10, 16)]
    sample.dropna(axis=1).iloc[:40].loc[lambda table: table.index.repeat(2)].set_axis(hours).to_csv("hours.csv")
    with pytest.raises((LayoutError, DataQualityError), match="to_daily=True"):
        load_prices("hours.csv")
    assert len(load_prices("hours.csv", to_daily=True)) == 40
