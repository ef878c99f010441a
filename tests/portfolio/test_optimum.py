"""The convex program against a grid over all mixes."""

from __future__ import annotations

import numpy as np
import pytest

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.optimum import best_mix, measure_mix, tail_mean
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk


def scenarios(length: int, seed: int = 0) -> np.ndarray:
    """[P, L, 3]: cash, a calm and a wild stock."""
    rng = np.random.default_rng(seed)
    moves = rng.normal([0.004, 0.010], [0.02, 0.04], (300, length, 2))
    return np.concatenate([np.ones((300, length, 1)), np.exp(moves)], axis=2)


@pytest.mark.parametrize(("length", "bound"), [(1, -0.02), (1, -0.06), (5, -0.05)])
def test_no_mix_on_a_grid_is_better(length, bound):
    gross_returns = scenarios(length)
    best = best_mix(gross_returns, 0.1, bound)
    assert best.tail >= bound - 1e-6
    grid = [np.array([1 - a - b, a, b]) for a in np.linspace(0, 1, 51) for b in np.linspace(0, 1 - a, 51)]
    mixes = [measure_mix(weights, gross_returns, 0.1) for weights in grid]
    rivals = [mix.growth for mix in mixes if mix.tail >= bound]
    assert max(rivals) <= best.growth + 1e-7
    assert best.growth <= max(rivals) * 1.02


def test_it_is_what_cvxpy_finds():
    cvxpy = pytest.importorskip("cvxpy")
    gross_returns, alpha, bound = scenarios(1)[:, 0], 0.1, -0.02
    weights, level = cvxpy.Variable(3, nonneg=True), cvxpy.Variable()
    growth = 100 * cvxpy.log(gross_returns @ weights)
    tail = level - cvxpy.sum(cvxpy.pos(level - growth)) / (alpha * len(gross_returns))
    problem = cvxpy.Problem(cvxpy.Maximize(cvxpy.sum(growth)), [cvxpy.sum(weights) == 1, tail >= 100 * bound])
    problem.solve(solver="CLARABEL")
    best = best_mix(gross_returns[:, None], alpha, bound)
    assert best.growth == pytest.approx(problem.value / 100 / len(gross_returns), rel=2e-4)
    assert best.weights == pytest.approx(weights.value, abs=0.02)


def test_a_bound_that_cash_misses_is_refused():
    with pytest.raises(SettingsError, match="lower it"):
        best_mix(scenarios(1), 0.1, 0.01)


def test_the_tail_is_that_of_the_backtests():
    values = np.random.default_rng(0).normal(size=200)
    assert tail_mean(values, 0.05) == pytest.approx(float(conditional_value_at_risk(values, 0.05)))
