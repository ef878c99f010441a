"""What a snapshot stores beside its prices: frequency, currency, raw closes, memberships; and what is refused."""

from datetime import date, timedelta

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.errors import DataQualityError, LayoutError, SnapshotError
from portfolio_sdpo.prices.cleaning import Repairs, clean
from portfolio_sdpo.prices.frequency import recognise_frequency
from portfolio_sdpo.prices.ingest import import_snapshot
from portfolio_sdpo.prices.membership import read_membership
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.returns import accumulate_returns
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.prices.update import update_snapshot

DAYS = pd.bdate_range("2023-01-03", periods=40)


def walk(rows: int, seed: int = 0) -> np.ndarray:
    return np.round(100 * np.exp(np.random.default_rng(seed).normal(0, 0.01, rows).cumsum()), 2)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def write(path, index, **columns) -> None:
    pd.DataFrame(columns, index=index).to_csv(path, index_label="Date")


@pytest.mark.parametrize(
    ("index", "name", "yearly", "calendar"),
    [
        (DAYS, "daily", 252, "XNYS"),
        (pd.date_range("2023-01-01", periods=40), "24/7", 365, "24/7"),
        (pd.date_range("2020-01-03", periods=40, freq="W-FRI"), "weekly", 52, None),
        (pd.date_range("2015-01-31", periods=40, freq="ME"), "monthly", 12, None),
        (pd.date_range("2005-03-31", periods=40, freq="QE"), "quarterly", 4, None),
    ],
)
def test_frequency_is_recognised_stored_and_chooses_the_calendar(tmp_path, store, index, name, yearly, calendar):
    assert recognise_frequency(index).name == name
    write(tmp_path / "p.csv", index, A=walk(40))
    manifest = import_snapshot(tmp_path / "p.csv", "n", store=store).snapshot.manifest
    assert (manifest.frequency, manifest.periods_per_year, manifest.request.calendar) == (name, yearly, calendar)
    assert not any("without a price" in warning for warning in manifest.warnings if name != "daily")


def test_raw_closes_dividends_and_splits_are_stored_and_updated(tmp_path, store):
    close, path = walk(40), tmp_path / "AAPL.csv"
    dividends = np.where(np.arange(40) == 10, 0.5, 0.0)

    def save(rows: int) -> None:
        table = {"Close": close, "Adj Close": np.round(close * 0.9, 4), "Dividends": dividends}
        write(path, DAYS[:rows], **{name: column[:rows] for name, column in table.items()})

    save(30)
    manifest = import_snapshot(path, "n", store=store).snapshot.manifest
    assert sorted(manifest.companions) == ["close", "dividends"]
    assert store.open_companion(manifest, "close")["AAPL"].tolist() == close[:30].tolist()
    save(40)
    manifest = update_snapshot("n", store=store).snapshot.manifest
    assert store.open_companion(manifest, "close")["AAPL"].tolist() == close.tolist()
    assert store.open_companion(manifest, "dividends")["AAPL"].sum() == 0.5
    assert not any(check.problem for check in store.verify())
    damaged = next(store.root.glob(f"objects/*/{manifest.companions['close']}.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"damaged!!")
    assert any(check.problem for check in store.verify())


def test_raw_closes_are_the_companion_or_prices_that_are_not_adjusted(tmp_path, store):
    close = walk(40)
    write(tmp_path / "AAPL.csv", DAYS, **{"Close": close, "Adj Close": np.round(close * 0.9, 4)})
    both = import_snapshot(tmp_path / "AAPL.csv", "both", store=store).snapshot.manifest
    assert store.open_raw_closes(both)["AAPL"].tolist() == close.tolist()
    gap = [None if row == 20 else price for row, price in enumerate(close)]
    (tmp_path / "w.csv").write_text(
        "# adjustment: none\n" + pd.DataFrame({"A": gap, "B": close}, index=DAYS).to_csv(index_label="Date")
    )
    plain = import_snapshot(tmp_path / "w.csv", "plain", calendar=None, store=store).snapshot
    raw = store.open_raw_closes(plain.manifest)["A"]
    assert plain.frame["A"].iloc[20] == close[19] and np.isnan(raw.iloc[20])  # nothing was traded at a carried price
    assert raw.dropna().tolist() == [price for price in gap if price is not None]
    write(tmp_path / "x.csv", DAYS, A=close)
    unknown = import_snapshot(tmp_path / "x.csv", "unknown", store=store).snapshot.manifest
    with pytest.raises(SnapshotError, match=r"unknown has no closes as they were traded.*adjustment unknown"):
        store.open_raw_closes(unknown)


def test_a_ticker_called_cash_is_refused_before_it_is_stored(tmp_path, store):
    write(tmp_path / "p.csv", DAYS, AAPL=walk(40), CASH=walk(40, 1))
    with pytest.raises(DataQualityError, match=r"called CASH, .*such as CASH.US, or leave it out with --tickers"):
        import_snapshot(tmp_path / "p.csv", "n", store=store)
    assert store.list() == ()
    assert import_snapshot(tmp_path / "p.csv", "n", tickers=["AAPL"], store=store).snapshot.manifest.tickers == (
        "AAPL",
    )


def test_what_is_not_asked_for_may_hold_anything(tmp_path, store):
    write(tmp_path / "p.csv", DAYS, AAPL=walk(40), FOO=np.random.default_rng(0).normal(0, 0.01, 40))
    with pytest.raises(LayoutError, match=r"'FOO' holds numbers like returns.* name the others with --tickers"):
        import_snapshot(tmp_path / "p.csv", "n", store=store)
    assert import_snapshot(tmp_path / "p.csv", "n", tickers=["aapl"], store=store).snapshot.manifest.tickers == (
        "AAPL",
    )
    volume = np.where(np.arange(400) < 370, np.nan, np.random.default_rng(0).integers(1e6, 9e6, 400))
    write(tmp_path / "p.csv", pd.bdate_range("2020-01-03", periods=400), AAPL=walk(400), LATE=volume)
    with pytest.raises(LayoutError, match="'LATE' holds numbers that jump like volumes"):
        import_snapshot(tmp_path / "p.csv", "n", store=store)


def test_returns_start_from_a_row_of_100(tmp_path, store):
    returns = pd.DataFrame({"A": [0.01, -0.02], "B": [None, 0.1]}, index=pd.to_datetime(["2020-01-02", "2020-01-03"]))
    returns.to_csv(tmp_path / "r.csv", index_label="Date")
    frame = import_snapshot(tmp_path / "r.csv", "n", returns="decimal", store=store).snapshot.frame
    assert [f"{day:%Y-%m-%d}" for day in frame.index] == ["2019-12-31", "2020-01-02", "2020-01-03"]
    np.testing.assert_allclose(frame["A"], [100, 101, 98.98])
    np.testing.assert_allclose(frame["B"], [np.nan, 100, 110])
    for days, base in (
        (pd.date_range("2015-01-31", periods=30, freq="ME"), "2014-12-31"),
        (pd.date_range("2015-01-02", periods=30, freq="W-FRI"), "2014-12-26"),
        (pd.date_range("2015-01-01", periods=30), "2014-12-31"),
    ):
        levels = accumulate_returns(pd.DataFrame({"A": np.full(30, 0.5)}, index=days), "percent")
        assert f"{levels.index[0]:%Y-%m-%d}" == base and levels["A"].iloc[:2].round(6).tolist() == [100.0, 100.5]


def test_currencies(tmp_path, store):
    lines = [f"{day:%Y-%m-%d},{t},{p},{c}" for day, p in zip(DAYS, walk(40), strict=True) for t, c in
             (("SAP.DE", "EUR"), ("AAPL", "USD"))]  # fmt: skip
    (tmp_path / "p.csv").write_text("\n".join(["date,ticker,close,currency", *lines]))
    with pytest.raises(DataQualityError, match=r"several currencies \(EUR: SAP.DE; USD: AAPL\).*--tickers"):
        import_snapshot(tmp_path / "p.csv", "n", store=store)
    made = import_snapshot(tmp_path / "p.csv", "n", tickers=["AAPL"], store=store).snapshot.manifest
    assert made.currency == "USD" and made.tickers == ("AAPL",)


def test_a_universe_follows_its_memberships(tmp_path, store):
    write(tmp_path / "p.csv", DAYS, A=walk(40), B=walk(40, 1), C=walk(40, 2))
    (tmp_path / "members.csv").write_text("ticker,from,to\nA,,\nB,2023-01-10,2023-01-20\nB,2023-02-01,\nX,,\n")
    membership = read_membership(tmp_path / "members.csv")
    assert membership["B"] == ((date(2023, 1, 10), date(2023, 1, 20)), (date(2023, 2, 1), None))
    snapshot = import_snapshot(tmp_path / "p.csv", "n", membership=membership, store=store).snapshot
    assert list(snapshot.frame) == ["A", "B"]
    listed = snapshot.frame["B"].dropna().index
    assert (listed[0], len(snapshot.frame["A"].dropna())) == (pd.Timestamp("2023-01-10"), 40)
    assert not ((listed > "2023-01-20") & (listed < "2023-02-01")).any() and listed[-1] == DAYS[-1]
    assert "membership file" in snapshot.manifest.survivorship
    assert not update_snapshot("n", store=store).new
    (tmp_path / "members.csv").write_text("name,when\nA,2020-01-01\n")
    with pytest.raises(LayoutError, match="columns ticker, from and to"):
        read_membership(tmp_path / "members.csv")


def test_every_universe_has_a_line_on_survivorship(tmp_path, store):
    ended = walk(40, 1)
    ended[20:] = np.nan
    write(tmp_path / "p.csv", DAYS, A=walk(40), B=ended)
    assert "1 of 2 tickers end" in import_snapshot(tmp_path / "p.csv", "n", store=store).snapshot.manifest.survivorship
    write(tmp_path / "p.csv", DAYS, A=walk(40))
    assert "survivorship bias" in import_snapshot(tmp_path / "p.csv", "n", store=store).snapshot.manifest.survivorship


def test_dates_after_tomorrow_are_refused(tmp_path, store):
    index = [*DAYS[:-1], pd.Timestamp("2099-12-31")]
    write(tmp_path / "p.csv", index, A=walk(40))
    with pytest.raises(DataQualityError, match=r"1 row dated in the future \(2099-12-31\).*--end"):
        import_snapshot(tmp_path / "p.csv", "n", store=store)
    assert import_snapshot(tmp_path / "p.csv", "n", end=date(2023, 12, 31), store=store).snapshot.manifest.rows == 39
    tomorrow = pd.DatetimeIndex([date.today() + timedelta(days=1)])
    clean(Prices(to_wide(pd.DataFrame({"A": [1.0]}, index=tomorrow)), "close", "none"), calendar=None)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_returns_are_never_advised_to_be_dropped_into_prices(scale):
    returns = pd.DataFrame({"A": scale * np.random.default_rng(0).normal(0, 0.01, 40)}, index=DAYS)
    for repairs in (Repairs(), Repairs(non_positive="drop")):
        with pytest.raises(DataQualityError, match="A holds returns") as caught:
            clean(Prices(to_wide(returns), "close", "none"), calendar=None, repairs=repairs)
        assert "non_positive" not in str(caught.value) and "--returns" in str(caught.value)


def test_many_prices_a_day_are_advised_to_keep_the_last():
    index = DAYS.repeat(3)
    with pytest.raises(DataQualityError, match="--repair duplicates=last"):
        clean(Prices(to_wide(pd.DataFrame({"A": walk(120)}, index=index)), "close", "none"), calendar=None)


@pytest.mark.parametrize(
    ("index", "name"),
    [
        (pd.DatetimeIndex(["2020-01-31"]), "daily"),
        (pd.bdate_range("2020-01-02", periods=5), "daily"),
        (pd.date_range("2020-01-03", periods=7, freq="W-FRI"), "weekly"),
        (pd.date_range("2020-01-31", periods=6, freq="ME"), "monthly"),
        (pd.date_range("2015-12-31", periods=3, freq="YE"), "yearly"),
    ],
)
def test_a_few_dates_are_daily_only_if_they_are_close(index, name):
    assert recognise_frequency(index).name == name
