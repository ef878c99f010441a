"""The interval of the CVaR of periods: its parts by hand and against scipy, and how often it holds the truth."""

import importlib.util
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm, t

from portfolio_sdpo.backtest import Bootstrap, CvarLimit, check_promise
from portfolio_sdpo.backtest.intervals import (
    _SCALES,
    _draw_evenly,
    _interpolate,
    _log_likelihood,
    _simulate,
    _sum_periods,
    draw_true_cvars,
    find_interval,
)

CALM = np.random.default_rng(0).normal(0.0004, 0.01, 600)


def test_likelihood_is_that_of_the_recursion():
    """Of a market as volatile as the track, and of one half as volatile again; 40 sessions are no multiple of 16."""
    returns = np.random.default_rng(1).normal(size=40)
    market = persistence, shock, asymmetry, degrees = 0.97, 0.1, 0.8, 6.0
    found = _log_likelihood(returns, np.array([market]), np.array([1.0, 1.5]))
    for scale, likelihood in zip((1.0, 1.5), found[0], strict=True):
        variance, expected = 1.0, 0.0
        for move in returns:
            expected += t.logpdf(move, degrees, scale=scale * math.sqrt(variance * (degrees - 2) / degrees))
            moved = shock * (1 - asymmetry) + (2 * shock * asymmetry if move < 0 else 0.0)
            variance = 1 - persistence + moved * (move / scale) ** 2 + (persistence - shock) * variance
        assert likelihood == pytest.approx(expected)


def test_between_scales_the_likelihood_is_interpolated():
    returns, scales = np.random.default_rng(3).standard_t(6, 2000), np.array([0.8, 0.95, 1.05, 1.42, 1.9])
    markets = np.array([[0.98, 0.1, 0.3, 8.0], [0.5, 0.02, 0.9, 4.5]])
    drawn = np.array([0, 1, 1, 0, 1])
    returns /= returns.std()
    exact = _log_likelihood(returns, markets, scales)[drawn, np.arange(5)]
    found = _interpolate(_log_likelihood(returns, markets, np.array(_SCALES)), drawn, scales)
    np.testing.assert_allclose(found, exact, atol=0.3)  # of thousands
    # Beyond the scales it is that of the last one.
    beyond = _interpolate(_log_likelihood(returns, markets, np.array(_SCALES)), np.array([0]), np.array([3.0]))
    assert beyond[0] == pytest.approx(_log_likelihood(returns, markets, np.array([_SCALES[-1]]))[0, 0])


def test_weighted_values_become_equally_likely_ones():
    values, weights = np.array([5.0, 1.0, 3.0, 2.0]), np.array([0.1, 0.2, 0.0, 0.7])
    drawn = _draw_evenly(values, weights, 10)
    assert drawn.tolist() == [1.0] * 2 + [2.0] * 7 + [5.0]


def test_simulated_markets_have_unit_variance_and_cluster():
    paths = _simulate(np.tile([[0.98, 0.06, 0.3, 50.0]], (400, 1)), 1000, np.random.default_rng(2))
    assert paths.mean() == pytest.approx(0.0, abs=0.01) and paths.var() == pytest.approx(1.0, abs=0.05)
    squares = paths**2
    later = np.mean((squares[:, 20:] - 1) * (squares[:, :-20] - 1)) / squares.var()
    assert later > 0.03


def test_sums_of_periods_by_hand():
    assert _sum_periods(np.array([1.0, 2.0, 3.0, 4.0]), 3).tolist() == [6.0, 9.0]


def test_draws_scale_with_the_track_and_repeat():
    bootstrap = Bootstrap(draws=50, seed=3)
    drawn = draw_true_cvars(CALM, 0.05, 1, bootstrap)
    np.testing.assert_array_equal(drawn, draw_true_cvars(CALM.copy(), 0.05, 1, bootstrap))
    np.testing.assert_allclose(draw_true_cvars(2 * CALM, 0.05, 1, bootstrap), 2 * drawn, rtol=1e-9)
    assert not np.array_equal(drawn, draw_true_cvars(CALM, 0.05, 1, Bootstrap(draws=50, seed=4)))


def test_a_constant_track_has_no_interval():
    assert len(draw_true_cvars(np.full(400, 0.0001), 0.05, 15, Bootstrap(draws=5))) == 0
    assert all(math.isnan(edge) for edge in find_interval(np.empty(0), 0.95))
    promise = check_promise(np.full(400, 0.0001), CvarLimit(), Bootstrap(draws=5))
    assert promise.tested and promise.kept and math.isnan(promise.p_value)


def test_on_independent_days_it_is_about_as_wide_as_the_textbooks():
    """The CVaR of the normal distribution has a known variance; the interval may be wider, hardly narrower."""
    low, high = find_interval(draw_true_cvars(CALM, 0.05, 1, Bootstrap(draws=400)), 0.95)
    quantile, tail = norm.ppf(0.05), -norm.pdf(norm.ppf(0.05)) / 0.05
    second = 1 - norm.ppf(0.05) * norm.pdf(norm.ppf(0.05)) / 0.05
    variance = (second - tail**2 + 0.95 * (tail - quantile) ** 2) / 0.05
    textbook = 2 * 1.96 * 0.01 * math.sqrt(variance / len(CALM))
    assert low < 0.01 * tail < high
    assert 0.8 < (high - low) / textbook < 2.5


def test_where_volatility_clusters_it_is_far_wider():
    clusters = 0.01 * _simulate(np.array([[0.99, 0.1, 0.9, 8.0]]), 600, np.random.default_rng(5))[0]
    widths = []
    for track in (CALM / CALM.std(), clusters / clusters.std()):
        low, high = find_interval(draw_true_cvars(0.01 * track, 0.05, 5, Bootstrap(draws=200)), 0.95)
        widths.append(high - low)
    assert widths[1] > 1.5 * widths[0]


def test_it_covers_where_resampled_blocks_do_not():
    """Two years of a volatile market: intervals that hold the truth, and rejections of what is true."""
    market, rng = np.array([[0.98, 0.1, 0.9, 8.0]]), np.random.default_rng(6)
    long = _sum_periods(_simulate(np.repeat(market, 300, axis=0), 3000, rng), 5)
    truth = 0.01 * np.sort(long.ravel())[: int(0.05 * long.size)].mean()
    limit, covered, rejected = CvarLimit(bound=float(truth), horizon=5), 0, 0
    tracks = 0.01 * _simulate(np.repeat(market, 40, axis=0), 504, rng)
    for track in tracks:
        promise = check_promise(track, limit, Bootstrap(draws=100))
        covered += promise.interval[0] <= truth <= promise.interval[1]
        rejected += promise.p_value < 0.05
    assert covered >= 33 and rejected <= 6


def test_on_few_periods_nothing_is_tested_and_a_breach_is_still_said():
    promise = check_promise(CALM[:299], CvarLimit(bound=-0.2), Bootstrap(draws=20))
    assert promise.windows == 19 and not promise.tested and promise.kept
    assert math.isnan(promise.p_value) and math.isnan(promise.interval[0])
    assert check_promise(CALM[:314], CvarLimit(), Bootstrap(draws=20)).tested
    assert check_promise(CALM[:299] - 0.01, CvarLimit()).kept is False


def test_the_command_prints_a_table_and_says_what_is_not_tested(monkeypatch, capsys):
    path = Path(__file__).parents[2] / "benchmarks" / "interval_coverage.py"
    spec = importlib.util.spec_from_file_location("interval_coverage", path)
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)
    options = "--only 2 --sessions 252,300 --replications 2 --draws 20"
    monkeypatch.setattr(sys, "argv", ["interval_coverage.py", *options.split()])
    command.main()
    year, least = (line.split(" | ")[1:] for line in capsys.readouterr().out.splitlines()[2:4])
    assert year == ["252", "not tested", "not tested |"]
    assert least[0] == "300" and all(re.fullmatch(r"\d+\.0%, \d+\.0%( \|)?", cell) for cell in least[1:])
