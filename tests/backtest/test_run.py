"""A whole backtest: what it writes, what it refuses, and that it never sees ahead."""

import json
from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest import CvarLimit, make_strategy, simulate
from portfolio_sdpo.backtest.record import home, list_records, read_record
from portfolio_sdpo.backtest.run import BacktestSettings
from portfolio_sdpo.errors import HistoryError, RunError, SettingsError, SnapshotError
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import Store, content_hash
from portfolio_sdpo.report.result import render_report, run_backtest

SESSIONS = 340
DAYS = pd.bdate_range("2019-01-02", periods=SESSIONS)
QUICK = AgentSettings(
    limit=CvarLimit(alpha=0.1, horizon=5),
    history=100,
    paths=32,
    first=8,
    further=2,
    learner={"kind": "analytic", "hidden": (8, 8), "learning_rate": 3e-2},
)
START, END = DAYS[260].date(), DAYS[320].date()
MANY = ("equal-weight", "inverse-volatility", "minimum-variance", "maximum-return", "risk-parity")
PLAIN = ("cash", "equal-weight", "buy-and-hold", "inverse-volatility")


class Noisy:
    """Random weights that lean on yesterday's prices and on what is held; fails on demand."""

    every = 1

    def __init__(self, name="noisy", seed=0, fail_after=None):
        self.name, self.seed, self.fail_after = name, seed, fail_after
        self.trace = []
        self._rng = np.random.default_rng(seed)

    def decide(self, history, held):
        if len(self.trace) == self.fail_after:
            raise ArithmeticError("the agent broke")
        self.trace.append(
            {
                "date": history.dates[-1],
                "iteration": 0,
                "risk": -0.04,
                "bound": -0.05,
                "slack": 0.01,
                "regime": "interior",
            }
        )
        parts = self._rng.dirichlet(np.ones(len(held))) * history.gross_returns[-1] * history.listed[-1] + 0.1 * held
        return parts / parts.sum()


def save(name, frame):
    prices = Prices(to_wide(frame), "close", "total-return")
    return Store().save(name, clean(prices, calendar=None, carry=0), prices, Request(source="file", calendar=None))


@pytest.fixture(autouse=True)
def frame(tmp_path, monkeypatch, prices):
    """Prices of a snapshot called `walk`."""
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    frame = prices(SESSIONS).set_axis(DAYS)
    save("walk", frame)
    return frame


def settings(**changes):
    chosen = {"snapshot": "walk", "strategies": PLAIN, "start": START, "end": END, "fee_bps": 10, "bootstrap": None}
    chosen |= {"shielded": ()}
    return BacktestSettings(**(chosen | changes))


def with_agents(seeds=(0,), **changes):
    return settings(agents=[{"label": "noisy", "settings": {"noise": 1}}], seeds=seeds, **changes)


def with_learners(seeds=(0,), **changes):
    return settings(agents=[{"label": "sdpo", "settings": QUICK.model_dump(mode="json")}], seeds=seeds, **changes)


def test_settings_survive_json():
    given = with_agents(seeds=(3, 4), cash="tbill", limits={"max_weight": 0.3}, shield=True, bootstrap={"draws": 7})
    assert BacktestSettings.model_validate_json(given.model_dump_json()) == given


def test_folder_holds_everything_and_is_found_again(frame):
    result = run_backtest(settings())
    assert result.folder.parent == home()
    assert sorted(path.name for path in result.folder.iterdir()) == [
        "SHA256SUMS",
        "config.json",
        "equity.parquet",
        "metrics.json",
        "report.html",
        "trades.parquet",
        "weights.parquet",
    ]
    assert list_records() == (result.folder,)
    config = json.loads((result.folder / "config.json").read_text())
    assert BacktestSettings.model_validate(config["settings"]) == settings()
    assert config["data"]["sha256"] == content_hash(to_wide(frame)) == Store().open("walk").manifest.sha256
    assert config["strategies"]["inverse-volatility"] == {"lookback": None, "every": 5, "name": "inverse-volatility"}


def test_wealth_is_that_of_the_simulation(frame):
    market = Market.from_prices(frame, 0.02)
    limits = settings(limits={"max_weight": 0.2}).limits
    record = run_backtest(settings(cash=0.02, limits=limits)).record
    for name in PLAIN:
        track = simulate(market, make_strategy(name), start=START, end=END, fee=0.001, limits=limits)
        rows = record.equity[record.equity.strategy == name]
        np.testing.assert_array_equal(rows["wealth"], track.wealth)
        assert list(rows["date"].dt.date) == list(track.dates.astype(date))


def test_the_limit_reaches_the_strategies_that_have_one():
    chosen = settings(strategies=("minimum-cvar", "maximum-return"), limit=CvarLimit(alpha=0.1, bound=-0.02, horizon=5))
    # Too early for either to have a stock to look at: nothing is optimised.
    early = BacktestSettings(**(dict(chosen) | {"start": DAYS[1].date(), "end": DAYS[8].date()}))
    resolved = run_backtest(early).record.config["strategies"]
    assert resolved["minimum-cvar"]["alpha"] == 0.1
    assert resolved["maximum-return"]["limit"] == {"alpha": 0.1, "bound": -0.02, "horizon": 5}


def test_without_a_start_it_begins_after_a_year():
    record = run_backtest(settings(start=None, strategies=("equal-weight",))).record
    assert record.metrics[0]["start"] == str(DAYS[252].date())


def test_same_settings_give_the_same_figures():
    chosen = with_agents(bootstrap={"draws": 20})
    one, two = (run_backtest(chosen, agents=[Noisy()]) for _ in range(2))
    assert one.record.metrics == two.record.metrics
    assert one.folder != two.folder
    assert one.record.config["id"][-8:] == two.record.config["id"][-8:]


def test_agents_stand_beside_benchmarks_with_seed_and_trace():
    result = run_backtest(with_agents(seeds=(1, 2)), agents=[Noisy(seed=2), Noisy(seed=1)])
    keys = [(record["strategy"], record["seed"], record["kind"]) for record in result.record.metrics]
    assert keys == [("noisy", 1, "agent"), ("noisy", 2, "agent"), *((name, None, "benchmark") for name in PLAIN)]
    trace = read_record(result.folder).trace
    assert trace is not None and len(trace) == 2 * 60 and set(trace.seed) == {1, 2}
    assert trace["objective"].isna().all()


@pytest.mark.parametrize(
    "agents", [[], [Noisy(), Noisy()], [Noisy("other")], [Noisy(seed=5)], [Noisy(), Noisy("other")]]
)
def test_agents_must_be_those_declared(agents):
    with pytest.raises(SettingsError, match="agents: the settings declare noisy with seed 0; give exactly these"):
        run_backtest(with_agents(), agents=agents)


def test_shield_shows_each_agent_twice_and_trains_it_once():
    agent = Noisy()
    limit = CvarLimit(bound=-0.01)
    result = run_backtest(with_agents(shield=True, limit=limit, fee_bps=0), agents=[agent])
    assert len(agent.trace) == 61  # the last is about what comes after the track
    assert [record["strategy"] for record in result.record.metrics][:2] == ["noisy", "noisy + shield"]
    weights, table = result.record.weights, result.record.shield
    assert table is not None and len(table) == 60 and table["kappa"].between(0, 1).all()
    raw, shielded = (weights[weights.strategy == name].iloc[:-1, 4:].to_numpy() for name in ("noisy", "noisy + shield"))
    assert not shielded[0].any()
    raw, shielded = raw[1:], shielded[1:]  # traded one close after the decision
    known = table["removed"].to_numpy()[:-1] == ""
    np.testing.assert_allclose(shielded[known], table["kappa"].to_numpy()[:-1][known, None] * raw[known], atol=1e-12)
    assert (shielded <= raw + 1e-12).all()
    summary = result.record.metrics[1]["shield"]
    assert summary["decisions"] == 60 and summary["scaled"] == (table["kappa"] < 1).sum() > 0
    assert summary["lowest_kappa"] == table["kappa"].min()
    assert result.record.metrics[0]["shield"] is None


def test_between_decisions_the_shield_looks_at_what_it_has_left():
    """Of a decision it keeps half; that it then keeps all of that half is no news."""
    chosen = with_agents(shield=True, limit=CvarLimit(bound=-0.01), fee_bps=0)
    agent = Noisy()
    agent.every = 5
    record = run_backtest(chosen, agents=[agent]).record
    table, summary = record.shield, record.metrics[1]["shield"]
    assert table is not None and (summary["looks"], summary["decisions"]) == (60, 12)
    assert summary["mean_kappa"] == pytest.approx(table[table["decided"]]["kappa"].mean())
    assert summary["mean_kappa"] < table["kappa"].mean()
    assert summary["removed"] == (table["removed"] != "").sum()


def test_progress_counts_decisions():
    told = []
    run_backtest(settings(strategies=("equal-weight",)), progress=lambda *news: told.append(news))
    assert told == [("equal-weight", number, 13) for number in range(14)]


def test_progress_of_an_agent_counts_updates_and_names_its_seed():
    told = []
    chosen = with_learners((3, 4), strategies=("cash",))
    agents = [Agent(QUICK, seed) for seed in (3, 4)]
    run_backtest(chosen, agents=agents, progress=lambda *news: told.append(news))
    total = QUICK.first + 12 * QUICK.further
    assert [news for news in told if news[0] == "sdpo, seed 4"] == [
        ("sdpo, seed 4", number, total) for number in range(total + 1)
    ]


def test_a_walk_past_the_last_stock_comes_to_its_end(frame):
    """All that is left is too young to learn from: the agent waits in cash, and its progress is complete."""
    gone = frame.copy()
    gone.iloc[300:, :3] = np.nan
    gone.iloc[:299, 3] = np.nan
    save("gone", gone)
    told = []
    chosen = with_learners(snapshot="gone", strategies=("cash",), shield=True)
    record = run_backtest(chosen, agents=[Agent(QUICK)], progress=lambda *news: told.append(news)).record
    assert any("waits in cash" in note for note in record.metrics[0]["notes"])
    last = [news for news in told if news[0] == "sdpo"][-1]
    assert last[1] == last[2] == QUICK.first + 12 * QUICK.further


def test_a_folder_called_new_is_in_nobodys_way():
    run_backtest(settings(strategies=("cash",)), home() / "new")
    assert run_backtest(settings(strategies=("cash",))).folder.exists()


TABLES = ("equity", "weights", "trades", "trace", "shield")


def with_both(**changes):
    """A random agent, a learning one, and benchmarks."""
    declared = [{"label": "noisy"}, {"label": "sdpo", "settings": QUICK.model_dump(mode="json")}]
    return settings(agents=declared, limit=QUICK.limit, **changes)


def test_a_backtest_that_ends_today_needs_no_tomorrow(frame):
    """Whether there are prices after its end or not: the same tables, figures, weights for today, and report."""
    last = 290
    save("cut", frame.iloc[: last + 1])
    chosen = {"end": DAYS[last].date(), "shield": True, "bootstrap": {"draws": 20}, "strategies": MANY}
    one, two = (
        run_backtest(with_both(snapshot=name, **chosen), agents=[Noisy(), Agent(QUICK)]).record
        for name in ("walk", "cut")
    )
    assert one.metrics == two.metrics
    assert all(record["next"]["as_of"] == str(DAYS[last].date()) for record in one.metrics)
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(one, name), getattr(two, name))
    assert render_report(one) == render_report(replace(two, config=one.config))


@pytest.mark.parametrize("future", ["altered", "gone"])
def test_no_row_knows_the_future(frame, future):
    """Every row of every table up to day t is the same whatever happens afterwards."""
    known = 300
    other = frame.copy()
    if future == "altered":
        rng = np.random.default_rng(1)
        other.iloc[known + 1 :] *= np.exp(rng.normal(0, 0.2, other.iloc[known + 1 :].shape))
    else:
        other.iloc[known + 1 :, :2] = np.nan
    save("other", other)
    one, two = (
        run_backtest(with_both(shield=True, snapshot=name), agents=[Noisy(), Agent(QUICK)]).record
        for name in ("walk", "other")
    )
    day = DAYS[known]
    for name in TABLES:
        before = [getattr(record, name)[lambda table: table["date"] <= day] for record in (one, two)]
        assert len(before[0]) > 0
        pd.testing.assert_frame_equal(*(table.reset_index(drop=True) for table in before))
    later = [record.equity[lambda table: table["date"] > day]["wealth"].to_numpy() for record in (one, two)]
    assert not np.array_equal(*later)


@pytest.mark.parametrize("chosen", [None, "mine"])
def test_a_strategy_that_breaks_leaves_nothing(tmp_path, chosen):
    folder = None if chosen is None else tmp_path / "new" / chosen
    with pytest.raises(ArithmeticError, match="the agent broke"):
        run_backtest(with_agents(), folder, agents=[Noisy(fail_after=10)])
    assert not home().exists()
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_taken_is_refused_before_the_work(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "precious").touch()
    agent = Noisy()
    with pytest.raises(RunError, match="never overwritten"):
        run_backtest(with_agents(), tmp_path / "taken", agents=[agent])
    assert agent.trace == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategies": ("equal",)}, "there is no 'equal'; there are cash, equal-weight"),
        ({"strategies": ()}, "name at least one strategy"),
        ({"strategies": ("cash", "cash")}, "needs its own name"),
        ({"agents": [{"label": "cash"}]}, "needs its own name"),
        ({"cash": "gold"}, "BacktestSettings.cash: must be zero, tbill or a yearly rate"),
        ({"cash": 2}, "BacktestSettings.cash"),
        ({"fee_bps": -1}, "BacktestSettings.fee_bps"),
        ({"seeds": (1, 1)}, "seeds: must be at least one number, all different"),
        ({"start": "soon"}, "BacktestSettings.start"),
        ({"start": END, "end": START}, "start: must be before end"),
        ({"limit": {"alpha": 1.5}}, "BacktestSettings.limit.alpha"),
        ({"shield": True, "shield_form": "filtered", "shield_lookback": 3}, "shield_lookback"),
        # Of 490 windows none is a tail of 0.001: everything would be moved to cash, every day.
        (
            {"shield": True, "shield_form": "filtered", "limit": {"alpha": 0.001}},
            "shield_lookback: 15-session windows .* need at least 1014",
        ),
        ({"colour": "red"}, "BacktestSettings.colour"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    with pytest.raises(SettingsError, match=message):
        settings(**changes)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"snapshot": "nobody"}, SnapshotError, "There is no snapshot nobody"),
        ({"start": "2030-01-02", "end": None}, HistoryError, "start: 2030-01-02 is outside the prices"),
        ({"end": "2030-01-02"}, HistoryError, "end: 2030-01-02 is outside the prices"),
        (
            {"snapshot": "short", "start": None, "end": None},
            HistoryError,
            "50 sessions, and a backtest begins after 252",
        ),
        (
            {"snapshot": "late", "cash": "tbill"},
            SettingsError,
            "cash: the Treasury bill's rate is known from 2016-01-04",
        ),
        (
            {"limit": {"alpha": 0.001}, "strategies": ("maximum-return",)},
            SettingsError,
            "maximum-return: 15-session windows",
        ),
    ],
)
def test_what_cannot_be_run_is_one_sentence(frame, changes, error, message):
    save("short", frame.iloc[:50])
    save("late", frame.set_axis(DAYS + pd.Timedelta(days=7 * 52 * 4)))
    if changes.get("snapshot") == "late":
        changes = changes | {"start": None, "end": None}
    with pytest.raises(error, match=message):
        run_backtest(settings(**changes))
    assert not home().exists()


def test_the_bundled_sample_and_the_treasury_bill():
    chosen = BacktestSettings(strategies=("cash",), start="2019-01-02", end="2019-02-01", cash="tbill", bootstrap=None)
    record = run_backtest(chosen).record
    assert record.config["data"]["source"] == "bundled sample" and len(record.config["data"]["cash_sha256"]) == 64
    assert record.metrics[0]["total_return"] == pytest.approx(0.0245 * 22 / 252, abs=0.0015 * 22 / 252)
    assert any("JPM's dividend" in note for note in record.config["data"]["notes"])


def test_today_is_decided_by_everyone_and_shielded_where_the_shield_is_on():
    limit = CvarLimit(bound=-0.01)
    result = run_backtest(with_agents(shield=True, limit=limit, fee_bps=0), agents=[Noisy()])
    raw, shielded, *_ = (record["next"]["weights"] for record in result.record.metrics)
    assert {record["next"]["as_of"] for record in result.record.metrics} == {str(END)}
    assert sum(raw.values()) == pytest.approx(1) and sum(shielded.values()) == pytest.approx(1)
    assert shielded["CASH"] > raw["CASH"]
    assert all(shielded.get(asset, 0) <= weight + 1e-12 for asset, weight in raw.items() if asset != "CASH")
    assert "To be held from then on" in result.report_path.read_text()


def test_rivals_stand_behind_the_same_shield(frame):
    """Those that are named, and the one of highest final wealth, which nobody knows before."""
    from portfolio_sdpo.backtest.run import SHIELDED_BENCHMARKS

    chosen = settings(strategies=("cash", "equal-weight", "buy-and-hold"), shield=True, shielded=SHIELDED_BENCHMARKS)
    metrics = {record["strategy"]: record for record in run_backtest(chosen).record.metrics}
    strongest = max(("equal-weight", "buy-and-hold"), key=lambda name: metrics[name]["final_wealth"])
    assert set(metrics) == {"cash", "equal-weight", "buy-and-hold", "equal-weight + shield", f"{strongest} + shield"}
    every = settings(strategies=("cash", "equal-weight", "buy-and-hold"), shield=True, shielded=("all",))
    assert len(run_backtest(every).record.metrics) == 6
    none = settings(strategies=("cash", "equal-weight"), shield=False, shielded=("all",))
    assert len(run_backtest(none).record.metrics) == 2
