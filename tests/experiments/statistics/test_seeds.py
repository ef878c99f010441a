"""Statistics across seeds: answers worked out by hand, and what must hold of any scores."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.experiments.statistics.seeds import (
    FEWEST,
    Violation,
    compare,
    interquartile_mean,
    mean,
    optimality_gap,
    profile,
    violations,
)

quick = settings(max_examples=40, deadline=None)
numbers = st.integers(-20, 20).map(float)
runs = st.lists(numbers, min_size=1, max_size=7)
strata = st.dictionaries(st.sampled_from("abcd"), runs, min_size=1)


def flat(scores):
    return np.array([score for stratum in scores.values() for score in stratum])


class TestInterquartileMean:
    @pytest.mark.parametrize(
        "scores, value",
        [
            ([7.0], 7.0),
            ([0.0, 1.0, 2.0, 9.0], 1.5),
            # Of five runs the second and the fourth count three quarters: (0.75 · 0 + 1 + 0.75 · 10) / 2.5.
            ([0.0, 0.0, 1.0, 10.0, 100.0], 3.4),
            # Of two each has half of its mass in the middle.
            ([0.0, 1.0], 0.5),
            ([-1000.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1000.0], 3.5),
        ],
    )
    def test_by_hand(self, scores, value):
        assert interquartile_mean({"task": scores}).value == pytest.approx(value)

    def test_strata_are_pooled(self):
        assert interquartile_mean({"a": [9.0, 1.0], "b": [2.0, 0.0]}).value == 1.5

    @quick
    @given(st.lists(numbers, min_size=1, max_size=6), st.permutations(range(24)))
    def test_of_a_multiple_of_four_it_is_the_mean_of_the_middle_half(self, quarter, order):
        values = np.array([score + shift for score in quarter for shift in (0.0, 0.5, 3.0, -7.0)])
        values = values[[place for place in order if place < len(values)]]
        middle = np.sort(values)[len(quarter) : 3 * len(quarter)]
        assert interquartile_mean({"task": values.tolist()}).value == pytest.approx(middle.mean())

    @quick
    @given(strata, st.randoms(use_true_random=False))
    def test_order_does_not_matter(self, scores, random):
        names = list(scores)
        random.shuffle(names)
        mixed = {name: random.sample(scores[name], len(scores[name])) for name in names}
        assert interquartile_mean(mixed).value == pytest.approx(interquartile_mean(scores).value)

    @quick
    @given(strata, st.integers(0, 30), st.integers(0, 10))
    def test_a_higher_score_never_lowers_it(self, scores, place, more):
        names = [(name, index) for name, found in scores.items() for index in range(len(found))]
        name, index = names[place % len(names)]
        raised = {key: list(found) for key, found in scores.items()}
        raised[name][index] += more
        before, after = interquartile_mean(scores), interquartile_mean(raised)
        assert after.value >= before.value - 1e-9
        if before.low is not None:
            assert after.low >= before.low - 1e-9 and after.high >= before.high - 1e-9

    @quick
    @given(strata, st.integers(1, 5), numbers)
    def test_units_do_not_matter(self, scores, factor, shift):
        changed = {name: [factor * score + shift for score in found] for name, found in scores.items()}
        before, after = interquartile_mean(scores), interquartile_mean(changed)
        assert after.value == pytest.approx(factor * before.value + shift)
        if before.low is not None:
            assert (after.low, after.high) == pytest.approx((factor * before.low + shift, factor * before.high + shift))

    @quick
    @given(strata)
    def test_it_and_its_interval_lie_among_the_scores(self, scores):
        found, values = interquartile_mean(scores), flat(scores)
        inside = [each for each in (found.low, found.value, found.high) if each is not None]
        assert all(values.min() - 1e-9 <= each <= values.max() + 1e-9 for each in inside)
        assert len(inside) == 1 or found.low <= found.high

    @quick
    @given(numbers, st.integers(FEWEST, 9))
    def test_of_runs_that_agree(self, value, count):
        found = interquartile_mean({"a": [value] * count, "b": [value] * count})
        assert (found.value, found.low, found.high) == pytest.approx((value, value, value))

    @quick
    @given(numbers, st.lists(st.integers(0, 20).map(float), min_size=2, max_size=6))
    def test_of_symmetric_scores_it_is_the_centre_and_inside_its_interval(self, centre, distances):
        scores = [centre + sign * distance for distance in distances for sign in (-1, 1)]
        found = interquartile_mean({"task": scores})
        assert found.value == pytest.approx(centre)
        assert found.low - 1e-9 <= centre <= found.high + 1e-9


class TestIntervals:
    def test_three_runs_by_hand(self):
        """All three draws hit the lowest run with probability 1/27, more than 2.5 %."""
        found = mean({"task": [0.0, 1.0, 2.0]})
        assert (found.value, found.low, found.high) == (1.0, 0.0, 2.0)

    def test_runs_are_drawn_within_their_stratum(self):
        """Tasks differ and their runs agree: there is nothing to be unsure of."""
        found = mean({"easy": [1.0] * 3, "hard": [0.0] * 3})
        assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)

    def test_whole_strata_are_drawn_where_each_has_one_run(self):
        found = mean({"a": [0.0], "b": [1.0], "c": [2.0]})
        assert (found.value, found.low, found.high) == (1.0, 0.0, 2.0)

    @pytest.mark.parametrize("scores", [{"a": [0.0, 1.0]}, {"a": [0.0] * 5, "b": [1.0]}, {"a": [3.0]}])
    def test_too_few_have_none(self, scores):
        assert mean(scores).low is mean(scores).high is None
        assert interquartile_mean(scores).low is None
        assert profile(scores, np.array([0.5]))[1:] == (None, None)

    def test_an_empty_stratum_is_as_if_it_were_not_there(self):
        assert interquartile_mean({"a": [0.0, 1.0, 2.0], "b": []}) == interquartile_mean({"a": [0.0, 1.0, 2.0]})

    def test_the_mean_of_many_runs_has_the_interval_that_theory_says(self):
        """Its width is 2 · 1.96 standard errors, up to the error of 2000 draws."""
        scores = np.random.default_rng(3).standard_normal(400)
        found = mean({"task": scores.tolist()})
        assert found.high - found.low == pytest.approx(2 * 1.96 * scores.std() / math.sqrt(400), rel=0.1)

    def test_the_same_runs_give_the_same_interval(self):
        scores = {"task": [0.3, 0.9, 0.1, 0.4]}
        assert interquartile_mean(scores) == interquartile_mean(scores)


class TestOptimalityGap:
    def test_what_lies_beyond_makes_up_for_nothing(self):
        assert optimality_gap({"task": [0.5, 2.0, 1.0]}).value == pytest.approx(0.5 / 3)
        assert optimality_gap({"task": [4.0, 6.0]}, optimum=5.0).value == 0.5


class TestProfile:
    def test_by_hand(self):
        share, _, _ = profile({"task": [0.0, 1.0, 2.0, 3.0]}, np.array([-1.0, 0.0, 1.5, 3.0]))
        assert share.tolist() == [1.0, 0.75, 0.5, 0.0]

    @quick
    @given(strata)
    def test_it_falls_from_one_to_nothing_and_its_band_does_too(self, scores):
        levels = np.linspace(-21, 21, 43)
        found = [each for each in profile(scores, levels) if each is not None]
        for share in found:
            assert share[0] == 1.0 and share[-1] == 0.0 and (np.diff(share) <= 1e-12).all()
        if len(found) == 3:
            assert (found[1] <= found[2]).all()

    @quick
    @given(strata)
    def test_the_area_below_it_is_the_mean(self, scores):
        values = flat(scores) + 21.0
        share, _, _ = profile({"all": values.tolist()}, np.arange(0.0, 50.0))
        assert share.sum() == pytest.approx(values.mean())  # of whole numbers the sum is the integral


class TestProbabilityOfImprovement:
    def test_by_hand(self):
        # 1 beats one of three, 2 beats one and ties with one, 3 beats two.
        found = compare("x", {"task": [1.0, 2.0, 3.0]}, "y", {"task": [0.0, 2.0, 4.0]})
        assert found.probability.value == pytest.approx(4.5 / 9) and found.pairs == 9
        assert (found.better, found.worse, found.least_chance) == ("x", "y", 1 / 20)

    def test_strata_count_alike_whatever_their_size(self):
        found = compare("x", {"a": [1.0] * 4, "b": [0.0]}, "y", {"a": [0.0] * 4, "b": [1.0]})
        assert found.probability.value == 0.5 and found.pairs == 17

    def test_only_strata_that_both_have(self):
        found = compare("x", {"a": [1.0], "b": [5.0]}, "y", {"b": [4.0], "c": [9.0]})
        assert found.probability.value == 1.0 and found.pairs == 1
        assert compare("x", {"a": [1.0]}, "y", {"b": [1.0]}) is None
        assert compare("x", {"a": [1.0]}, "y", {"a": []}) is None

    @pytest.mark.parametrize(
        "x, y, chance",
        [
            ({"a": [4.0, 5.0, 6.0]}, {"a": [1.0, 2.0, 3.0]}, 1 / math.comb(6, 3)),
            ({name: [1.0] for name in "abcde"}, {name: [0.0] for name in "abcde"}, 1 / 2**5),
            ({"a": [2.0, 3.0], "b": [2.0, 3.0]}, {"a": [0.0, 1.0], "b": [0.0, 1.0]}, 1 / math.comb(4, 2) ** 2),
        ],
    )
    def test_complete_separation_is_one_deal_of_all(self, x, y, chance):
        found = compare("x", x, "y", y)
        assert found.chance == found.least_chance == pytest.approx(chance)
        assert (found.probability.value, found.chance_below) == (1.0, 1.0)

    def test_a_tie_of_all_is_no_matter_of_chance(self):
        found = compare("x", {"a": [1.0] * 3}, "y", {"a": [1.0] * 3})
        assert (found.probability.value, found.chance, found.chance_below) == (0.5, 1.0, 1.0)

    def test_of_too_many_deals_some_are_drawn(self):
        """C(20, 10) = 184,756 ways: the observed one counts among those that are drawn."""
        low, high = [float(i) for i in range(10)], [float(i) for i in range(10, 20)]
        found = compare("x", {"a": high}, "y", {"a": low})
        assert 0 < found.chance < 1e-3 and found.least_chance == 1 / math.comb(20, 10)
        mixed = compare("x", {"a": high[::2] + low[::2]}, "y", {"a": high[1::2] + low[1::2]})
        assert 0.1 < mixed.chance < 0.9 and mixed.chance + mixed.chance_below > 1

    @quick
    @given(runs, runs, runs, runs)
    def test_both_ways_add_up_to_one(self, a, b, c, d):
        x, y = {"a": a, "b": c}, {"a": b, "b": d}
        there, back = compare("x", x, "y", y), compare("y", y, "x", x)
        assert there.probability.value + back.probability.value == pytest.approx(1.0)
        assert 0.0 <= there.probability.value <= 1.0 and there.pairs == back.pairs
        if there.pairs and math.comb(len(a) + len(b), len(a)) * math.comb(len(c) + len(d), len(c)) <= 20_000:
            assert (there.chance, there.chance_below) == pytest.approx((back.chance_below, back.chance))
            # The observed deal is in both tails.
            assert there.chance + there.chance_below >= 1.0 and min(there.chance, back.chance) > 0

    @quick
    @given(runs, runs, st.integers(0, 6), st.integers(0, 10))
    def test_a_better_run_never_lowers_it(self, ours, theirs, place, more):
        raised = list(ours)
        raised[place % len(ours)] += more
        before, after = (compare("x", {"a": each}, "y", {"a": theirs}) for each in (ours, raised))
        assert after.probability.value >= before.probability.value - 1e-9

    @quick
    @given(runs, runs)
    def test_only_the_order_of_scores_matters(self, ours, theirs):
        bent = [{"a": [math.exp(score / 5) for score in scores]} for scores in (ours, theirs)]
        plain = compare("x", {"a": ours}, "y", {"a": theirs})
        assert compare("x", bent[0], "y", bent[1]) == plain


class TestViolations:
    def test_of_one_run_by_hand(self):
        assert Violation.of([0.0, 1.0, 3.0, 0.0]) == Violation(share=0.5, depth=2.0, worst=3.0)
        assert Violation.of([0.0, 0.0]) == Violation(share=0.0, depth=0.0, worst=0.0)
        assert Violation.of([]) is None

    def test_over_runs_no_bad_run_is_trimmed(self):
        """Nine runs that never break the bound and one that always does: the mean shows it, a median would not."""
        good, bad = Violation.of([0.0] * 10), Violation.of([2.0] * 10)
        found = violations({"task": [good] * 9 + [bad]})
        assert found.share.value == pytest.approx(0.1) and found.quantiles == (0.0, 0.0, 0.0, 0.0, 1.0)
        # Depth is of those runs that went there.
        assert (found.depth, found.worst) == (2.0, 2.0)
        kept = violations({"task": [good] * 3})
        assert (kept.share.value, kept.share.high, kept.depth, kept.worst) == (0.0, 0.0, None, 0.0)
        assert violations({}) is None and violations({"task": []}) is None
