"""What is run for each of the paper's questions at each scale."""

from pathlib import Path

import pytest

from portfolio_sdpo.experiments.paper.claims import QUESTIONS, Beats
from portfolio_sdpo.experiments.paper.plan import SCALES, plan_studies
from portfolio_sdpo.experiments.paper.smoke import PREFIX
from portfolio_sdpo.experiments.study import FinishedRuns

PLANNED = {
    ("A", "smoke"): {"smoke-cmdp-cvar": 9, "smoke-cmdp-variance": 9},
    ("A", "paper"): {"cmdp-cvar": 30, "cmdp-variance": 30},  # three algorithms, five runs on each of two CMDPs
    ("B", "smoke"): {"smoke-safety-b": 15},
    ("B", "laptop"): {"safety-b-pointgoal1-short": 15},
    ("C", "smoke"): {"smoke-safety-c": 9},
    ("C", "laptop"): {"safety-c-short": 9},
    ("C", "paper"): {"safety-c": 15},
    ("D", "smoke"): {"smoke-stocks": 12},
    ("D", "laptop"): {"stocks": 12},
    ("D", "paper"): {"stocks": 40},
}


@pytest.mark.parametrize("question, scale", PLANNED)
def test_so_many_runs_are_planned(question, scale):
    assert {study.name: study.planned_runs for study in plan_studies(question, scale)} == PLANNED[question, scale]


def test_the_papers_b_has_all_tasks_and_five_algorithms():
    found = plan_studies("B", "paper")
    assert len(found) == 18 and {study.planned_runs for study in found} == {50}
    assert {task for study in found for task in [study.experiment.world.task]} >= {"PointGoal1", "DoggoPush2"}


def test_the_laptops_a_has_the_bounds_that_bind_too():
    names = [study.name for study in plan_studies("A", "laptop")]
    assert names == ["cmdp-cvar", "cmdp-variance", "cmdp-cvar-binding", "cmdp-variance-binding"]


def test_the_papers_runs_of_a_are_five_on_each_of_two_cmdps():
    study = plan_studies("A", "paper")[0]
    pairs = study.experiment.runs()
    assert len(pairs) == len(set(pairs)) == 10
    assert sorted(cmdp for cmdp, _ in pairs) == [5] * 5 + [10] * 5


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_study_can_be_judged_and_set_beside_the_paper(question, scale, tmp_path: Path):
    asked = QUESTIONS[question]
    for study in plan_studies(question, scale, tmp_path):
        assert study.size().keys() == asked.size.keys() and study.role and study.root == tmp_path / study.name
        assert study.name.startswith(PREFIX) == (scale == "smoke")
        labels = set(study.experiment.algorithms)
        compared = {part.better for claim in asked.claims for part in claim.parts if isinstance(part, Beats)}
        assert {label for label in compared if "*" not in label} <= labels
        assert study.finished() == FinishedRuns(())
