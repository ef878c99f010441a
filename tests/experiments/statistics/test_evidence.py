"""What runs have to say, in one shape: by label and stratum, several tasks as one, statistics."""

from dataclasses import replace

import numpy as np
import pytest

from portfolio_sdpo.experiments.statistics.evidence import (
    SCORE,
    SPEED,
    Evidence,
    RunEvidence,
    SeedStatistics,
    merge_evidence,
)


def run(label: str, score: float, stratum: str = "Goal", seed: int = 0, excess: tuple[float, ...] = ()) -> RunEvidence:
    return RunEvidence(label, stratum, seed, {SCORE: score, SPEED: score / 2, "slack_0": -1.0}, (np.array(excess),))


def evidence(*runs: RunEvidence, **changes) -> Evidence:
    figures = {SCORE: "return", SPEED: "mean return", "slack_0": "distance"}
    return Evidence(figures, ("cost <= 2",), "task", runs, **changes)


def test_runs_by_label_and_stratum():
    found = evidence(
        run("sdpo-0.1", 3.0), run("ppo", 1.0), run("sdpo-0.05", 4.0), run("ppo", 2.0, seed=1), run("ppo", 7.0, "Push")
    )
    assert found.labels() == ["sdpo-0.1", "ppo", "sdpo-0.05"]
    assert found.labels("sdpo-*") == ["sdpo-0.1", "sdpo-0.05"] and found.labels("pcpo") == []
    assert found.scores("ppo") == {"Goal": [1.0, 2.0], "Push": [7.0]}
    assert found.scores("ppo", SPEED) == {"Goal": [0.5, 1.0], "Push": [3.5]}
    assert found.scores("ppo", "drawdown") == {} == found.scores("ipo")


def test_a_run_without_iterations_is_no_witness_of_violations():
    found = evidence(run("ppo", 1.0, excess=(0.0, 2.0)), run("ppo", 1.0, seed=1))
    (only,) = found.violations("ppo", 0)["Goal"]
    assert (only.share, only.depth) == (0.5, 2.0)


class TestMerged:
    def test_scores_are_shares_of_what_ppo_has_on_the_same_task(self):
        goal = evidence(run("ppo", 8.0), run("ppo", 12.0, seed=1), run("sdpo", 5.0))
        push = evidence(run("ppo", 2.0, "Push"), run("sdpo", 3.0, "Push"))
        both = merge_evidence([goal, push])
        assert both.scores("sdpo") == {"Goal": [0.5], "Push": [1.5]}
        assert both.scores("ppo", SPEED) == {"Goal": [0.4, 0.6], "Push": [0.5]}
        assert both.scores("sdpo", "slack_0") == {"Goal": [-1.0], "Push": [-1.0]}  # a distance stays what it is
        assert both.figures[SCORE] == "return, as a share of PPO's on the same task"

    def test_a_task_without_a_measure_is_left_out(self):
        goal = evidence(run("ppo", 8.0), run("sdpo", 4.0))
        lost = evidence(run("ppo", -1.0, "Push"), run("sdpo", 3.0, "Push"))
        untried = evidence(run("sdpo", 3.0, "Button"))
        assert merge_evidence([goal, lost, untried]).scores("sdpo") == {"Goal": [0.5]}

    def test_one_task_stays_as_it_is(self):
        alone = evidence(run("sdpo", 3.0))
        assert merge_evidence([alone]) is alone


class TestSeedStatistics:
    def test_of_three_runs_each(self):
        found = SeedStatistics.of(
            evidence(
                *(run("ppo", score, seed=seed, excess=(1.0, 0.0)) for seed, score in enumerate((1.0, 2.0, 3.0))),
                *(run("sdpo", score, seed=seed, excess=(0.0, 0.0)) for seed, score in enumerate((4.0, 5.0, 6.0))),
            )
        )
        assert {label: (each.runs, round(each.score.value, 9)) for label, each in found.labels.items()} == {
            "ppo": (3, 2.0),
            "sdpo": (3, 5.0),
        }
        assert found.labels["ppo"].violations[0].share.value == 0.5 and found.labels["ppo"].gap is None
        (pair,) = found.comparisons
        assert (pair.better, pair.worse, pair.probability.value, pair.chance) == ("sdpo", "ppo", 1.0, 0.05)

    def test_the_gap_is_told_where_the_optimum_is_known(self):
        runs = [run("sdpo", score, seed=seed) for seed, score in enumerate((0.5, 0.75, 1.5))]
        assert SeedStatistics.of(evidence(*runs, to_optimum=True)).labels["sdpo"].gap.value == pytest.approx(0.25)

    def test_of_nothing(self):
        assert SeedStatistics.of(evidence()) is None

    @pytest.mark.parametrize(
        "strata, each, sentence",
        [
            (1, 2, "No intervals where there are fewer than 3 runs"),
            (1, 3, "runs resampled. With so few runs they are too narrow."),
            (1, 6, "runs resampled."),
            (2, 6, "runs resampled within each of 2 tasks."),
            (3, 1, "whole tasks resampled, as some have only 1 run. With so few of them they are too narrow."),
            (6, 2, "whole tasks resampled, as some have only 2 runs."),
        ],
    )
    def test_it_says_how_intervals_were_drawn(self, strata, each, sentence):
        runs = [run("sdpo", float(s), f"task {t}", s) for t in range(strata) for s in range(each)]
        found = SeedStatistics.of(evidence(*runs))
        assert sentence in found.resampling
        assert (found.labels["sdpo"].score.low is None) == sentence.startswith("No intervals")

    def test_figures_side_by_side_are_of_the_strata_that_all_have(self):
        runs = [run(label, float(s), "Goal", s, (1.0, 0.0)) for label in ("ppo", "sdpo") for s in range(6)]
        runs += [run("ppo", 100.0, "Push", s, (1.0, 1.0)) for s in range(6)]
        runs += [run(label, 50.0, "Button", s, (0.0, 0.0)) for label in ("ppo", "ipo") for s in range(6)]
        runs += [run("ipo", float(s), "Goal", s) for s in range(6)]
        every, aligned = (SeedStatistics.of(evidence(*runs, aligned=each)) for each in (False, True))
        assert {label: each.runs for label, each in every.labels.items()} == {"ppo": 18, "sdpo": 6, "ipo": 12}
        assert "Figures of" not in every.resampling
        assert {label: (each.runs, round(each.score.value, 9)) for label, each in aligned.labels.items()} == {
            "ppo": (6, 2.5),
            "sdpo": (6, 2.5),
            "ipo": (6, 2.5),
        }
        assert aligned.labels["ppo"].violations[0].share.value == 0.5
        assert "of task Goal, which all have" in aligned.resampling
        assert every.comparisons == aligned.comparisons  # of pairs, on what both have

    def test_alignment_says_nothing_where_all_have_the_same(self):
        same = [run(label, 1.0, task) for label in ("ppo", "sdpo") for task in ("Goal", "Push")]
        found = evidence(*same, aligned=True)
        assert found.describe_alignment() == "" and found.align().runs == found.runs
        apart = evidence(run("ppo", 1.0), run("sdpo", 1.0, "Push"), aligned=True)
        assert SeedStatistics.of(apart) is None

    def test_labels_without_a_score_are_left_out(self):
        silent = replace(run("cpo", 0.0), figures={})
        assert list(SeedStatistics.of(evidence(run("ppo", 1.0), silent)).labels) == ["ppo"]
