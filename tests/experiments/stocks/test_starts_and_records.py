"""What start dates tell together, and records that stand for backtests."""

import json
import shutil
from datetime import date
from pathlib import Path

import pandas as pd
import pytest

from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.catalogue import NAMES, find_study
from portfolio_sdpo.experiments.stocks.declared import (
    LOGIT_BOUND,
    SENSITIVITIES,
    START_DATES,
    STOCKS,
    StocksExperiment,
    other_starts,
)
from portfolio_sdpo.experiments.stocks.figures import make_stocks_figures
from portfolio_sdpo.experiments.stocks.records import list_backtests, write_records
from portfolio_sdpo.experiments.stocks.report import render_stocks
from portfolio_sdpo.experiments.stocks.study import run_stocks
from portfolio_sdpo.experiments.stocks.summary import summarise_stocks
from portfolio_sdpo.portfolio.presets import preset

from .stocks_toys import page, tiny


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    return tmp_path


class TestDeclaration:
    def test_three_start_dates_and_one_thing_changed_each(self):
        assert [each.start for each in START_DATES] == [date(2019, 1, 2), date(2019, 2, 15), date(2019, 4, 1)]
        changed = {each.name: each for each in SENSITIVITIES}
        assert list(changed) == ["stocks-500-steps", "stocks-2000-steps", "stocks-windows", "stocks-softmax"]
        assert {name: agent.learner.actor.logit_bound for name, agent in STOCKS.algorithms.items()} == dict.fromkeys(
            STOCKS.algorithms, LOGIT_BOUND
        )
        for name, steps in {"stocks": 50, "stocks-500-steps": 500, "stocks-2000-steps": 2000}.items():
            for agent in ({**changed, "stocks": STOCKS}[name]).algorithms.values():
                assert agent.first == agent.further
                assert agent.further * agent.learner.epochs * agent.learner.minibatches == steps
        assert {agent.scenarios for agent in changed["stocks-windows"].algorithms.values()} == {"bootstrap"}

    def test_every_one_is_in_the_catalogue(self):
        for experiment in (*START_DATES, *SENSITIVITIES):
            assert experiment.name in NAMES and find_study(experiment.name).experiment == experiment

    def test_the_paper_s_table_stays_as_it_is(self):
        """The preset has free logits: a bound is this experiment's."""
        assert preset("paper-stocks", "sdpo").learner.actor.logit_bound is None


def starts() -> tuple[StocksExperiment, StocksExperiment]:
    """A week from the first day on, and from the fifteenth of February on as far as the twentieth."""
    first = tiny(shown=("ppo", "sdpo-0.1"), end=date(2019, 2, 20))
    return first, other_starts(first)[0]


def test_claims_are_judged_on_every_start_date_that_is_there():
    first, second = starts()
    run_stocks(first, jobs=1)
    alone = summarise_stocks(first)
    assert list(alone.starts) == ["2019-01-02"] and alone.over_starts == {}
    run_stocks(second, jobs=1)
    both = summarise_stocks(first)
    assert list(both.starts) == ["2019-01-02", "2019-02-15"]
    assert both.labels == alone.labels and both.walks == alone.walks
    for label in ("ppo", "sdpo-0.1"):
        means = [both.starts[start][label].mean for start in both.starts]
        assert means[0] == pytest.approx(both.labels[label].final_wealth.mean)
        assert both.over_starts[label].mean == pytest.approx(sum(means) / 2)
    assert both.statistics.labels["ppo"].runs == 4
    # Two by two on each start date.
    assert "4 pairs" in alone.claims[2].findings[0].text and "8 pairs" in both.claims[2].findings[0].text
    assert "over start dates" in page(render_stocks(both)) and "over start dates" not in page(render_stocks(alone))
    # From the other side it is the same; other settings do not count.
    assert summarise_stocks(second).starts == both.starts
    assert list(summarise_stocks(first.with_changes(iterations=2)).starts) == ["2019-01-02"]


def test_what_stands_side_by_side_is_of_the_same_start_dates():
    first, second = starts()
    run_stocks(first, jobs=1)
    alone = summarise_stocks(first)
    run_stocks(second.with_changes(algorithms=("ppo",)), jobs=1)
    both = summarise_stocks(first)
    assert {label: each.runs for label, each in both.statistics.labels.items()} == {"ppo": 2, "sdpo-0.1": 2}
    assert both.statistics.labels["ppo"].score == alone.statistics.labels["ppo"].score
    assert "of start date 2019-01-02, which all have" in both.statistics.resampling
    claims = {claim.key: claim.findings for claim in both.claims}
    assert all("start date 2019-01-02" in finding.text for key in ("D1", "D5", "D6") for finding in claims[key])
    assert all("start date" not in finding.text for claim in alone.claims for finding in claim.findings)
    # One start date of SDPO has no mean over start dates.
    assert list(both.over_starts) == ["ppo"] and "final wealth, from" in page(render_stocks(both))


def write_again(experiment: StocksExperiment, home: Path) -> set[str]:
    """The names of the records that there are after these backtests were written down."""
    write_records(experiment, home / "experiments" / "stocks", out=home / "evidence")
    return {path.name for path in (home / "evidence" / "stocks").iterdir()}


def test_records_whose_seeds_are_written_again_are_replaced(home: Path):
    """Seeds in two folders once, and in a single one of a fresh home later: none counts twice."""
    experiment = tiny(shown=("ppo", "sdpo-0.1"), strategies=("cash",))
    run_stocks(experiment.with_changes(seeds=(0,)), jobs=1)
    run_stocks(experiment.with_changes(seeds=(0, 1), algorithms=("ppo",)), jobs=1)
    assert write_again(experiment, home) == {"benchmarks.json", "ppo-0.json", "ppo-1.json", "sdpo-0.1-0.json"}
    (home / "experiments").rename(home / "old")
    run_stocks(experiment.with_changes(algorithms=("ppo",)), jobs=1)
    assert write_again(experiment, home) == {"benchmarks.json", "ppo-0.json", "sdpo-0.1-0.json"}
    summary = summarise_stocks(experiment, home / "evidence" / "stocks", out=home / "out")
    assert summary.labels["ppo"].seeds == (0, 1) and summary.labels["sdpo-0.1"].seeds == (0,)


def test_a_seed_in_two_places_is_an_error(home: Path):
    experiment = tiny(shown=("ppo",), seeds=(0, 1), strategies=("cash",))
    run_stocks(experiment, jobs=1)
    write_again(experiment, home)
    root = home / "evidence" / "stocks"
    shutil.copy(root / "ppo-0.json", root / "ppo-1.json")
    with pytest.raises(RunError, match=r"ppo-0\.json and .*ppo-1\.json both hold seed 0 of ppo: remove one of them\."):
        summarise_stocks(experiment, root, out=home / "out")


def test_restart_replaces_a_record(home: Path):
    experiment = tiny(shown=("ppo",), seeds=(0,), strategies=("cash",))
    run_stocks(experiment, jobs=1)
    write_again(experiment, home)
    folder = home / "experiments" / "stocks"
    shutil.rmtree(folder)
    shutil.copytree(home / "evidence" / "stocks", folder)
    other = experiment.with_changes(iterations=2)
    assert "ppo-0.json holds a run with other settings" in run_stocks(other, jobs=1)[1].message
    assert [outcome.status for outcome in run_stocks(other, jobs=1, restart=True)] == ["skipped", "finished"]
    assert {path.name for path in folder.iterdir()} == {"benchmarks.json", "ppo-0"}
    assert summarise_stocks(other).labels["ppo"].updates == 2


def test_a_record_stands_for_a_backtest(home: Path):
    experiment = tiny(shown=("ppo",))
    run_stocks(experiment, jobs=1)
    before = summarise_stocks(experiment)
    paths = write_records(experiment, home / "experiments" / "stocks", out=home / "evidence")
    assert [path.name for path in paths] == ["benchmarks.json", "ppo-0.json"]
    record = json.loads(paths[1].read_text())
    assert record["command"] == "portfolio-sdpo experiment run stocks --algorithms ppo --seeds 0,1"
    root = home / "evidence" / "stocks"
    after = summarise_stocks(experiment, root, out=home / "out")
    assert after.versions == before.versions and after.outdated == () and after.labels.keys() == before.labels.keys()
    for label, summary in before.labels.items():
        again = after.labels[label]
        assert (again.seeds, again.limit, again.updates) == (summary.seeds, summary.limit, summary.updates)
        for figure in ("final_wealth", "max_drawdown", "realised_cvar", "cash", "turnover"):
            assert getattr(again, figure).mean == pytest.approx(getattr(summary, figure).mean, rel=1e-4, abs=2e-5)
        if summary.training_breaks is not None:
            assert again.training_breaks == summary.training_breaks
            assert again.training_cvar.mean == pytest.approx(summary.training_cvar.mean, rel=1e-4)
    assert [path.name for path in make_stocks_figures(experiment, root, out=home / "out")] == [
        "stocks.png",
        "stocks.svg",
    ]
    assert {path.name for path in root.iterdir()} == {"benchmarks.json", "ppo-0.json"}  # nothing is written there
    (old,) = [each for each in list_backtests(experiment) if each.seeds]
    (new,) = [each for each in list_backtests(experiment, root) if each.seeds]
    pd.testing.assert_frame_equal(
        new.read("trace")[["strategy", "seed", "date"]], old.read("trace")[["strategy", "seed", "date"]]
    )


def test_records_are_of_declared_runs_and_a_damaged_one_is_named(home: Path):
    experiment = tiny(shown=("ppo",), seeds=(0,))
    run_stocks(experiment, jobs=1)
    root = home / "experiments" / "stocks"
    with pytest.raises(RunError, match=r"no run in .* is finished with the declared settings"):
        write_records(experiment.with_changes(iterations=2), root, out=home / "evidence")
    write_records(experiment, root, out=home / "evidence")
    path = home / "evidence" / "stocks" / "ppo-0.json"
    record = json.loads(path.read_text())
    # A setting that was added since has its default, and one that nobody knows any more is another version's.
    fields = record["config"]["settings"]["agents"][0]["settings"]
    for settings, is_it in (({k: v for k, v in fields.items() if k != "limits"}, True), ({**fields, "old": 1}, False)):
        record["config"]["settings"]["agents"][0]["settings"] = settings
        path.write_text(json.dumps(record))
        (found,) = [each for each in list_backtests(experiment, path.parent) if each.seeds]
        assert found.matches(experiment) is is_it
    path.write_text(json.dumps({**record, "experiment": "stocks-april"}))
    with pytest.raises(RunError, match=r"ppo-0\.json is not a record of a backtest of stocks"):
        summarise_stocks(experiment, home / "evidence" / "stocks")
