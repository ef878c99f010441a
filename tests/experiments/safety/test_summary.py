"""Known answers: what a summary, its page and its figures say of logs that were written by hand."""

import json
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
from matplotlib import rc_context
from rich.console import Console

from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.cmdp.figures import STYLE
from portfolio_sdpo.experiments.cmdp.summary import Spread
from portfolio_sdpo.experiments.engine.folders import write_json
from portfolio_sdpo.experiments.safety.declared import SAFETY_EXPERIMENTS
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment, WorldSettings
from portfolio_sdpo.experiments.safety.figures import Curve, draw_safety, make_safety_figures
from portfolio_sdpo.experiments.safety.report import render_safety
from portfolio_sdpo.experiments.safety.standings import StandingRisk, find_standing
from portfolio_sdpo.experiments.safety.study import SafetyStudy, list_safety_runs
from portfolio_sdpo.experiments.safety.summary import summarise_safety

from .safety_toys import TWO, make_up, toy, write_log


@pytest.fixture
def experiment() -> SafetyExperiment:
    """Bound 2; SDPO is twice as long."""
    return toy(seeds=(0, 1), iterations=6, lengths={"sdpo": 12}).with_changes(algorithms=("ppo", "sdpo"))


@pytest.fixture
def made_up(experiment: SafetyExperiment, tmp_path: Path) -> Path:
    logs = {
        "ppo-0": write_log([0, 1, 2, 3, 4, 5], [0, 8, 8, 8, 8, 8]),
        "ppo-1": write_log([0, 3, 4, 5, 6, 7], [0, 2, 2, 3, 4, 4]),
        "sdpo-0": write_log([0, 2, 2, 2, 2, 2, 2, 9, 9, 9, 9, 9], [1, 1, 1, 1, 1, 1, 1, 1.5, 1.5, 1.5, 1.5, 4]),
        "sdpo-1": write_log([0, 4, 4, 4, 4, 4, 4, 9, 9, 9, 9, 9], [0, 0, 0, 0, 0, 2.5, 0, 0, 0, 0, 0, 0]),
    }
    make_up(experiment, tmp_path, logs)
    return tmp_path


def test_standing_is_a_known_answer():
    """Return and risk of the last five iterations; breaks, excess and sum of all; a risk at the bound is inside."""
    rows = write_log([9, 1, 2, 3, 4, 5, 6], [9, 2, 3, 1, 1, 1, 0])
    constraints = toy().problem.constraints
    whole = find_standing(constraints, rows)
    assert (whole.steps, whole.episode_return) == (280, pytest.approx(4.0))
    assert whole.risks == (
        StandingRisk(risk=pytest.approx(6 / 5), breaks=pytest.approx(2 / 7), worst_excess=7, cumulated=34),
    )
    # Between two iterations the earlier one counts.
    early = find_standing(constraints, rows, steps=119)
    assert (early.steps, early.episode_return) == (80, pytest.approx(5.0))
    assert early.risks == (StandingRisk(risk=pytest.approx(5.5), breaks=0.5, worst_excess=7, cumulated=22),)


def test_a_log_inside_the_bound_has_no_excess():
    (risk,) = find_standing(toy().problem.constraints, write_log([1.0], [1.5])).risks
    assert risk == StandingRisk(risk=1.5, breaks=0.0, worst_excess=0.0, cumulated=3.0)


@pytest.mark.parametrize(("hit", "episodes", "over"), [(1, 10, 0), (3, 30, 0), (2, 10, 1), (4, 30, 1)])
def test_a_share_of_episodes_at_the_bound_is_inside(hit: int, episodes: int, over: int):
    """In single precision, in which it is computed, 1 of 10 is a little more than 0.1."""
    constraint = TWO.constraints[1]
    sampled = constraint.measure(torch.tensor([1.0] * hit + [0.0] * (episodes - hit))).item()
    (risk,) = find_standing([constraint], write_log([1.0], [sampled], signals=("hazards",))).risks
    assert risk.breaks == over and (risk.worst_excess > 0) == over


def test_algorithms_are_compared_at_equal_steps_and_at_the_end(experiment: SafetyExperiment, made_up: Path):
    summary = summarise_safety(experiment, made_up)
    ppo, sdpo = summary.algorithms["ppo"], summary.algorithms["sdpo"]
    assert summary.equal_steps == 240
    assert (ppo.equal, ppo.seeds) == (ppo.end, (0, 1))
    assert ppo.equal.episode_return == Spread(4.0, pytest.approx(2**0.5))  # 3 and 5
    (risk,) = ppo.equal.risks
    assert risk["risk"] == Spread(5.5, pytest.approx(5 / 2**0.5))  # 8 and 3
    assert risk["breaks"] == Spread(pytest.approx(4 / 6), pytest.approx(2 / 6 / 2**0.5))  # 5 of 6 and 3 of 6
    assert (risk["worst_excess"], risk["cumulated"]) == (6.0, Spread(55.0, pytest.approx(50 / 2**0.5)))

    assert (sdpo.equal.steps, sdpo.end.steps) == (240, 480)
    assert sdpo.equal.episode_return == Spread(3.0, pytest.approx(2**0.5))  # as if it had ended there
    assert sdpo.end.episode_return == Spread(9.0, 0.0)
    assert sdpo.equal.risks[0]["breaks"] == Spread(pytest.approx(1 / 12), pytest.approx(1 / 6 / 2**0.5))
    assert (sdpo.equal.risks[0]["worst_excess"], sdpo.end.risks[0]["worst_excess"]) == (0.5, 2.0)
    assert sdpo.steps_per_second == Spread(100.0, 0.0)
    assert [figure.algorithm for figure in summary.public][:2] == ["PPO", "CPO"]
    assert json.loads((made_up / "summary.json").read_text())["equal_steps"] == 240


def test_only_some_runs(experiment: SafetyExperiment, made_up: Path):
    summary = summarise_safety(experiment, made_up, only=["sdpo-1"])
    assert [(run.label, run.seed) for run in summary.runs] == [("sdpo", 1)]
    assert summary.equal_steps == 480


def test_unfinished_failed_and_outdated_runs_are_named(experiment: SafetyExperiment, made_up: Path):
    os.remove(made_up / "sdpo-1" / "final.json")
    (run,) = (run for run in list_safety_runs(experiment, made_up) if run.name == "ppo-1")
    run.record_failure(RunError("it fell over."))
    config = json.loads((made_up / "sdpo-0" / "config.json").read_text())
    config["settings"]["algorithm"]["clip"] = 0.3
    write_json(made_up / "sdpo-0" / "config.json", config)
    summary = summarise_safety(experiment, made_up)
    assert [(run.label, run.seed) for run in summary.runs] == [("ppo", 0), ("sdpo", 0)]
    assert summary.failures == {"ppo-1": "it fell over."} and summary.outdated == ("sdpo-0",)
    assert summary.unfinished["sdpo-1"].steps == 480
    page = rendered(render_safety(summary))
    assert "ppo-1 failed: it fell over." in page
    assert "sdpo-1 is unfinished: 0.48k steps, return 9.00, risk 0.00 (8% over)" in page
    assert "made with settings other than those declared now: sdpo-0" in page


@pytest.mark.parametrize(
    ("changes", "outdated"),
    [
        ({}, ()),
        ({"iterations": 3}, ()),
        ({"world": WorldSettings(task="PointGoal1", horizon=20, near=True)}, ("ppo-0",)),
        ({"lane": 1}, ("ppo-0",)),
        ({"overlap": True}, ("ppo-0",)),
        ({"episodes": 3}, ("ppo-0",)),
    ],
)
def test_what_makes_a_run_outdated(changes: dict, outdated: tuple[str, ...], tmp_path: Path):
    """Anything that was declared, except for its length, which is told anyway."""
    experiment = toy().with_changes(algorithms=("ppo",))
    make_up(experiment, tmp_path, {"ppo-0": write_log([1.0], [1.0])})
    assert summarise_safety(experiment.with_changes(**changes), tmp_path).outdated == outdated


def test_a_run_without_a_checkpoint_is_unfinished(experiment: SafetyExperiment, made_up: Path):
    for name in ("ppo-0", "ppo-1", "sdpo-0", "sdpo-1"):
        os.remove(made_up / name / "final.json")
        os.remove(made_up / name / "metrics.parquet")
    summary = summarise_safety(experiment, made_up)
    assert (summary.equal_steps, summary.runs, summary.algorithms) == (None, (), {})
    assert summary.unfinished == dict.fromkeys(["ppo-0", "ppo-1", "sdpo-0", "sdpo-1"])
    assert "ppo-0 is unfinished" in rendered(render_safety(summary))
    with pytest.raises(RunError, match=r"no run in .* has a log yet"):
        make_safety_figures(experiment, made_up)


def test_an_empty_folder_says_how_to_begin(experiment: SafetyExperiment, tmp_path: Path):
    with pytest.raises(RunError, match=r"start them with `portfolio-sdpo experiment run safety-toy`"):
        summarise_safety(experiment, tmp_path)


def rendered(page, width: int = 80) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(page)
    return capture.get()


def test_the_page_sets_others_figures_apart(experiment: SafetyExperiment, made_up: Path):
    page = rendered(render_safety(summarise_safety(experiment, made_up)))
    assert "After 240 steps, which all have" in page and "At the end of longer runs" in page
    assert page.index("SDPO") < page.index("Figures of others, not measured here") < page.index("TRPO-PID")
    assert "…" not in page


def test_two_constraints_fit_on_the_page_and_have_no_public_figures(tmp_path: Path):
    experiment = SAFETY_EXPERIMENTS["safety-c"].with_changes(seeds=(0, 1, 2))
    row = {"episode_return": 12.34, "total_steps": 3e4, "risk_empirical_0": 123.45, "batch_vases": 1e5}
    rows = [row | {"risk_empirical_1": 0.56, "batch_hazards": 17.0}]
    make_up(experiment, tmp_path, {run.name: rows for run in list_safety_runs(experiment, tmp_path)}, rate=1234.0)
    summary = summarise_safety(experiment, tmp_path)
    assert summary.public == ()
    page = rendered(render_safety(summary))
    assert "…" not in page and "<= 0.1" in page and "Figures of others" not in page


def test_the_list_names_eighteen_tasks_in_one_entry():
    longer = SAFETY_EXPERIMENTS["safety-c-short"].with_changes(lengths={"sdpo": 200})
    studies = [SafetyStudy(each) for each in (SAFETY_EXPERIMENTS | {longer.name: longer}).values()]
    groups = {study.group: [each for each in studies if each.group == study.group] for study in studies}
    page = "\n".join(rendered(members[0].describe(members), width=200) for members in groups.values())
    assert page.count("safety-b-") == 3 and page.count("18 tasks, expected cost at most 25") == 2
    assert "25 to 50 iterations of 20,000 steps" in page
    assert "doggopush2" in page and "(SDPO: 200)" in page


def test_curves_are_means_of_the_last_iterations_cut_to_the_shortest_run():
    curve = Curve("ppo", [write_log([0, 2, 4, 6, 8, 10, 100], [0] * 7), write_log([1, 1, 1, 1, 1, 1], [0] * 6)])
    steps, values = curve.column("episode_return")
    assert steps.tolist() == [40, 80, 120, 160, 200, 240]
    assert values.tolist() == [[0, 1, 2, 3, 4, 6], [1] * 6]
    assert curve.until(100).column("episode_return")[1].tolist() == [[0, 1], [1, 1]]


def test_figures_are_drawn_with_and_without_longer_runs(experiment: SafetyExperiment, made_up: Path):
    files = make_safety_figures(experiment, made_up)
    assert [file.name for file in files] == ["learning.png", "learning.svg", "equal-steps.png", "equal-steps.svg"]
    words = "".join(ElementTree.parse(files[1]).getroot().itertext())
    assert all(word in words for word in ("PPO", "SDPO", "≤ 2", "(b) cost of an episode", "± 1 sd over 2 seeds"))
    again = [path.read_bytes() for path in files if path.suffix == ".svg"]
    assert [path.read_bytes() for path in make_safety_figures(experiment, made_up) if path.suffix == ".svg"] == again
    only = make_safety_figures(experiment, made_up, only=["ppo-0"])
    assert [file.name for file in only] == ["learning.png", "learning.svg"]
    assert not list(made_up.glob("equal-steps.*"))


def test_the_legend_fits(tmp_path: Path):
    """Five algorithms and the band under two panels, and the fewer of (C) under three."""
    five = toy(seeds=(0, 1))
    three = toy(seeds=(0, 1), problem=TWO).with_changes(algorithms=("ppo", "ipo", "sdpo"))
    for experiment in (five, three):
        signals = tuple(constraint.signal for constraint in experiment.problem.constraints)
        rows = write_log([1, 2], *([0, 1] for _ in signals), signals=signals)
        with rc_context(STYLE):
            figure = draw_safety(experiment, [Curve(label, [rows, rows[:1]]) for label in experiment.algorithms])
            figure.canvas.draw()
        box = figure.legends[0].get_window_extent()
        assert box.x0 >= 0 and box.x1 <= figure.bbox.width


def test_two_constraints_have_two_panels(tmp_path: Path):
    experiment = toy(problem=TWO).with_changes(algorithms=("ppo",))
    rows = write_log([1, 2], [0.5, 3], [0, 1], signals=("vases", "hazards"))
    make_up(experiment, tmp_path, {"ppo-0": rows})
    _, svg = make_safety_figures(experiment, tmp_path)
    words = "".join(ElementTree.parse(svg).getroot().itertext())
    assert "(b) vases of an episode" in words and "(c) probability of reaching hazards" in words
