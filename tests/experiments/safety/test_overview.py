"""Known answers: all tasks at once, in shares of what PPO has, with what is missing."""

import json
from pathlib import Path

import pytest
from matplotlib import rc_context
from rich.console import Console

from portfolio_sdpo.errors import RunError, SettingsError
from portfolio_sdpo.experiments.safety.declared import find_safety_experiment
from portfolio_sdpo.experiments.safety.overview import SafetyOverview, describe_overview, summarise_tasks
from portfolio_sdpo.experiments.safety.overview_figure import draw_overview
from portfolio_sdpo.experiments.safety.overview_report import render_overview, render_overview_page
from portfolio_sdpo.experiments.safety.published import best_within
from portfolio_sdpo.experiments.style import STYLE

from .safety_toys import make_up, write_log


@pytest.fixture(scope="module")
def overview(tmp_path_factory: pytest.TempPathFactory) -> SafetyOverview:
    """Two tasks of eighteen; on the first one SDPO has two names, and the one beside the grid is longer."""
    home = tmp_path_factory.mktemp("home")
    logs = {
        "ppo-0": write_log([20] * 4, [65] * 4),
        "ipo-0": write_log([5] * 4, [35] * 4),
        "sdpo-0": write_log([99] * 6, [0] * 6),
        "sdpo-backup-0": write_log([10] * 6, [13, 13, 13, 13, 26, 13]),
    }
    make_up(find_safety_experiment("safety-b-pointgoal1-short"), home / "safety-b-pointgoal1-short", logs)
    logs = {"ppo-0": write_log([4] * 4, [25] * 4), "sdpo-0": write_log([5] * 4, [25] * 4)}
    make_up(find_safety_experiment("safety-b-carpush1-short"), home / "safety-b-carpush1-short", logs)
    return summarise_tasks("short", home)


def test_figures_are_shares_of_ppos_at_equal_steps(overview: SafetyOverview):
    assert (len(overview.tasks), overview.finished, overview.wanted) == (18, 5, 108)
    first = overview.tasks[0]
    assert first.experiment.world.task == "PointGoal1" and first.missing == ("ppo-lagrangian", "cpo", "pcpo")
    ppo, ipo, sdpo = first.results
    assert [each.label for each in first.results] == ["ppo", "ipo", "sdpo"]
    assert ppo.normalised is not None and ipo.normalised is not None and sdpo.normalised is not None
    assert (ppo.normalised.episode_return, ppo.normalised.violation, ppo.normalised.cost_rate) == (1, 1, 1)
    assert (ipo.normalised.episode_return, ipo.normalised.violation) == (0.25, 0.25)  # (35 − 25) / (65 − 25)
    assert ipo.normalised.cost_rate == pytest.approx(35 / 65)
    # Up to the steps that PPO has; the last columns are of the end.
    assert (sdpo.normalised.episode_return, sdpo.normalised.violation) == (0.5, 0)
    assert sdpo.normalised.cost_rate == pytest.approx(13 / 65)
    assert sdpo.end.steps == 240 and sdpo.end.risks[0]["worst_excess"] == 1.0


def test_statistics_are_over_tasks_in_shares_of_ppos(overview: SafetyOverview):
    assert overview.statistics is not None
    labels = overview.statistics.labels
    assert {label: each.runs for label, each in labels.items()} == {"ppo": 2, "ipo": 1, "sdpo": 2}
    assert labels["sdpo"].score.value == pytest.approx((0.5 + 1.25) / 2)
    against = {pair.worse: pair.probability.value for pair in overview.statistics.comparisons}
    assert against == {"ppo": 0.5, "ipo": 1.0}


def test_the_pages_say_what_is_missing(overview: SafetyOverview):
    console = Console(width=160)
    with console.capture() as capture:
        console.print(render_overview(overview))
    page = capture.get()
    assert "5 of 108 pairs of task and algorithm have a finished run." in page
    assert "missing of PointGoal1: PPO-Lagrangian, CPO, PCPO" in page
    assert "DoggoButton2, DoggoPush1, DoggoPush2: PPO, PPO-Lagrangian, IPO, CPO, PCPO, SDPO" in " ".join(page.split())
    assert "published within the bound: TRPO-PID 19.2 / 21.4 after 10M steps; SDPO: below" in page
    html = render_overview_page(overview)
    assert html.count("data:image/png;base64,") == 1
    assert "<li>CarPush1: PPO-Lagrangian, IPO, CPO, PCPO</li>" in html
    assert "<code>portfolio-sdpo experiment run safety-b-&lt;task&gt;-short</code>" in html
    assert "&lt;span" not in html and "<span" not in page
    assert "P(SDPO &gt; IPO) = 1.00" in html
    found = json.loads(json.dumps(describe_overview(overview)))
    assert found["tasks"]["CarPush1"]["results"][1]["normalised"]["episode_return"] == 1.25


def test_sdpo_beside_the_best_published_result_within_the_bound(tmp_path: Path):
    ends = {"pointgoal1": (19.2, 25), "pointgoal2": (2.6, 5), "carpush1": (9, 26), "pointpush2": (9, 5)}
    for task, (reward, cost) in ends.items():
        label = "sdpo-backup-0" if task == "pointgoal1" else "sdpo-0"
        name = f"safety-b-{task}-short"
        make_up(find_safety_experiment(name), tmp_path / name, {label: write_log([reward] * 4, [cost] * 4)})
    found = summarise_tasks("short", tmp_path)
    verdicts = {task.experiment.world.task: task.verdict for task in found.tasks}
    assert verdicts["PointGoal1"] == "at or above"
    assert verdicts["PointGoal2"] == "below"
    assert verdicts["CarPush1"] == "beyond the bound"
    assert verdicts["PointPush2"] is None  # nobody has published a result within the bound
    assert verdicts["DoggoGoal1"] is None  # no run
    assert found.ahead == (1, 3)


def test_the_figure_has_a_place_for_every_task(overview: SafetyOverview):
    with rc_context(STYLE):
        figure = draw_overview(overview)
    assert len(figure.axes) == 36
    words = [text.get_text() for axis in figure.axes for text in axis.texts]
    assert words.count("no runs yet") == 16 and words.count("≤ 25") == 2


def test_published_figures_within_the_bound():
    best = best_within("DoggoGoal1")
    assert best is not None and (best.algorithm, best.steps) == ("CPO", 100_000_000)
    assert best_within("PointPush2") is None and best_within("CarPush2") is None


def test_what_is_not_there_is_said(tmp_path: Path):
    with pytest.raises(RunError, match="holds no finished run of any task yet"):
        summarise_tasks("suite", tmp_path)
    with pytest.raises(SettingsError, match="variant: there is no 'long'; choose one of short, suite"):
        summarise_tasks("long", tmp_path)
