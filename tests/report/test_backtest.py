"""`portfolio_sdpo.backtest`: every sort of strategy on a frame, and the figures that the command line comes to."""

import inspect
import json
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from portfolio_sdpo import BacktestResult, SafeAllocator, backtest, load_prices
from portfolio_sdpo.backtest.record import read_record
from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo.backtest.strategies import make_strategy
from portfolio_sdpo.cli import build_app
from portfolio_sdpo.errors import DataQualityError, HistoryError, SettingsError, WeightsError
from portfolio_sdpo.portfolio.market import Market

QUICK = {
    "history": 60,
    "paths": 16,
    "first": 10,
    "further": 1,
    "every": 10,
    "learner": {"kind": "analytic", "hidden": (8, 8), "learning_rate": 0.1},
}
LIMIT = {"cvar": -0.02, "alpha": 0.1, "horizon": 5}
SHORT = {"start": "2019-07-01", "intervals": False}


@pytest.fixture(scope="module")
def frame(prices):
    """150 sessions from 2019-01-02, in which stocks rise."""
    return prices(150, gaps=False).mul(np.exp(0.003 * np.arange(150)), axis=0)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))


def policy(**changes):
    return SafeAllocator(**{**LIMIT, "settings": QUICK, **changes})


class Half:
    """Half in the first stock."""

    def decide(self, history, held):
        return {"S0": 0.5}


def test_the_room_and_the_function_are_one():
    from portfolio_sdpo.report.backtest import backtest as function

    assert backtest is sys.modules["portfolio_sdpo.backtest"] and callable(backtest)
    assert inspect.signature(backtest) == inspect.signature(function)
    assert backtest.simulate is simulate or backtest.simulate.__name__ == "portfolio_sdpo.backtest.simulate"


def test_tracks_pass_the_form_of_the_shield_that_the_policy_passes(frame):
    old = policy(settings=QUICK | {"shield_form": "filtered"})
    assert backtest(frame, old, **SHORT).record.config["settings"]["shield_form"] == "filtered"
    assert backtest(frame, "cash", **SHORT).record.config["settings"]["shield_form"] == "calibrated"
    with pytest.raises(SettingsError, match="the policies pass different forms of the shield"):
        backtest(frame, {"old": old, "new": policy()}, **SHORT)


def test_tracks_are_traded_when_the_policies_reckon_with(frame):
    old, new = policy(execution="same-close"), policy()

    def find(strategies, **options):
        return backtest(frame, strategies, **SHORT, **options).record.config["settings"]["execution"]

    assert find(old) == "same-close" and find(new) == find("cash") == "next-close"
    assert find({"old": old, "cash": "cash"}, execution="next-close") == "next-close"
    with pytest.raises(SettingsError, match="execution: the policies were made for different ones"):
        find({"old": old, "new": new})
    assert find({"old": old, "new": new}, execution="same-close") == "same-close"


def test_renamed_benchmarks_are_still_rivals_and_the_reference(frame):
    given = {"mine": policy(), "best": "maximum-return", "1/N": "equal-weight"}
    mine, behind, best, _, equal, shielded = backtest(frame, given, **SHORT).record.metrics
    assert list(mine["against"]) == list(behind["against"]) == ["best", "best + shield", "1/N"]
    assert mine["against"]["1/N"]["growth"] == pytest.approx(
        np.log(mine["final_wealth"] / equal["final_wealth"]), rel=1e-6
    )
    assert best["same_risk"]["reference"] == equal["same_risk"]["reference"] == "1/N + shield"
    assert shielded["same_risk"] is None and best["against"] == {}


def test_every_sort_of_strategy_in_one_table(frame):
    pytest.importorskip("skfolio")
    from skfolio.optimization import InverseVolatility

    result = backtest(
        frame,
        {"mine": policy().fit(frame), "1/N": "equal-weight", "half": Half(), "inverse": InverseVolatility()},
        cash=0.02,
        **SHORT,
    )
    assert isinstance(result, BacktestResult)
    # Rivals stand behind the shield as the policy does: 1/N always, and whatever came out strongest.
    strongest = result.wealth[["1/N", "half", "inverse"]].iloc[-1].idxmax()
    assert strongest == "1/N"
    names = ["mine", "mine + shield", "1/N", "1/N + shield", "half", "inverse"]
    assert list(result.returns) == names and list(result.metrics.index) == names
    assert result.returns.index.equals(pd.DatetimeIndex(frame.index[frame.index > "2019-07-01"]).as_unit("us"))
    np.testing.assert_allclose(result.weights.T.groupby(level="strategy").sum().to_numpy(), 1.0, atol=1e-9)
    assert list(result.weights["half"]) == ["CASH", *frame.columns]
    text = str(result)
    assert all(name in text for name in names) and "✓" in text


def test_it_is_the_same_simulation_as_ever(frame):
    result = backtest(frame, ["equal-weight"], fee_bps=10, cash=0.02, **SHORT)
    track = simulate(Market.from_prices(frame, 0.02), make_strategy("equal-weight"), start="2019-07-01", fee=0.001)
    np.testing.assert_array_equal(result.returns["equal-weight"], track.returns)
    np.testing.assert_array_equal(result.weights["equal-weight"].iloc[:-1], track.weights)


def test_it_comes_to_the_figures_of_the_command(tmp_path):
    """The same policy, benchmarks, days, fee and seed by the command line, on the bundled sample: the same record."""
    config = tmp_path / "quick.toml"
    config.write_text(
        'history = 60\npaths = 16\nfirst = 3\nfurther = 1\n[learner]\nkind = "analytic"\nhidden = [8, 8]\n'
        "learning_rate = 0.1\n"
    )
    options = ["--start", "2021-09-01", "--strategies", "equal-weight,maximum-return", "--cash", "0.02"]
    options += ["--config", str(config), "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(build_app(), ["backtest", *options])
    assert done.exit_code == 0, done.output
    small = {**{field: QUICK[field] for field in ("history", "paths", "learner")}, "first": 3, "further": 1}
    result = backtest(
        load_prices("sample"),
        {"sdpo": SafeAllocator(settings=small), "equal-weight": "equal-weight", "maximum-return": "maximum-return"},
        start="2021-09-01",
        cash=0.02,
    )
    assert json.loads(json.dumps(result.record.metrics)) == json.loads(done.stdout)["records"]
    pd.testing.assert_frame_equal(result.record.equity, read_record(tmp_path / "out").equity)


def test_a_policy_learns_only_from_what_is_known(frame):
    """Fitted to the future or not, its track is the same; and later prices change no earlier decision."""
    fresh, fitted = (backtest(frame, [each], **SHORT).returns for each in (policy(), policy().fit(frame)))
    pd.testing.assert_frame_equal(fresh, fitted)
    cut = frame.iloc[:140]
    earlier = backtest(cut, [policy()], **SHORT)
    days = earlier.weights.index[:-1]  # the last row has drifted and is not traded yet
    pd.testing.assert_frame_equal(earlier.weights.loc[days], backtest(frame, [policy()], **SHORT).weights.loc[days])


def test_a_frozen_policy_does_not_learn(frame):
    first = frame.loc[:"2019-07-01"]
    frozen = policy(retrain=False).fit(first)
    once = policy(retrain=False)
    tracks = {name: backtest(frame, {"p": each}, **SHORT) for name, each in {"frozen": frozen, "once": once}.items()}
    pd.testing.assert_frame_equal(tracks["frozen"].returns, tracks["once"].returns)
    assert tracks["once"].record.trace["iteration"].max() == QUICK["first"]
    learning = backtest(frame, {"p": policy()}, **SHORT)
    assert learning.record.trace["iteration"].max() > QUICK["first"]
    with pytest.raises(SettingsError, match=r"p was fitted to prices up to 2019-07-30 and is frozen.*retrain=True"):
        backtest(frame, {"p": policy(retrain=False).fit(frame)}, **SHORT)


def test_a_cap_of_the_policy_holds_in_its_track_alone(frame):
    result = backtest(frame, {"capped": policy(max_weight=0.1), "1/N": "equal-weight"}, **SHORT)
    traded = result.weights["capped"].iloc[1].drop("CASH")  # the day after the first decision
    assert (traded <= 0.1 + 1e-12).all() and result.weights["1/N"].iloc[1, 1] == 0.25
    all_capped = backtest(frame, {"1/N": "equal-weight"}, max_weight=0.1, **SHORT)
    assert all_capped.weights["1/N"].iloc[1].tolist() == pytest.approx([0.6, 0.1, 0.1, 0.1, 0.1])


@pytest.mark.parametrize(
    ("shield", "shielded"),
    [
        (None, {"p", "1/N", "maximum-return"}),
        (["strongest"], {"1/N"}),
        (True, {"p", "off", "1/N", "maximum-return"}),
        (False, set()),
        (["1/N"], {"1/N"}),
        ("off", {"off"}),
    ],
)
def test_what_is_shown_with_the_shield(frame, shield, shielded):
    pytest.importorskip("skfolio")
    given = {"p": policy(), "off": policy(shield=False), "1/N": "equal-weight", "maximum-return": "maximum-return"}
    result = backtest(frame, given, shield=shield, **SHORT | {"start": "2019-07-22"})
    assert {name.removesuffix(" + shield") for name in result.returns if name.endswith("+ shield")} == shielded


def test_the_limit_is_that_of_the_policy_unless_one_is_given(frame):
    assert backtest(frame, [policy()], **SHORT).metrics["cvar_limit"].unique().tolist() == [-0.02]
    assert backtest(frame, ["cash"], **SHORT).metrics["cvar_limit"].tolist() == [-0.05]
    assert backtest(frame, [policy()], cvar=-0.1, **SHORT).metrics["cvar_limit"].unique().tolist() == [-0.1]
    with pytest.raises(SettingsError, match="the policies have different limits"):
        backtest(frame, {"a": policy(), "b": policy(cvar=-0.1)}, **SHORT)


def test_cash_earns_a_rate_a_series_or_the_bill(frame):
    dates = pd.to_datetime(["2018-12-31", "2019-07-10"])
    rates = pd.Series([0.0, 0.0252], index=dates)
    wealth = backtest(frame, ["cash"], cash=rates, **SHORT).wealth["cash"]
    assert (wealth.loc[:"2019-07-10"] == 1.0).all()
    assert wealth.loc["2019-07-11"] == pytest.approx(1.0001) and wealth.iloc[-1] > wealth.loc["2019-07-11"]
    constant = backtest(frame, ["cash"], cash=0.02, **SHORT).wealth
    same = backtest(frame, ["cash"], cash=pd.Series(0.02, index=dates), **SHORT).wealth
    pd.testing.assert_frame_equal(constant, same)
    assert backtest(frame, ["cash"], cash="tbill", **SHORT).wealth.iloc[-1, 0] > 1.0


def test_the_report_and_the_folder(frame, tmp_path):
    pytest.importorskip("plotly")
    result = backtest(frame, {"<mine>": policy(), "half": Half()}, cash=pd.Series(0.02, index=frame.index), **SHORT)
    page = result.report(tmp_path / "report.html").read_text()
    assert "&lt;mine&gt;" in page and "<mine>" not in page and "annual rates" in page
    written = result.write(tmp_path / "folder")
    record = read_record(tmp_path / "folder")
    pd.testing.assert_frame_equal(BacktestResult(record).returns, result.returns)
    assert written.report_path.is_file() and record.config["settings"]["strategies"] == ["half"]


WRONG = {
    "no strategy": (([],), {}, "strategies: give at least one"),
    "unknown name": (("equal-wieght",), {}, r"there is no 'equal-wieght' \(did you mean 'equal-weight'\?\)"),
    "no strategy at all": (({"x": 3},), {}, r"strategies: x is neither the name of a strategy, nor an object with"),
    "a class": (([Half],), {}, r"strategies: .* is a class; give an object of it, Half\(\)"),
    "two of a name": (([Half(), Half()],), {}, r"two are called Half; give a mapping .* \{'Half 1'"),
    "name taken": (({"p": "cash", "p + shield": "cash"},), {"shield": True}, r"'p \+ shield' is the name of p with"),
    "unknown shield": (("cash",), {"shield": ["chash"]}, r"shield: there is no strategy 'chash' \(did you mean 'cash'"),
    "start": (("cash",), {"start": "soon"}, r"start: must be a day such as 2019-01-02 \(got 'soon'\)"),
    "start after end": (("cash",), {"end": "2019-02-01"}, r"^start: must be before end"),
    "fee": (("cash",), {"fee_bps": -1}, r"^fee_bps: "),
    "cash": (("cash",), {"cash": 5}, r"^cash: must be zero, tbill or a yearly rate .* \(got 5\)"),
    "cash without dates": (("cash",), {"cash": pd.Series([0.02])}, r"^cash: a Series must hold annual rates"),
    "late cash": (("cash",), {"cash": pd.Series([0.02], index=[pd.Timestamp("2019-07-20")])}, r"^cash: its rates are"),
    "cash in percent": (("cash",), {"cash": pd.Series([2.0], index=[pd.Timestamp("2019-01-01")])}, r"^cash"),
    "cvar": (("cash",), {"cvar": 0.05}, r"^cvar: "),
    "alpha": (("cash",), {"alpha": 2}, r"^alpha: "),
    "max_weight": (("cash",), {"max_weight": 3}, r"^max_weight: "),
    "jobs": (("cash",), {"jobs": 0}, r"^jobs: must be at least 1"),
    "intervals": (("cash",), {"intervals": -3}, r"^intervals: "),
}


@pytest.mark.parametrize(("strategies", "options", "told"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_by_its_name(frame, strategies, options, told):
    with pytest.raises(SettingsError, match=told) as caught:
        backtest(frame, *strategies, **SHORT | options)
    assert "\n" not in str(caught.value)


def test_what_the_prices_do_not_allow_is_told(frame):
    with pytest.raises(DataQualityError, match="look like returns"):
        backtest(frame.pct_change(), ["cash"])
    with pytest.raises(HistoryError, match="150 sessions, and a backtest begins after 252"):
        backtest(frame, ["cash"])

    class Broken:
        def decide(self, history, held):
            return [0.5, 0.6, 0, 0, 0]

    with pytest.raises(WeightsError, match=r"Broken on 2019-07-01: weights sum to 1\.1"):
        backtest(frame, [Broken()], **SHORT)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.integers(1, 30), st.floats(0, 100))
def test_fixed_weights_earn_what_they_earn(frame, parts, every, fee_bps):
    """Whatever the weights and the rhythm: what is left and what was paid add up, day by day."""

    class Fixed:
        def __init__(self):
            self.every = every

        def decide(self, history, held):
            return dict(zip(frame.columns, np.array(parts) / max(sum(parts), 1.0), strict=True))

    result = backtest(frame, {"fixed": Fixed()}, fee_bps=fee_bps, **SHORT)
    gross = (frame / frame.shift()).loc[result.returns.index]
    held = result.weights["fixed"].iloc[:-1]
    growth = held["CASH"].to_numpy() + (held[frame.columns].to_numpy() * gross.to_numpy()).sum(axis=1)
    equity = result.record.equity
    kept = 1.0 - equity["cost"].to_numpy()[:-1] / equity["wealth"].to_numpy()[:-1]
    np.testing.assert_allclose(result.returns["fixed"], growth * kept - 1.0, atol=1e-12)
