"""Returns of the user's own: measured like a backtest's, tested against the limit, and refused where they cannot be."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from portfolio_sdpo import BacktestResult, tear_sheet
from portfolio_sdpo.backtest.promise import check_promise
from portfolio_sdpo.backtest.statistics import growth_difference
from portfolio_sdpo.cli import build_app
from portfolio_sdpo.errors import BacktestError, DataQualityError, SettingsError
from portfolio_sdpo.portfolio.return_measures import cagr, conditional_value_at_risk, max_drawdown, window_returns
from portfolio_sdpo.portfolio.shield import CvarLimit


@pytest.fixture(scope="module")
def returns():
    """Two years of a track and of an index that it moves with."""
    days = pd.bdate_range("2019-06-03", periods=500)
    noise = np.random.default_rng(5).normal(0.0004, 0.01, (500, 2))
    noise[:, 0] += 0.5 * noise[:, 1]
    return pd.DataFrame(noise, index=days, columns=["mine", "index"])


@pytest.fixture(scope="module")
def result(returns):
    return tear_sheet(returns["mine"], returns["index"], cvar=-0.06, alpha=0.1, horizon=10, intervals=50)


def test_figures_are_those_of_the_returns(returns, result):
    assert isinstance(result, BacktestResult)
    pd.testing.assert_frame_equal(
        result.returns, returns, check_freq=False, check_names=False, check_index_type=False, rtol=1e-9
    )
    mine = returns["mine"].to_numpy()
    figures = result.metrics.loc["mine"]
    assert figures["cagr"] == pytest.approx(float(cagr(mine)))
    assert figures["max_drawdown"] == pytest.approx(float(max_drawdown(mine)))
    assert figures["cvar_window"] == pytest.approx(float(conditional_value_at_risk(window_returns(mine, 10), 0.1)))
    assert figures["turnover"] is None and figures["cost"] is None


def test_the_promise_is_tested(returns, result):
    limit = CvarLimit(bound=-0.06, alpha=0.1, horizon=10)
    told = result.record.metrics[0]["promise"]
    expected = check_promise(returns["mine"].to_numpy(), limit).to_json()
    for name in ("kept", "realised", "windows", "breaches", "breach_p_value"):
        assert told[name] == pytest.approx(expected[name])
    assert told["p_value"] is not None and None not in told["interval"]
    assert set(result.record.metrics[0]["cvar_by_year"]) == {"2019", "2020", "2021"}
    same_risk = result.record.metrics[0]["same_risk"]
    assert same_risk["reference"] == "index" and result.record.metrics[1]["same_risk"] is None


def test_what_is_printed_and_drawn(result, tmp_path):
    pytest.importorskip("plotly")
    text = str(result)
    assert "mine" in text and "index" in text and "Weights" not in text
    page = result.report(tmp_path / "r.html").read_text()
    assert "<h1>Returns of mine</h1>" in page and "what was held is not known" in page
    for heading in ("Promised and realised risk", "Through time", "Months"):
        assert f"<h2>{heading}</h2>" in page
    assert "Today’s weights" not in page and "In stocks, mean" not in page and ">2020<" in page  # the crisis too
    with pytest.raises(BacktestError, match="do not tell what was held"):
        _ = result.weights


@pytest.mark.parametrize(
    ("unit", "written"), [("percent", lambda r: 100 * r), ("log", np.log1p), ("gross", lambda r: 1 + r)]
)
def test_every_unit_is_the_same_track(returns, result, unit, written):
    other = tear_sheet(written(returns), "index", unit=unit, cvar=-0.06, alpha=0.1, horizon=10, intervals=False)
    np.testing.assert_allclose(other.returns, result.returns, atol=1e-12)


def test_sessions_that_one_track_lacks_are_left_out(returns):
    short = returns["index"].iloc[100:]
    found = tear_sheet(returns["mine"], short, intervals=False)
    assert len(found.returns) == 400
    holes = returns.copy()
    holes.iloc[:50, 0] = np.nan
    found = tear_sheet(holes, "index", intervals=False)
    np.testing.assert_allclose(found.returns["index"].iloc[-400:], returns["index"].iloc[-400:])
    assert any("left out" in note for note in found.record.config["data"]["notes"])


def change(frame, **values):
    changed = frame.copy()
    for name, value in values.items():
        changed.iloc[3, changed.columns.get_loc(name)] = value
    return changed


WRONG = {
    "percent": (lambda r: (r * 100,), {}, DataQualityError, "say what they are with --returns percent"),
    "ruin": (lambda r: (change(r, mine=-1.0),), {}, DataQualityError, "−100 % or below"),
    "no dates": (lambda r: (r.reset_index(drop=True),), {}, DataQualityError, "the index must hold dates"),
    "unsorted": (lambda r: (r.iloc[::-1],), {}, DataQualityError, "in ascending order"),
    "text": (lambda r: (r.astype(str),), {}, DataQualityError, "every column must hold numbers"),
    "unit": (lambda r: (r,), {"unit": "bps"}, SettingsError, "must be one of decimal, percent, log, gross"),
    "no such column": (lambda r: (r, "indx"), {}, SettingsError, r"no track 'indx' \(did you mean 'index'"),
    "two of a name": (lambda r: (r, r["mine"]), {}, SettingsError, "a track is called mine too"),
    "nothing else": (lambda r: (r[["index"]], "index"), {}, SettingsError, "is the only track"),
    "no common days": (
        lambda r: (r["mine"].iloc[:20], r["index"].iloc[30:]),
        {},
        DataQualityError,
        "share 0 returns",
    ),
    "a list": (lambda r: ([0.01],), {}, SettingsError, "must be a Series or a DataFrame"),
    "alpha": (lambda r: (r,), {"alpha": 2}, SettingsError, "alpha"),
}


@pytest.mark.parametrize(("make", "options", "kind", "told"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told(returns, make, options, kind, told):
    with pytest.raises(kind, match=told):
        tear_sheet(*make(returns), intervals=False, **options)


def test_the_command_gives_the_same_figures(returns, result, tmp_path, monkeypatch):
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    returns["mine"].to_csv("mine.csv", index_label="date")
    returns["index"].to_csv("index.csv", index_label="date")
    options = ["--bound", "-0.06", "--alpha", "0.1", "--horizon", "10", "--json"]
    done = CliRunner().invoke(build_app(), ["report", "mine.csv", "--benchmark", "index.csv", *options])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    for field in ("final_wealth", "cvar_window", "sharpe", "max_drawdown"):
        assert told["records"][0][field] == pytest.approx(result.record.metrics[0][field], abs=1e-9)
    assert (tmp_path / told["report"]).read_text().startswith("<!doctype html>")
    wrong = CliRunner().invoke(build_app(), ["report", "mine.csv", "--benchmark", "spy"])
    assert wrong.exit_code != 0 and "neither a column of mine.csv (mine) nor a file" in wrong.stderr


def test_growth_beside_the_benchmark_is_that_of_the_package(returns, result):
    expected = growth_difference(returns["mine"].to_numpy(), returns["index"].to_numpy(), None, 252.0)["growth"]
    gained = np.log(result.wealth.iloc[-1] / result.wealth.iloc[0])
    assert (gained["mine"] - gained["index"]) * 252 / len(returns) == pytest.approx(expected)
