"""The rules of the verdicts, on runs made up so that the answer is known; and the paper's claims as data."""

import numpy as np
import pytest

from portfolio_sdpo.experiments.paper.claims import QUESTIONS, Above, Beats, Breaks, Claim, Keeps, Part
from portfolio_sdpo.experiments.paper.verdicts import RARELY, judge
from portfolio_sdpo.experiments.statistics.evidence import SCORE, SPEED, Evidence, RunEvidence
from portfolio_sdpo.experiments.tables import display_name

ITERATIONS = 100


def runs(label: str, *scores: float, beyond: int = 0, stratum: str = "Goal") -> list[RunEvidence]:
    """One run per score, each beyond the bound in so many of its 100 iterations."""
    excess = (np.arange(ITERATIONS) < beyond).astype(float)
    return [
        RunEvidence(label, stratum, seed, {SCORE: score, SPEED: -score}, (excess,)) for seed, score in enumerate(scores)
    ]


def evidence(*groups: list[RunEvidence]) -> Evidence:
    figures = {SCORE: "return", SPEED: "speed"}
    return Evidence(figures, ("cost <= 2",), "task", tuple(run for group in groups for run in group))


def answers(part: Part, found: Evidence) -> list[bool | None]:
    return [each.answer for each in judge(Claim("X1", "", "", (part,)), found).findings]


HIGH, LOW, BOTH = (4.0, 5.0, 6.0), (1.0, 2.0, 3.0), (0.0, 5.0, 9.0)


class TestBeats:
    @pytest.mark.parametrize(
        "ours, theirs, answer",
        [
            (HIGH, LOW, True),
            (LOW, HIGH, False),
            (BOTH, HIGH, None),  # the interval holds one half
            (HIGH, HIGH, None),
            (HIGH[:2], LOW[:2], None),  # two runs each can show nothing: 1 deal of 6
            (HIGH[:1], LOW[:1], None),
        ],
    )
    def test_answers(self, ours, theirs, answer):
        assert answers(Beats("sdpo", "ppo"), evidence(runs("sdpo", *ours), runs("ppo", *theirs))) == [answer]

    def test_too_few_are_named_as_the_reason(self):
        (found,) = judge(
            Claim("X1", "", "", (Beats("sdpo", "ppo"),)), evidence(runs("sdpo", 2, 3), runs("ppo", 0, 1))
        ).findings
        assert found.text == (
            "P(SDPO > PPO) = 1.00 (too few runs for an interval) in return; 4 pairs: too few to decide, even if all "
            "agreed"
        )

    @pytest.mark.parametrize("pairs, answer", [(4, None), (5, True)])
    def test_of_pairs_it_takes_five(self, pairs, answer):
        groups = [
            runs(label, score, stratum=f"CMDP {k}") for k in range(pairs) for label, score in (("a", 1), ("b", 0))
        ]
        assert answers(Beats("a", "b"), evidence(*groups)) == [answer]

    def test_an_interval_is_not_enough_where_chance_would_do_as_well(self):
        """Six pairs of seven: the interval lies above one half, and so do 8 of 128 deals."""
        groups = [runs("a", 2, stratum=name) + runs("b", 1, stratum=name) for name in "ABCDEF"]
        groups += [runs("a", 1, stratum=name) + runs("b", 2, stratum=name) for name in "G"]
        found = judge(Claim("X1", "", "", (Beats("a", "b"),)), evidence(*groups)).findings[0]
        # 6 of 7 or more: (1 + 7) / 2⁷.
        assert found.answer is None and found.text.endswith("[0.57, 1.00] in return; 7 pairs, permutation p = 0.062")

    def test_in_another_figure_the_other_wins(self):
        found = evidence(runs("sdpo", *HIGH), runs("ppo", *LOW))
        assert answers(Beats("sdpo", "ppo", SPEED), found) == [False]

    def test_a_pattern_stands_for_every_label(self):
        found = evidence(runs("sdpo-0.1", *HIGH), runs("sdpo-0.01", *LOW), runs("ppo", *LOW))
        assert answers(Beats("sdpo-*", "ppo"), found) == [True, None]

    def test_runs_that_are_not_there(self):
        (found,) = judge(Claim("X1", "", "", (Beats("sdpo", "pd-*var"),)), evidence(runs("sdpo", *HIGH))).findings
        assert (found.text, found.answer) == ("no runs of PD-CVaR or PD-VAR", None)
        apart = evidence(runs("sdpo", *HIGH, stratum="A"), runs("ppo", *LOW, stratum="B"))
        assert answers(Beats("sdpo", "ppo"), apart) == [None]


class TestKeepsAndBreaks:
    @pytest.mark.parametrize("beyond, kept", [(0, True), (4, True), (6, False), (100, False)])
    def test_one_is_the_opposite_of_the_other(self, beyond, kept):
        found = evidence(runs("sdpo", *HIGH, beyond=beyond))
        assert answers(Keeps("sdpo"), found) == [kept] and answers(Breaks("sdpo"), found) == [not kept]

    def test_at_the_border_or_across_it_neither_is_told(self):
        across = evidence(runs("sdpo", 1.0, 2.0) + runs("sdpo", 1.0, 2.0, beyond=20))
        for found in (across, evidence(runs("sdpo", *HIGH, beyond=round(RARELY * ITERATIONS)))):
            assert answers(Keeps("sdpo"), found) == answers(Breaks("sdpo"), found) == [None]

    def test_two_runs_are_too_few(self):
        found = evidence(runs("sdpo", 1.0, 2.0))
        assert answers(Keeps("sdpo"), found) == answers(Breaks("sdpo"), found) == [None]

    def test_no_iteration_to_judge_by(self):
        found = evidence([RunEvidence("sdpo", "Goal", 0, {SCORE: 1.0}, (np.zeros(0),))])
        (finding,) = judge(Claim("X1", "", "", (Keeps("sdpo"),)), found).findings
        assert (finding.text, finding.answer) == ("SDPO: no iteration to judge by (cost <= 2)", None)
        assert answers(Keeps("cpo"), found) == [None]


class TestAbove:
    @pytest.mark.parametrize(
        "level, or_at, answer",
        [(3.9, False, True), (5.0, False, None), (6.1, False, False), (4.0, True, True), (6.0, True, None)],
    )
    def test_answers(self, level, or_at, answer):
        assert answers(Above("sdpo", SCORE, level, or_at), evidence(runs("sdpo", *HIGH))) == [answer]

    @pytest.mark.parametrize("or_at", [True, False])
    def test_exactly_at_the_level(self, or_at):
        """All in cash the slack is exactly 0, which is within a bound and no profit."""
        assert answers(Above("sdpo", SCORE, 0.0, or_at), evidence(runs("sdpo", 0.0, 0.0, 0.0))) == [or_at]

    def test_a_figure_that_no_run_has(self):
        assert answers(Above("sdpo", SPEED), evidence([RunEvidence("sdpo", "Goal", 0, {SCORE: 1.0})])) == [None]


YES, NO, UNSURE = Beats("sdpo", "ppo"), Beats("ppo", "sdpo"), Beats("sdpo", "cpo")


class TestClaims:
    @pytest.mark.parametrize(
        "parts, any_of, verdict",
        [
            ((YES,), False, "borne out"),
            ((YES, YES), False, "borne out"),
            ((YES, UNSURE), False, "cannot tell from these runs"),
            ((YES, NO), False, "not borne out"),
            ((UNSURE, NO), False, "not borne out"),
            ((YES, NO), True, "borne out"),
            ((UNSURE, NO), True, "cannot tell from these runs"),
            ((NO, NO), True, "not borne out"),
        ],
    )
    def test_of_its_parts(self, parts, any_of, verdict):
        found = evidence(runs("sdpo", *HIGH), runs("ppo", *LOW))
        assert judge(Claim("X1", "", "", parts, any_of), found).verdict == verdict

    @pytest.mark.parametrize("parts, any_of", [((YES,), False), ((NO,), False), ((YES, NO), True)])
    def test_runs_of_a_toy_tell_nothing(self, parts, any_of):
        found = evidence(runs("sdpo", *HIGH), runs("ppo", *LOW))
        assert judge(Claim("X1", "", "", parts, any_of), found, toy=True).verdict == "cannot tell: smoke"

    @pytest.mark.parametrize("parts, any_of", [((YES,), False), ((NO,), False), ((YES, NO), True), ((NO,), True)])
    def test_a_claim_about_many_tasks_is_not_judged_by_few(self, parts, any_of):
        found = evidence(runs("sdpo", *HIGH), runs("ppo", *LOW))
        judged = judge(Claim("X1", "", "", parts, any_of, tasks=18), found)
        assert judged.verdict == "cannot tell from these runs"
        assert judged.findings[-1].text == "the claim is about 18 tasks, and there are runs of 1"


def test_names_are_those_that_readers_know():
    assert [display_name(each) for each in ("sdpo", "pd-var", "pcpo", "sdpo-0.1")] == [
        *("SDPO", "PD-VAR", "PCPO", "SDPO α = 0.1")
    ]


@pytest.mark.parametrize("key", QUESTIONS)
def test_every_claim_of_the_paper_is_whole(key):
    question = QUESTIONS[key]
    assert question.size.keys() == {"runs of each algorithm", "problem", "batch", "length"}
    assert [claim.key for claim in question.claims] == [f"{key}{n}" for n in range(1, len(question.claims) + 1)]
    for claim in question.claims:
        assert claim.parts and claim.section and claim.text.endswith(".")
