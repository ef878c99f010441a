"""The report: its numbers are those of the record, its text is escaped, it asks nobody for anything."""

import dataclasses
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest import Bootstrap, make_strategy, simulate
from portfolio_sdpo.backtest.metrics import compare_all, make_metrics
from portfolio_sdpo.backtest.record import (
    StrategyRun,
    group_by_strategy,
    make_record,
    read_record,
    select_main,
    split_by_track,
    write_record,
)
from portfolio_sdpo.backtest.run import BacktestSettings
from portfolio_sdpo.common.numbers import percent
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.return_measures import window_returns
from portfolio_sdpo.report import figures
from portfolio_sdpo.report.result import BacktestResult, render_report
from portfolio_sdpo.report.through_time import render_months

EVIL = "</script><script>alert(1)</script>\"'&%{y}<b>"


class Page(HTMLParser):
    """Tags, `<data>` by row, JSON scripts and visible text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.figures, self.scripts, self.text = [], [], {}, []
        self._row = self._script = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        if tag == "tr":
            self._row = found.get("data-row")
        if tag == "data":
            self.figures.append((self._row, found["data-name"], float(found["value"])))
        if tag == "script":
            self._script = found.get("id", "code")

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, text):
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + text
        else:
            self.text.append(text)


def named(track, name):
    return type(track)(**{**vars(track), "name": name})


def make(prices, sessions=90, name="agent", seeds=(0, 1), bootstrap=20, stocks=4):
    """A record of two benchmarks, an agent with a trace and its shielded self; tracks are those of benchmarks."""
    settings = BacktestSettings(
        strategies=("equal-weight", "cash"),
        agents=[{"label": name}],
        seeds=seeds,
        bootstrap=Bootstrap(draws=bootstrap) if bootstrap else None,
    )
    market = Market.from_prices(prices(sessions, stocks))
    walks = []
    for seed in seeds:
        track = named(simulate(market, make_strategy("equal-weight", every=1 + seed)), name)
        trace = [
            {"date": day, "iteration": turn, "risk": -0.01 * turn, "bound": -0.015, "slack": 0.015 - 0.01 * turn}
            | {"regime": "violated" if turn == 2 else "interior"}
            for day in track.dates[:-1]
            for turn in range(3)
        ]
        walks.append(StrategyRun(track, "agent", seed, trace=trace))
        day = {"date": track.dates[0], "kappa": 0.5, "before": -0.1, "after": -0.05, "meets": True, "removed": "A"}
        day["decided"] = True
        walks.append(StrategyRun(named(track, f"{name} + shield"), "shielded", seed, shield=[day]))
    walks += [StrategyRun(simulate(market, make_strategy(each)), "benchmark") for each in settings.strategies]
    data = {
        "snapshot": None,
        "source": "test",
        "adjustment": "none",
        "notes": [EVIL],
        "sha256": "0" * 64,
        "tickers": list(market.tickers),
        "first": str(market.dates[0]),
        "last": str(market.dates[-1]),
        "sessions": len(market),
        "survivorship": "A & B have left.",
    }
    config = {
        "id": "id",
        "created_at": "now",
        "package_version": "1",
        "settings": settings.model_dump(mode="json"),
        "strategies": {},
        "data": data,
    }
    metrics = make_metrics(walks, settings.limit, settings.bootstrap)
    return make_record(config, metrics, walks, 0.0, compare_all(walks, settings.limit, settings.bootstrap))


@pytest.fixture(scope="module")
def record(prices):
    return make(prices)


@pytest.fixture(scope="module")
def page(record):
    return Page(render_report(record))


def test_every_number_shown_is_in_the_metrics(record, page):
    assert json.loads(page.scripts["data"])["metrics"] == record.metrics
    assert len(page.figures) > 50
    fields = set()
    for row, name, value in page.figures:
        known = [each for each in record.metrics if row is None or each["strategy"] == row]
        known = [each["promise"] if name == "realised" else each for each in known]
        assert value in [each[name] for each in known], (row, name)
        fields.add(name)
    # The track has 90 sessions, so there is no yearly rate.
    assert "cagr" not in fields
    assert fields >= {
        "final_wealth",
        "total_return",
        "volatility",
        "sharpe",
        "max_drawdown",
        "cvar_window",
        "turnover",
        "cost",
    }


def test_curves_are_the_equity_table(record, page):
    specs = json.loads(page.scripts["figures"])["specs"]
    tracks = split_by_track(record.equity)
    shown = {group.name: group.key for group in group_by_strategy(record.metrics)}
    for figure, column in (("equity", "wealth"), ("drawdown", "drawdown")):
        lines = {trace["name"]: trace for trace in specs[figure]["data"] if "name" in trace}
        assert lines.keys() == shown.keys()
        for name, trace in lines.items():
            rows = tracks[shown[name]]
            np.testing.assert_allclose(trace["y"], rows[column], atol=1e-6)
            assert trace["x"] == [str(day.date()) for day in rows["date"]]


def test_weights_fill_the_whole_area_with_cash_first(page):
    for spec in json.loads(page.scripts["figures"])["specs"]["weights"].values():
        assert spec["data"][0]["name"] == "CASH"
        np.testing.assert_allclose(np.sum([trace["y"] for trace in spec["data"]], axis=0), 1.0, atol=1e-4)


def test_a_stock_has_one_colour_in_all_strategies(prices):
    rows = make(prices, bootstrap=0).weights.head(5).assign(S0=0.0)
    spec, areas = figures.draw_weights(rows, ("CASH", "S0", "S1", "S2", "S3"))
    assert dict(areas)["S3"] == 3 and "S0" not in dict(areas)
    assert spec["data"][-1]["fillcolor"] == figures.FILLS[3]


def test_the_caption_of_the_measures_holds_for_every_strategy(prices):
    """The index has no beta, and says so even where it is the main strategy."""
    agents = make(prices, sessions=150, bootstrap=0)
    benchmarks = [each for each in agents.metrics if each["kind"] == "benchmark"]
    assert select_main(group_by_strategy(benchmarks)).name == "equal-weight"
    equity = agents.equity[agents.equity["strategy"].isin(["equal-weight", "cash"])]
    for record in (agents, dataclasses.replace(agents, metrics=benchmarks, equity=equity)):
        page = Page(render_report(record))
        drawn = json.loads(page.scripts["figures"])["specs"]["time-measures"]
        assert {"beta" in {trace["name"] for trace in spec["data"]} for spec in drawn.values()} == {True, False}
        assert "Beta: how strongly a strategy moves with equal-weight, which has none itself." in "".join(page.text)


def test_many_stocks_are_gathered(prices):
    specs = json.loads(Page(render_report(make(prices, stocks=40, bootstrap=0))).scripts["figures"])["specs"]
    spec = specs["weights"]["s0"]
    assert len(spec["data"]) == 16 and spec["data"][-1]["name"] == "26 others"
    np.testing.assert_allclose(np.sum([trace["y"] for trace in spec["data"]], axis=0), 1.0, atol=1e-4)


def test_distribution_holds_every_window(record, page):
    specs = json.loads(page.scripts["figures"])["specs"]["distribution"]
    assert len(specs) == len(group_by_strategy(record.metrics))
    for spec, group in zip(specs.values(), group_by_strategy(record.metrics), strict=True):
        beyond, within = (sum(part["y"]) for part in spec["data"])
        assert beyond + within == pytest.approx(1.0, abs=1e-3)
        rows = split_by_track(record.equity)[group.key]
        promise = group.median["promise"]
        periods = window_returns(rows["return"].to_numpy()[1:], promise["horizon"])
        assert beyond == pytest.approx((periods < promise["bound"]).mean(), abs=1e-3)
    assert any("limit −5.0\u00a0%" in note["text"] for note in specs["s0"]["layout"]["annotations"])


def test_plotly_knows_every_figure(page):
    import plotly.graph_objects as go

    stored = json.loads(page.scripts["figures"])["specs"]
    over_time = ("exposure", "risk", "measures", "contributions", "trading")
    by_strategy = ("weights", "distribution", "trace", *(f"time-{name}" for name in over_time))
    assert set(stored) == {"equity", "drawdown", "cvar", *by_strategy}
    specs = [stored["equity"], stored["drawdown"], stored["cvar"]]
    specs += [spec for part in by_strategy for spec in stored[part].values()]
    assert stored["time-measures"] == {}  # the track is shorter than half a year
    assert len(specs) == 3 + 6 * 4 + 1
    for spec in specs:
        # A colour of the style sheet becomes a colour before plotly sees it.
        go.Figure(json.loads(re.sub(r'"var\(--\w+\)"', '"#123456"', json.dumps(spec))))


def test_seeds_are_one_row_and_a_band(record):
    found = group_by_strategy(record.metrics)
    assert [group.name for group in found] == ["agent", "agent + shield", "equal-weight", "cash"]
    agent = found[0]
    wealth = sorted(each["final_wealth"] for each in agent.records)
    assert agent.median["final_wealth"] == wealth[0]
    assert agent.range("final_wealth") == (wealth[0], wealth[-1])
    assert found[2].range("final_wealth") is None
    assert select_main(found).name == "agent + shield"
    assert select_main(found[2:]).name == "equal-weight"


def test_text_of_others_is_escaped(prices):
    record = make(prices, name=EVIL, bootstrap=0)
    text = render_report(record)
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 4
    assert "alert(1)" not in page.scripts["code"]
    assert EVIL in "".join(page.text)
    assert "A & B have left." in "".join(page.text)
    specs = json.loads(page.scripts["figures"])["specs"]
    names = {trace["name"] for trace in specs["equity"]["data"] if "name" in trace}
    assert all("<" not in name for name in names)
    assert not any("alert" in trace.get("hovertemplate", "") for trace in specs["equity"]["data"])
    # The legend's buttons and the curves go by the same name.
    buttons = {found["data-strategy"] for tag, found in page.tags if "data-strategy" in found}
    assert buttons == {trace["meta"] for trace in specs["equity"]["data"]}


def test_nothing_is_fetched(page):
    assert not [tag for tag, found in page.tags if {"src", "href", "action"} & found.keys()]
    assert not [tag for tag, _ in page.tags if tag in ("link", "iframe", "img", "object", "form")]
    policy = next(found["content"] for tag, found in page.tags if found.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and "http" not in policy
    assert "Plotly" in page.scripts["code"] and len(page.scripts["code"]) > 1_000_000


def test_tables_are_marked_up(page):
    tables = [tag for tag, _ in page.tags].count("table")
    assert tables >= 6 and [tag for tag, _ in page.tags].count("caption") == tables
    assert all(found.get("scope") in ("col", "row") for tag, found in page.tags if tag == "th")
    assert all(found.get("aria-label") for tag, found in page.tags if found.get("role") == "img")


def test_long_tracks_are_thinned(prices, monkeypatch):
    monkeypatch.setattr("portfolio_sdpo.report.figures.POINTS", 30)
    page = Page(render_report(make(prices, bootstrap=0)))
    spec = json.loads(page.scripts["figures"])["specs"]["weights"]["s0"]
    assert len(spec["data"][0]["x"]) == 30
    assert "one day in 3 is drawn" in "".join(page.text)


def test_training_is_shown_only_if_told(record, page):
    assert "The constraint in training" in page.text
    silent = Page(render_report(type(record)(**{**vars(record), "trace": None})))
    assert "The constraint in training" not in silent.text


def test_a_track_shorter_than_the_horizon(prices):
    page = Page(render_report(make(prices, sessions=8, seeds=(0,))))
    specs = json.loads(page.scripts["figures"])["specs"]
    assert "distribution" not in specs
    assert [tag for tag, found in page.tags if found.get("data-figure")] == ["div"] * 6


def test_the_same_page_from_the_folder(record, tmp_path):
    text = render_report(record)
    write_record(record, text, tmp_path / "run")
    assert render_report(read_record(tmp_path / "run")) == text


def test_a_record_of_earlier_days_is_still_shown(record, tmp_path):
    """Rivals, weights for today and the shield's looks came later."""
    old = []
    for each in record.metrics:
        shield = each["shield"] and {
            key: each["shield"][key] for key in each["shield"] if key not in ("looks", "removed")
        }
        old.append({key: each[key] for key in each if key not in ("against", "next")} | {"shield": shield})
    write_record(type(record)(**{**vars(record), "metrics": old}), "", tmp_path / "run")
    text = Page(render_report(read_record(tmp_path / "run"))).text
    assert any("earlier version made this backtest; run it again" in line for line in text)
    assert "1 of 1" in text and "Against rivals" not in text


def test_months_multiply_to_years(record):
    rows = split_by_track(record.equity)["equal-weight", None]
    cells = re.findall(r"<t[dh][^>]*>(?:<strong>)?([^<]*)", render_months(rows, "x").partition("<tbody>")[2])
    wealth = rows.set_index("date")["wealth"]
    first = wealth.loc[:"2019-01-31"].iloc[-1] / wealth.iloc[0] - 1
    second = wealth.loc[:"2019-02-28"].iloc[-1] / wealth.loc[:"2019-01-31"].iloc[-1] - 1
    assert cells[:3] == ["2019", percent(first), percent(second)]
    assert cells[13] == percent(wealth.iloc[-1] / wealth.iloc[0] - 1)
    assert cells[9:13] == [""] * 4


@pytest.mark.parametrize(("value", "text"), [(-0.0123, "−1.2\xa0%"), (-0.0001, "0.0\xa0%"), (12.0, "1,200.0\xa0%")])
def test_percent(value, text):
    assert percent(value) == text


def test_weeks_are_called_weeks_and_few_of_them_are_not_tested():
    from portfolio_sdpo import backtest

    index = pd.date_range("2015-01-02", periods=160, freq="W-FRI")
    moves = np.random.default_rng(3).normal(0.002, 0.02, (160, 2))
    frame = pd.DataFrame(100 * np.cumprod(1 + moves, axis=0), index=index, columns=["A", "B"])
    result = backtest(frame, ["equal-weight", "inverse-volatility"], cvar=-0.5, intervals=20)
    text, html = str(result), render_report(result.record)
    assert "99 weeks" in text and "15-week returns" in text and "?" in text
    assert "CVaR of 15 weeks" in html and "not tested" in html and "15 sessions" not in html
    assert result.record.metrics[0]["sessions_per_year"] == 52
    assert result.record.config["data"]["sessions_per_year"] == 52
    years = result.record.metrics[0]["cvar_by_year"]
    assert set(years) == {"2016", "2017", "2018"} and "Years broken" in html


def test_the_same_risk_is_a_column_and_a_sentence(record, page):
    compared = {each["strategy"]: each["same_risk"] for each in record.metrics}
    assert compared["equal-weight"] is None
    agent = compared["agent"]
    assert agent["reference"] == "equal-weight" and 0 < min(agent["share"], agent["reference_share"]) <= 1
    html = render_report(record)
    assert "At the same risk" in html and "At the same realised CVaR" in html
    assert percent(agent["growth"]) in html


def test_an_older_record_shows_dashes(record):
    metrics = [
        {key: value for key, value in each.items() if key not in ("same_risk", "sessions_per_year", "total_return")}
        for each in record.metrics
    ]
    for each in metrics:
        each["promise"] = {key: value for key, value in each["promise"].items() if key != "tested"}
    older = dataclasses.replace(record, metrics=metrics, superiority=None)
    html = render_report(older)
    assert "At the same risk" in html and "At the same realised CVaR" not in html and "90 sessions" in html
    assert "–" in str(BacktestResult(older))
