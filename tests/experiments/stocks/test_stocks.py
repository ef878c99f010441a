"""The stocks experiment: what is declared, what is made and kept, known answers for its summary, its figure."""

import math
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.errors import RunError, SettingsError
from portfolio_sdpo.experiments.paper.claims import QUESTION_D
from portfolio_sdpo.experiments.paper.verdicts import judge
from portfolio_sdpo.experiments.stocks import study as stocks_runs
from portfolio_sdpo.experiments.stocks.attribution import LAGS, Attribution
from portfolio_sdpo.experiments.stocks.declared import BENCHMARKS, STOCKS, StocksExperiment
from portfolio_sdpo.experiments.stocks.figures import draw_stocks, make_stocks_figures
from portfolio_sdpo.experiments.stocks.records import Tables, list_backtests
from portfolio_sdpo.experiments.stocks.report import describe_stocks, render_stocks
from portfolio_sdpo.experiments.stocks.study import count_pending_runs, run_stocks
from portfolio_sdpo.experiments.stocks.summary import (
    MeanInterval,
    StocksSummary,
    build_evidence,
    summarise_stocks,
    summarise_strategies,
    summarise_tracks,
)
from portfolio_sdpo.portfolio.shield import CvarLimit

from .stocks_toys import page, tiny

LIMIT = CvarLimit(bound=0.0, alpha=0.5, horizon=1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    return tmp_path


class TestDeclaration:
    def test_it_is_the_paper_s_protocol(self):
        assert STOCKS.shown == ("ppo", "sdpo-0.01", "sdpo-0.05", "sdpo-0.1") and STOCKS.seeds == tuple(range(10))
        alphas = {label: agent.limit.alpha for label, agent in STOCKS.algorithms.items()}
        assert alphas == {"ppo": 0.1, "sdpo-0.01": 0.01, "sdpo-0.05": 0.05, "sdpo-0.1": 0.1, "counterfactual-0.1": 0.1}
        for label, agent in STOCKS.algorithms.items():
            assert (agent.limit.bound, agent.limit.horizon, agent.scenarios, agent.every) == (0.0, 15, "window", 1)
            settings = STOCKS.backtest(label, (3, 4))
            assert settings.limit == agent.limit and settings.seeds == (3, 4)
            assert (settings.fee_bps, settings.cash, settings.shield, settings.strategies) == (0.0, "zero", False, ())
            assert (settings.start, settings.end) == (date(2019, 1, 2), date(2019, 12, 31))
        assert STOCKS.algorithms["counterfactual-0.1"].learner.estimator == "counterfactual"
        assert len(STOCKS.backtest(BENCHMARKS, ()).strategies) == 11

    def test_changes(self):
        changed = STOCKS.with_changes(iterations=3, seeds=(7,), algorithms=("counterfactual-0.1", "ppo"))
        assert changed.shown == ("ppo", "counterfactual-0.1") and changed.seeds == (7,)
        assert {(agent.first, agent.further) for agent in changed.algorithms.values()} == {(3, 3)}
        assert STOCKS.with_changes() == STOCKS
        assert StocksExperiment.model_validate_json(STOCKS.model_dump_json()) == STOCKS

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"iterations": 0}, "iterations: there must be at least 1 update a day"),
            ({"seeds": (1, 1)}, "seeds: must be at least one number"),
            ({"seeds": (-1,)}, "seeds: must be at least one number"),
            ({"algorithms": ("dqn",)}, "stocks has no 'dqn'; it has ppo, sdpo-0.01, "),
        ],
    )
    def test_wrong_changes(self, changes, message):
        with pytest.raises(SettingsError, match=message):
            STOCKS.with_changes(**changes)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"algorithms": {"benchmarks": STOCKS.algorithms["ppo"]}}, "cannot be a label"),
            ({"algorithms": {"../x": STOCKS.algorithms["ppo"]}}, "cannot be a label"),
            ({"algorithms": {"ppo": {**STOCKS.algorithms["ppo"].model_dump(), "fee": 0.01}}}, "has a fee"),
            ({"shown": ("ppo", "dqn")}, "must be labels of the algorithms"),
        ],
    )
    def test_wrong_declarations(self, changes, message):
        with pytest.raises(SettingsError, match=message):
            StocksExperiment(**{**dict(STOCKS), **changes})

    def test_the_list_has_it(self):
        text = page(describe_stocks(STOCKS))
        assert "stocks" in text and "sdpo-0.05" in text and "10 seeds each" in text


class TestRuns:
    def test_what_is_there_is_not_made_again(self, home: Path, monkeypatch: pytest.MonkeyPatch):
        experiment = tiny(shown=("ppo",), seeds=(0,))
        assert count_pending_runs(experiment) == 3
        assert [outcome.status for outcome in run_stocks(experiment)] == ["finished", "finished"]
        assert [each.folder.name for each in list_backtests(experiment)] == ["benchmarks", "ppo-0"]
        first = summarise_stocks(experiment)

        # More seeds are walked beside the old ones.
        more = experiment.with_changes(seeds=(0, 2))
        assert count_pending_runs(more) == 1
        assert [outcome.status for outcome in run_stocks(more)] == ["skipped", "finished"]
        assert [each.seeds for each in list_backtests(more)] == [(), (0,), (2,)]
        both = summarise_stocks(more)
        assert both.labels["ppo"].seeds == (0, 2)
        assert both.walks[: len(first.walks)] == first.walks  # benchmarks, then the seeds in order

        # Nothing is missing: nothing is made.
        monkeypatch.setattr(stocks_runs, "run_backtest", lambda *_, **__: pytest.fail("made again"))
        assert count_pending_runs(more) == 0
        assert {outcome.status for outcome in run_stocks(more)} == {"skipped"}
        assert summarise_stocks(more, seeds=(2,)).labels["ppo"].seeds == (2,)

    def test_other_settings_are_replaced_only_when_asked_to_and_only_by_something(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ):
        experiment = tiny(shown=("ppo",), seeds=(0,), strategies=("cash",))
        run_stocks(experiment)
        other = experiment.with_changes(iterations=2)
        outcomes = run_stocks(other)
        assert [outcome.status for outcome in outcomes] == ["skipped", "failed"]
        assert "ppo-0 holds a run with other settings: add --restart" in outcomes[1].message

        real = stocks_runs.run_backtest

        def fail(*_, **__):
            raise RunError("no room")

        monkeypatch.setattr(stocks_runs, "run_backtest", fail)
        assert [outcome.status for outcome in run_stocks(other, restart=True)] == ["skipped", "failed"]
        assert summarise_stocks(experiment).labels["ppo"].updates == 1
        monkeypatch.setattr(stocks_runs, "run_backtest", real)

        assert [outcome.status for outcome in run_stocks(other, restart=True)] == ["skipped", "finished"]
        summary = summarise_stocks(experiment)
        assert summary.labels["ppo"].updates == 2 and summary.outdated == ("ppo",)
        assert "made with settings other than those declared now: ppo" in page(render_stocks(summary))
        folder = home / "experiments" / "stocks"
        assert {path.name for path in folder.iterdir()} == {"benchmarks", "ppo-0", "summary.json"}

    def test_nothing_there(self, home: Path):
        for make in (summarise_stocks, make_stocks_figures):
            with pytest.raises(RunError, match="holds no such runs yet: start them with"):
                make(tiny())
        assert not (home / "experiments").exists()


def tables(returns: dict[tuple[str, int | None], list[float]], traces: dict[tuple[str, int], list[float]]) -> Tables:
    """Daily returns by strategy and seed, with a cash weight of 0.25 and a turnover of 0.5 but on the last date."""
    equity, weights, trace = [], [], []
    for (name, seed), values in returns.items():
        days = pd.bdate_range("2019-01-02", periods=len(values) + 1)
        keys = {"strategy": name, "seed": pd.array([seed] * len(days), dtype="Int64"), "date": days}
        wealth = np.cumprod([1.0, *(1 + np.array(values))])
        trades = [0.5] * len(values) + [0.0]
        equity.append(pd.DataFrame({**keys, "wealth": wealth, "return": [np.nan, *values], "turnover": trades}))
        weights.append(pd.DataFrame({**keys, "CASH": [0.25] * len(values) + [1.0]}))
    for (name, seed), risks in traces.items():
        rows = {"strategy": name, "seed": pd.array([seed] * len(risks), dtype="Int64"), "risk": risks, "bound": 0.0}
        trace.append(pd.DataFrame({**rows, "date": pd.bdate_range("2019-01-02", periods=len(risks))}))
    return Tables(*(pd.concat(parts, ignore_index=True) for parts in (equity, weights, trace)))


KNOWN = tables(
    {
        ("ppo", 0): [0.1, -0.5, 0.0, 0.2],
        ("ppo", 1): [0.0, 0.0, 0.0, 0.0],
        ("sdpo-0.1", 0): [0.1, 0.0, 0.1, 0.0],
        ("sdpo-0.1", 1): [0.2, -0.1, 0.0, 0.0],
        ("equal-weight", None): [0.1, 0.0, 0.0, 0.0],
    },
    {
        ("ppo", 0): [-0.03, -0.01, 0.0, 0.02],
        ("ppo", 1): [0.01, 0.01, 0.01, -0.01],
        ("sdpo-0.1", 0): [0.01, 0.02, 0.03, 0.04],
        ("sdpo-0.1", 1): [0.0, 0.0, 0.0, -0.04],
    },
)
LIMITS = {"ppo": LIMIT, "sdpo-0.1": CvarLimit(bound=0.0, alpha=0.25, horizon=2), "equal-weight": LIMIT}


class TestSummary:
    def test_a_walk_by_hand(self):
        ppo, _, sdpo, falls, one_n = summarise_tracks(KNOWN, LIMITS)
        assert ppo.final_wealth == pytest.approx(1.1 * 0.5 * 1.2)
        assert ppo.max_drawdown == pytest.approx(-0.5)
        assert ppo.realised_cvar == pytest.approx((-0.5 + 0.0) / 2) and ppo.broken
        assert (ppo.cash, ppo.turnover) == (0.25, 126.0)
        assert ppo.training_cvar == pytest.approx(-0.005)
        assert (ppo.training_breaks, ppo.training_worst) == (0.5, -0.03)
        # Windows of two sessions: 0.1, 0.1, 0.1; and 0.08, -0.1, 0.0, of which a quarter is three quarters of one.
        assert sdpo.realised_cvar == pytest.approx(0.1) and not sdpo.broken
        assert falls.realised_cvar == pytest.approx(-0.1) and falls.broken
        assert one_n.seed is None and one_n.training_cvar is None and not one_n.broken

    def test_growth_is_exposure_timing_and_choice(self):
        """By hand: with 1/N at 10 % on the first day and a share of ¾ all the time there is nothing to time."""
        ppo, _, sdpo, *_, one_n = summarise_tracks(KNOWN, LIMITS)
        for track, wealth in ((ppo, 0.66), (sdpo, 1.21)):
            parts = track.attribution
            assert (parts.exposure, parts.timing) == (pytest.approx(0.75 * math.log(1.1)), pytest.approx(0.0))
            assert parts.exposure + parts.choice == pytest.approx(math.log(wealth))
            assert parts.follows == (None, None, None)  # the share never changes
        assert one_n.attribution is None
        changing = Attribution.of(np.array([0.0, 1.0, 1.0]), np.array([0.0, -0.1, 0.4]), np.array([0.3, -0.1, 0.4]), 1)
        assert changing.exposure == pytest.approx(2 / 3 * 0.6) and changing.choice == pytest.approx(0.0)
        assert changing.timing == pytest.approx(-2 / 3 * 0.3 + 1 / 3 * 0.3)

    def test_what_a_share_follows(self):
        market = np.random.default_rng(0).standard_normal(400) * 0.01
        grown = np.concatenate([[0.0], market.cumsum()])
        days = np.arange(400)
        for place, lag in enumerate(LAGS):
            share = grown[np.maximum(days - lag, 0)] - grown[np.maximum(days - lag - 5, 0)]
            follows = Attribution.of(share, market, market, 5).follows
            assert follows[place] == pytest.approx(1.0)
            assert all(abs(other) < 0.5 for other in follows[:place] + follows[place + 1 :])

    def test_a_label_by_hand(self):
        labels = summarise_strategies(summarise_tracks(KNOWN, LIMITS), LIMITS, {"ppo": 10, "sdpo-0.1": 10})
        assert list(labels) == ["ppo", "sdpo-0.1", "equal-weight"]
        ppo, sdpo, one_n = labels.values()
        assert (ppo.seeds, ppo.broken, ppo.updates) == ((0, 1), 0.5, 10)
        assert ppo.final_wealth.mean == pytest.approx((0.66 + 1.0) / 2)
        # Student's quantile with one degree of freedom is 12.706; the mean of two is half their distance from either.
        assert ppo.final_wealth.high - ppo.final_wealth.mean == pytest.approx(12.7062 * 0.17, rel=1e-5)
        assert (ppo.final_wealth.least, ppo.final_wealth.most) == pytest.approx((0.66, 1.0))
        assert ppo.training_breaks.mean == pytest.approx((0.5 + 0.25) / 2) and ppo.training_worst == -0.03
        assert ppo.to_ppo is None
        differences = (1.21 - 0.66, 1.08 - 1.0)
        assert sdpo.to_ppo.mean == pytest.approx(np.mean(differences))
        assert (sdpo.to_ppo.least, sdpo.to_ppo.most) == pytest.approx((0.08, 0.55))
        assert sdpo.to_equal_weight.mean == pytest.approx((1.21 + 1.08) / 2 - 1.1)
        assert one_n.kind == "benchmark" and one_n.to_ppo is None and one_n.final_wealth.low is None

    def test_a_track_shorter_than_a_window_has_no_cvar(self):
        limits = {name: CvarLimit(horizon=9) for name in LIMITS}
        walks = summarise_tracks(KNOWN, limits)
        assert walks[0].realised_cvar is None and walks[0].broken is None
        labels = summarise_strategies(walks, limits, {})
        assert labels["ppo"].realised_cvar is None and labels["ppo"].broken is None

    def test_of_one_seed_there_is_no_interval_and_of_what_is_not_defined_no_figure(self):
        assert MeanInterval.of([2.0]) == MeanInterval(2.0, None, None, 2.0, 2.0)
        assert (
            MeanInterval.of([]) is None and MeanInterval.of([1.0, None]) is None and MeanInterval.of([math.nan]) is None
        )


def made_up(wealth: dict[str, tuple[float, ...]], risks: dict[str, float]) -> dict[str, str]:
    """Verdicts on the paper's claims, by key: agents of these final wealths, with one estimate of risk all the time."""
    returns = {(name, seed): [each - 1, 0.0] for name, found in wealth.items() for seed, each in enumerate(found)}
    traces = {key: [risks.get(key[0], 0.0)] * 20 for key in returns}
    found, limits = tables(returns, traces), dict.fromkeys(wealth, LIMIT)
    evidence = build_evidence(summarise_tracks(found, limits), found, limits)
    return {claim.key: judge(claim, evidence).verdict for claim in QUESTION_D.claims}


class TestClaims:
    """The rules have tests of their own; here, that walks become the evidence which the paper's claims ask for."""

    PPO = (1.10, 1.11, 1.12)
    BEST = (1.30, 1.31, 1.33)

    def test_borne_out(self):
        ordered = {"ppo": self.PPO, "sdpo-0.01": (1.15, 1.16, 1.17), "sdpo-0.05": (1.2, 1.21, 1.22)}
        found = made_up({**ordered, "sdpo-0.1": self.BEST}, {"ppo": -0.2})
        assert {found[key] for key in ("D1", "D2", "D3", "D4", "D5", "D6")} == {"borne out"}

    def test_not_borne_out_as_soon_as_one_is_not(self):
        found = made_up({"ppo": self.PPO, "sdpo-0.05": self.BEST, "sdpo-0.1": (0.9, 0.91, 0.92)}, {"sdpo-0.1": -0.1})
        assert {found[key] for key in ("D1", "D2", "D3", "D4", "D5", "D6")} == {"not borne out"}

    def test_a_baseline_that_keeps_the_bound_is_no_foil(self):
        found = made_up({"ppo": self.PPO, "sdpo-0.1": self.BEST}, {})
        assert (found["D3"], found["D5"]) == ("borne out", "not borne out")

    @pytest.mark.parametrize("wealth", [(1.0, 1.3, 1.1), (1.2,)])
    def test_what_no_interval_decides_cannot_be_told(self, wealth):
        found = made_up({"ppo": self.PPO[: len(wealth)], "sdpo-0.1": wealth}, {})
        assert found["D3"] == found["D4"] == "cannot tell from these runs"


def summary_of(tables: Tables) -> StocksSummary:
    walks = summarise_tracks(tables, LIMITS)
    labels = summarise_strategies(walks, LIMITS, {"ppo": 1, "sdpo-0.1": 2})
    evidence = build_evidence(walks, tables, LIMITS)
    claims = tuple(judge(claim, evidence) for claim in QUESTION_D.claims)
    return StocksSummary("stocks", "Title", "2019-01-02", "2019-01-08", labels, claims, tuple(walks))


class TestPage:
    def test_it_says_everything_in_80_columns(self):
        text = page(render_stocks(summary_of(KNOWN)))
        words = (
            "ppo",
            "2 seeds",
            "equal-weight",
            "0.830",
            "0.660 to 1.000",
            "−10.00 to 10.00 %",
            "wealth − 1/N",
            "cannot tell",
        )
        for word in (*words, "own α (ppo 0.5, sdpo-0.1 0.25; benchmarks 0.5)", "updates a day: ppo 1, sdpo-0.1 2"):
            assert word in " ".join(text.split()), word
        assert "…" not in text

    def test_the_longest_names_and_numbers_fit_too(self):
        name, limit = "counterfactual-0.1", CvarLimit(bound=0.0, alpha=0.1, horizon=1)
        wide = tables(
            {(name, 0): [-0.3, 0.9, 0.4], (name, 1): [-0.23456, 0.0, 0.0]}, {(name, 0): [-0.1], (name, 1): [0.1]}
        )
        walks = summarise_tracks(wide, {name: limit})
        labels = summarise_strategies(walks, {name: limit}, {name: 10})
        text = page(render_stocks(StocksSummary("stocks", "Title", "2019", "2020", labels, (), tuple(walks))))
        assert "−30.00 to −23.46\u00a0%" in text and "…" not in text

    def test_json_has_no_nan(self):
        record = summary_of(KNOWN).to_json()
        assert record["labels"]["ppo"]["limit"] == {"alpha": 0.5, "bound": 0.0, "horizon": 1}
        assert record["walks"][0]["final_wealth"] == pytest.approx(0.66)


class TestFigure:
    def test_panels(self):
        figure = draw_stocks(KNOWN, ["ppo", "sdpo-0.1"])
        wealth, ends, constraint = figure.axes
        drawn = wealth.lines[1].get_ydata()  # the first is 1/N
        assert drawn[-1] == pytest.approx(0.83)
        dots = [line for line in ends.lines if line.get_marker() == "."]
        assert sorted(dots[1].get_ydata()) == pytest.approx([1.08, 1.21])
        running = constraint.lines[0].get_ydata()
        assert running == pytest.approx([-0.01, -0.005, -0.005 / 3, 0.0], abs=1e-12)
        assert [text.get_text() for text in figure.legends[0].get_texts()] == [
            "PPO",
            "SDPO, α = 0.1",
            "10–90 % of 2 seeds",
        ]
