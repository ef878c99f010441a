"""A backtest on disk: read as it was written, there as a whole or not at all."""

import resource
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest import make_strategy, simulate
from portfolio_sdpo.backtest.record import (
    StrategyRun,
    list_records,
    make_record,
    read_metrics,
    read_record,
    read_table,
    split_by_track,
    write_record,
)
from portfolio_sdpo.common.files import make_id
from portfolio_sdpo.errors import BacktestError, RunError
from portfolio_sdpo.portfolio.market import Market

FEE = 0.01


@pytest.fixture
def walks(prices):
    market = Market.from_prices(prices(60))
    tracks = [simulate(market, make_strategy(name), fee=FEE) for name in ("equal-weight", "buy-and-hold")]
    trace = [{"date": day, "iteration": 0, "risk": 0.1, "regime": "margin"} for day in tracks[1].dates[:3]]
    return [StrategyRun(tracks[0], "benchmark"), StrategyRun(tracks[1], "agent", seed=7, trace=trace)]


@pytest.fixture
def record(walks):
    metrics = [{"strategy": walk.track.name, "seed": walk.seed, "sharpe": None} for walk in walks]
    return make_record(
        {"id": "x", "settings": {"α": 0.1, "execution": "next-close", "shield_form": "calibrated"}}, metrics, walks, FEE
    )


def test_round_trip(record, tmp_path):
    folder = tmp_path / "deep" / "run"
    write_record(record, "<html>é</html>", folder)
    found = read_record(folder)
    assert (found.config, found.metrics) == (record.config, record.metrics)
    for name in ("equity", "weights", "trades", "trace"):
        pd.testing.assert_frame_equal(getattr(found, name), getattr(record, name))
    assert found.shield is None and not (folder / "shield.parquet").exists()
    assert (folder / "report.html").read_text() == "<html>é</html>"
    assert list_records(tmp_path / "deep") == (folder,)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["run"]


def test_tables_are_the_tracks(record, walks):
    track = walks[1].track
    equity, weights = (split_by_track(table)["buy-and-hold", 7] for table in (record.equity, record.weights))
    np.testing.assert_array_equal(equity["wealth"], track.wealth)
    np.testing.assert_array_equal(equity["return"].iloc[1:], track.returns)
    assert np.isnan(equity["return"].iloc[0])
    assert tuple(weights.columns[3:]) == track.assets
    np.testing.assert_array_equal(weights.iloc[:-1, 3:], track.weights)
    np.testing.assert_array_equal(weights.iloc[-1, 3:].astype(float), track.held[-1])


def test_trades_pay_the_fees_and_balance(record, walks):
    """Fees of the day's trades are the day's cost, amounts bought and sold are its turnover."""
    for walk in walks:
        track = walk.track
        trades = split_by_track(record.trades)[track.name, walk.seed]
        days = pd.DatetimeIndex(track.dates[:-1])
        cost = trades.groupby("date")["cost"].sum().reindex(days, fill_value=0.0)
        np.testing.assert_allclose(cost, track.costs, atol=1e-13)
        traded = trades["amount"].abs().groupby(trades["date"]).sum().reindex(days, fill_value=0.0)
        np.testing.assert_allclose(traded / track.wealth[:-1], track.turnover, atol=1e-13)
        assert (trades["amount"].abs() > 0).all()


def test_all_in_from_cash_is_one_purchase():
    """$1,000, a fee of 1 %, one stock: 990.10 are bought for a fee of 9.90."""
    days = pd.to_datetime(["2019-01-02", "2019-01-03", "2019-01-04"])
    market = Market.from_prices(pd.DataFrame({"A": [10.0, 11.0, 12.0]}, index=days))
    track = simulate(market, make_strategy("equal-weight", every=1), fee=0.01, wealth=1000.0)
    trades = make_record({}, [], [StrategyRun(track, "benchmark")], 0.01).trades
    assert len(trades) == 1
    trade = trades.iloc[0]
    assert (trade["ticker"], trade["weight_before"], trade["weight_after"]) == ("A", 0.0, 1.0)
    assert trade["amount"] == pytest.approx(990.0990, abs=1e-4)
    assert trade["cost"] == pytest.approx(9.9010, abs=1e-4)


def test_never_overwritten(record, tmp_path):
    write_record(record, "first", tmp_path / "run")
    with pytest.raises(RunError, match="never overwritten: choose another folder"):
        write_record(record, "second", tmp_path / "run")
    assert (tmp_path / "run" / "report.html").read_text() == "first"
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="never overwritten"):
        write_record(record, "", tmp_path / "file")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="never overwritten"):
        write_record(record, "", tmp_path / "link")
    (tmp_path / "empty").mkdir()
    write_record(record, "", tmp_path / "empty")
    assert read_metrics(tmp_path / "empty") == record.metrics


def test_a_disk_that_is_full_leaves_nothing(record, tmp_path):
    """The operating system refuses the last and largest file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(RunError, match=r"cannot be written to .* make room or name another folder"):
            write_record(record, "x" * 2_000_000, tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way(record, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written to"):
        write_record(record, "", tmp_path / "file" / "run")


def test_damage_is_named(record, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(RunError, match=r"holds no config\.json, so it is no backtest"):
        read_record(folder)
    write_record(record, "", folder)
    content = bytearray((folder / "equity.parquet").read_bytes())
    content[len(content) // 3] ^= 1
    (folder / "equity.parquet").write_bytes(content)
    with pytest.raises(RunError, match=r"equity\.parquet is damaged \(it was changed after it was written\)"):
        read_table(folder, "equity")
    text = (folder / "metrics.json").read_text()
    (folder / "metrics.json").write_text(text.replace("1", "2", 1))
    with pytest.raises(RunError, match=r"metrics\.json is damaged \(it was changed after it was written\)"):
        read_metrics(folder)
    (folder / "SHA256SUMS").unlink()  # a folder of an earlier version
    read_table(folder, "weights")
    (folder / "equity.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match=r"equity\.parquet is damaged"):
        read_table(folder, "equity")
    for content in ("{", "[]", '{"records": []}'):
        (folder / "metrics.json").write_text(content)
        with pytest.raises(RunError, match=r"metrics\.json is damaged"):
            read_metrics(folder)
    (folder / "metrics.json").write_text('{"format": 2}')
    with pytest.raises(RunError, match="another version"):
        read_metrics(folder)


def test_nothing_is_listed_where_nothing_is(tmp_path):
    assert list_records(tmp_path / "none") == ()
    (tmp_path / ".run.1234").mkdir()
    assert list_records(tmp_path) == ()


def test_id_is_time_and_content():
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    one, two = make_id(now, {"a": 1}), make_id(now, {"a": 2})
    assert one.startswith("20260102-030405-") and one != two
    assert make_id(now, {"a": 1}) == one


def test_a_ticker_called_date_is_refused(prices):
    market = Market.from_prices(prices(30, gaps=False).rename(columns={"S0": "seed"}))
    walk = StrategyRun(simulate(market, make_strategy("equal-weight")), "benchmark")
    with pytest.raises(BacktestError, match="A ticker cannot be called seed"):
        make_record({}, [], [walk], 0.0)


def test_a_trace_without_dates_is_refused(walks):
    broken = StrategyRun(walks[1].track, "agent", 0, trace=[{"date": "soon", "risk": 1.0}])
    with pytest.raises(BacktestError, match="training trace of buy-and-hold cannot be read"):
        make_record({}, [], [broken], 0.0)


def test_a_folder_from_before_there_was_a_choice_traded_at_the_same_close(record, tmp_path):
    old = replace(record, config={"id": "x", "settings": {}})
    write_record(old, "", tmp_path / "old")
    assert read_record(tmp_path / "old").config["settings"] == {
        "execution": "same-close",
        "shield_form": "filtered",
    }


def test_trades_say_when_they_were_decided(record, walks):
    for walk in walks:
        trades = split_by_track(record.trades)[walk.track.name, walk.seed]
        dates = list(pd.DatetimeIndex(walk.track.dates))
        assert all(dates.index(row.date) == dates.index(row.decided) + 1 for row in trades.itertuples())
