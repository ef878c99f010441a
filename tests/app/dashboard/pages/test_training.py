"""*Training* in a browser: the figures are those of the log, and a run that is going is shown as it goes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest.record import list_records
from portfolio_sdpo.backtest.run import BacktestSettings, DeclaredAgent
from portfolio_sdpo.common.numbers import percent
from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.portfolio import resume as walks
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.market import all_cash, load_market
from portfolio_sdpo.portfolio.presets import PRESETS
from portfolio_sdpo.portfolio.shared_policy_agent import build_agent
from portfolio_sdpo.report.result import run_backtest
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import Problem, SdpoSettings
from portfolio_sdpo.rl.trainer import Trainer, TrainSettings
from portfolio_sdpo_app.dashboard.data import training_logs
from portfolio_sdpo_app.dashboard.widgets.training_figures import WINDOW, draw_objective, draw_regimes, format_value

from ..conftest import QUICK, at_home, serving

CMDP = random_cmdp(6, 3, seed=0, noise_scale=1.0, horizon=4, costs=("pain",))
ITERATIONS = 6
SPECS = ("variance of reward <= 9 eta=1:20:10", "expectation of pain <= 3")


def trainer(folder: Path) -> Trainer:
    """A small run under two constraints that writes its log after every iteration."""
    algorithm = SdpoSettings(
        actor={"hidden": (4,)},
        critic={
            "kind": "quantile",
            "hidden": (4,),
            "dimension": 8,
            "atoms": 8,
            "warm_up": 1,
            "epochs": 1,
            "minibatches": 2,
        },
        epochs=1,
    )
    settings = TrainSettings(
        problem=Problem(discount=0.9, constraints=tuple(map(Constraint.from_spec, SPECS))),
        algorithm=algorithm,
        iterations=ITERATIONS,
        steps=12,
        checkpoint_every=1,
        tensorboard=False,
    )
    return Trainer(settings, RandomCmdpVectorEnv(CMDP, 5), folder)


def figure_of(page: Any, name: str) -> str:
    return str(page.locator(f".cards [data-name={name}]").inner_text())


def test_figures_are_those_of_the_log(visit: Callable, filled: str, filled_home: Path):
    run = list_records(filled_home / "backtests")[-1]
    trace = pd.read_parquet(run / "trace.parquet")
    rows = trace[(trace["strategy"] == "sdpo") & (trace["seed"] == 1)]
    visitor = visit()
    page = visitor.open(filled, f"training?log=backtests/{run.name}/sdpo/1")
    page.locator(".st-key-regimes-0 .main-svg").first.wait_for()

    assert figure_of(page, "iterations") == f"{len(rows):,}"
    assert figure_of(page, "return") == format_value(
        float(np.expm1(rows["objective"]).tail(WINDOW).mean()), percent=True
    )
    assert figure_of(page, "risk-0") == format_value(float(np.expm1(rows["risk"]).tail(WINDOW).mean()), percent=True)
    assert figure_of(page, "beyond-0") == percent((rows["regime"] == "violated").mean())
    drawn = page.locator(".st-key-constraint-0 .js-plotly-plot").evaluate(
        "plot => [plot.data[0].y, plot.layout.shapes.find(each => each.type == 'line').y0]"
    )
    assert drawn[0] == pytest.approx(np.expm1(rows["risk"]).tolist(), rel=1e-5, abs=1e-9)
    assert drawn[1] == pytest.approx(np.expm1(rows["bound"].iloc[-1]))
    shares = page.locator(".st-key-regimes-0 .js-plotly-plot").evaluate("plot => plot.data.map(each => each.y)")
    assert np.sum(shares, axis=0) == pytest.approx(1.0, abs=1e-3)
    visitor.keep("training-laptop-light")


def test_a_model_of_the_registry_has_its_log(visit: Callable, filled: str):
    visitor = visit()
    page = visitor.open(filled, "training")
    visitor.choose("Run", re.compile("^model .*small-4, seed 4"))
    page.wait_for_url("**log=models*")
    visitor.wait_for_text(".cards [data-name=iterations]", str(QUICK.first))


def test_a_ready_policy_shows_its_evidence_and_nothing_that_it_did_not_do(visit: Callable, tmp_path: Path):
    """The policy of the preset `default` was trained beforehand."""
    ready = PRESETS["default"].agents["sdpo"]
    settings = BacktestSettings(
        strategies=("equal-weight",),
        agents=(DeclaredAgent(label="sdpo", settings=ready.model_dump(mode="json")),),
        start="2020-01-02",
        end="2020-06-30",
        bootstrap=None,
    )
    with at_home(tmp_path):
        run = run_backtest(settings, agents=[build_agent(ready, 0, "sdpo")])
    trace = pd.read_parquet(run.folder / "trace.parquet")
    visitor = visit()
    with serving(tmp_path) as address:
        page = visitor.open(address, f"training?log=backtests/{run.folder.name}/sdpo/0")
        page.locator(".st-key-evidence .main-svg").first.wait_for()
        assert "was trained beforehand" in visitor.alerts()[0]
        assert figure_of(page, "decisions") == str(len(trace))
        assert figure_of(page, "deviation") == percent(trace["deviation"].iloc[-1], 0)
        assert page.locator(".js-plotly-plot").count() == 1
        assert "nan" not in page.locator("[data-testid=stMain]").inner_text()
        visitor.keep("training-evidence")
        page.goto("about:blank")  # before its server ends, whose absence it would report


def test_a_run_under_way_is_shown_live(visit: Callable, filled: str, filled_home: Path):
    """The page stays open from the second iteration to the end, and follows without being touched."""
    visitor = visit()
    badge = "[data-testid=stMarkdown]:has-text('ago')"

    def watch(row: dict[str, Any]) -> None:
        # What is on disk is what was made before the iteration of this row.
        if row["iteration"] == 2:
            page = visitor.open(filled, "training")  # whatever is running comes first
            page.wait_for_url("**log=experiments*")
            visitor.wait_for_text(badge, "running")
            visitor.wait_for_text(".cards [data-name=iterations]", "2")
            visitor.wait_for_text("[data-testid=stProgress]", f"2 of {ITERATIONS} iterations")
            for index, spec in enumerate(SPECS):
                bound = page.locator(f".st-key-constraint-{index} .js-plotly-plot").evaluate(
                    "plot => plot.layout.shapes.find(each => each.type == 'line').y0"
                )
                assert bound == Constraint.from_spec(spec).bound
                page.locator(f".st-key-regimes-{index} .main-svg").first.wait_for()
            visitor.keep("training-running-laptop-light")
        if row["iteration"] == 4:
            visitor.wait_for_text(".cards [data-name=iterations]", "4")

    trainer(filled_home / "experiments" / "live" / "sdpo").run(watch)
    visitor.wait_for_text(badge, "finished")
    visitor.wait_for_text(".cards [data-name=iterations]", str(ITERATIONS))
    visitor.settle()


def test_a_walk_under_way_is_shown_live(
    visit: Callable, filled: str, filled_home: Path, monkeypatch: pytest.MonkeyPatch
):
    """An agent that is walked forward, from its first decision until its walk becomes a backtest."""
    monkeypatch.setattr(walks, "MAX_SAVING_SHARE", 1e9)  # save after every decision
    visitor = visit()
    with at_home(filled_home):
        market, _, _ = load_market(None, "zero", "2019-01-02", "2019-02-15")
        held = all_cash(len(market.assets))
        walk = walks.ResumableAgent(Agent(QUICK, 7, "walker"), "live")
        try:
            walk.decide(market.until(300), held)
            page = visitor.open(filled, "training?log=walks/live")
            assert "walker, seed 7" in page.get_by_role("combobox", name="Run").input_value()
            visitor.wait_for_text(".cards [data-name=iterations]", str(QUICK.first))
            walk.decide(market.until(301), held)
            visitor.wait_for_text(".cards [data-name=iterations]", str(QUICK.first + QUICK.further))
            walk.release()
            visitor.wait_for_text("[data-testid=stMarkdown]:has-text('ago')", "stopped")
        finally:
            walk.release()
            walks.discard_run("live")
    visitor.open(filled, "training?log=walks/live")
    assert "The training log walks/live no longer exists" in visitor.alerts()[0]


@pytest.mark.parametrize(("width", "scheme"), [("phone", "light"), ("laptop", "dark")])
def test_it_fits(visit: Callable, filled: str, filled_home: Path, width: str, scheme: str):
    run = list_records(filled_home / "backtests")[0]
    visitor = visit(width, scheme)
    page = visitor.open(filled, f"training?log=backtests/{run.name}/sdpo/0")
    page.locator(".st-key-slack-0 .main-svg").first.wait_for()
    visitor.no_sideways()
    visitor.keep(f"training-{width}-{scheme}")


def test_what_stopped_or_failed_is_told(tmp_path: Path):
    with at_home(tmp_path):
        folder = tmp_path / "experiments" / "one" / "sdpo"
        trainer(folder).run(lambda row: row["iteration"] == 1)
        (entry,) = training_logs.list_entries()
        assert (entry.state, entry.title) == ("stopped", "one · sdpo")
        log = training_logs.read_log(entry)
        assert [(each.name, each.bound) for each in log.bounds] == [
            ("variance of reward", 9.0),
            ("expectation of pain", 3.0),
        ]
        assert log.total == ITERATIONS
        assert log.frame["iteration"].tolist() == [1.0, 2.0]
        (folder / "failure.json").write_text('{"message": "it diverged."}')
        (entry,) = training_logs.list_entries()
        assert (entry.state, entry.message) == ("failed", "it diverged.")
        (folder / "metrics.parquet").write_bytes(b"half a fi")
        assert training_logs.read_log(entry) is None


def test_bars_of_regimes_touch_and_small_returns_have_readable_ticks():
    frame = pd.DataFrame({"iteration": np.arange(1.0, 131.0), "return": np.linspace(0, 1e-5, 130)})
    frame["slack_0"] = 1.0
    bar = draw_regimes(frame, 0)["data"][0]
    edges = [(x - width / 2, x + width / 2) for x, width in zip(bar["x"], bar["width"], strict=True)]
    assert all(left[1] == pytest.approx(right[0]) for left, right in zip(edges[:-1], edges[1:], strict=True))
    assert (edges[0][0], edges[-1][1]) == (0.5, 130.5)
    assert draw_objective(frame, percent=True)["layout"]["yaxis"]["tickformat"] == ".4%"
