"""Finished backtests over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from portfolio_sdpo.backtest.record import home as backtests
from portfolio_sdpo.backtest.record import read_record
from portfolio_sdpo.backtest.run import BacktestSettings
from portfolio_sdpo.report.result import run_backtest

from ..helpers import problem


def test_backtests(serve: Callable[..., Any]):
    settings = BacktestSettings(strategies=("equal-weight",), start="2021-08-02", end="2021-08-31", bootstrap=None)
    done = run_backtest(settings)
    (backtests() / "20990101-000000-damaged0").mkdir()
    (backtests() / "20990101-000000-damaged0" / "config.json").write_text("{")
    http = serve().http
    listed = http.get("/backtests").json()
    assert [each["damaged"] for each in listed["backtests"]] == [True, False]
    assert listed["backtests"][1]["strategies"] == ["equal-weight"]
    shown = http.get(f"/backtests/{done.folder.name}").json()
    record = read_record(done.folder)
    assert shown["metrics"] == record.metrics and shown["config"] == record.config
    (track,) = shown["tracks"]
    assert track["dates"] == [str(day.date()) for day in record.equity["date"]]
    assert track["equity"]["wealth"] == record.equity["wealth"].tolist()
    assert track["equity"]["return"][0] is None
    assert next(iter(track["weights"])) == "CASH"
    assert track["weights"]["AAPL"] == record.weights["AAPL"].tolist()
    problem(http.get("/backtests/20990101-000000-damaged0"), 500, "record-damaged")
