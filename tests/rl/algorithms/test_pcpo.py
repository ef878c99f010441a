"""PCPO's projection; what it shares with CPO is tested there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.rl.algorithms.pcpo import PcpoSettings, project
from portfolio_sdpo.rl.algorithms.trust_region import LocalModel, nearest_multipliers


def model(h, g, b, c, delta=0.5):
    h, g, b, c = (torch.tensor(values, dtype=torch.float64) for values in (h, g, b, c))
    inverse = torch.linalg.inv(h)
    return LocalModel(g, b, c, inverse @ g, b @ inverse, delta)


def test_known_answer_in_both_distances():
    """H = diag(1, 4), g = (1, 0), δ = ½: the reward step is (1, 0). Onto x + 2y ≤ 0 the nearest point in the norm of H
    is (½, −¼) (L⁻¹b = (1, ½), multiplier ½), and in the plain norm (4/5, −2/5)."""
    local = model([[1.0, 0.0], [0.0, 4.0]], [1.0, 0.0], [[1.0, 2.0]], [0.0])
    assert project(local, "kl").step.tolist() == pytest.approx([0.5, -0.25])
    assert project(local, "l2").step.tolist() == pytest.approx([0.8, -0.4])
    assert float(project(local, "kl").prices) == pytest.approx(0.5)


def test_no_projection_inside_the_constraints():
    local = model([[1.0, 0.0], [0.0, 4.0]], [1.0, 0.0], [[1.0, 2.0]], [-1.5])
    for distance in ("kl", "l2"):
        assert project(local, distance).step.tolist() == pytest.approx([1.0, 0.0])
        assert float(project(local, distance).prices) == 0


@pytest.mark.parametrize("distance", ["kl", "l2"])
@pytest.mark.parametrize("constraints", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_is_the_nearest_point_that_a_general_solver_finds(distance, constraints, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, 4))
    h = root @ root.T + 0.2 * np.eye(4)
    g, b, c = rng.normal(size=4), rng.normal(size=(constraints, 4)), 0.3 * rng.normal(size=constraints)
    metric = h if distance == "kl" else np.eye(4)
    half = np.sqrt(2 * 0.1 / (g @ np.linalg.solve(h, g))) * np.linalg.solve(h, g)
    found = minimize(
        lambda x: 0.5 * (x - half) @ metric @ (x - half),
        half,
        jac=lambda x: metric @ (x - half),
        constraints=[{"type": "ineq", "fun": lambda x: -(c + b @ x), "jac": lambda x: -b}],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    step = project(model(h, g, b, c, delta=0.1), distance).step
    np.testing.assert_allclose(step.numpy(), found.x, atol=1e-5)


def test_constraints_that_exclude_each_other_leave_the_worst():
    local = model(np.eye(2), [0.0, 1.0], [[1.0, 0.0], [-1.0, 0.0]], [2.0, 1.0])
    assert nearest_multipliers(local.s, local.c) is None
    assert project(local, "kl").step.tolist() == pytest.approx([-2.0, 1.0])


def test_settings_name_the_field():
    with pytest.raises(SettingsError, match="projection"):
        PcpoSettings(projection="euclid")
