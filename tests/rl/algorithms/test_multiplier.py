"""Dual ascent by hand: what a price does while its bound is broken, kept, or not known."""

from __future__ import annotations

import math

import pytest
import torch

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.rl.algorithms.multiplier import MultiplierSettings


def test_a_unit_of_violation_adds_the_rate():
    settings = MultiplierSettings(multiplier_rate=0.1, multiplier_start=1.0)
    first = settings.first_multipliers(3)
    assert first.tolist() == [1.0] * 3 and first.dtype == torch.float64
    assert settings.next_multipliers(first, [-2.0, 0.0, 0.5]).tolist() == pytest.approx([1.2, 1.0, 0.95])
    assert first.tolist() == [1.0] * 3  # a new tensor: the old one may be in a checkpoint


def test_it_is_projected():
    settings = MultiplierSettings(multiplier_rate=1.0, multiplier_start=0.5, multiplier_max=2.0)
    moved = settings.next_multipliers(settings.first_multipliers(2), [9.0, -9.0])
    assert moved.tolist() == [0.0, 2.0]
    assert MultiplierSettings(multiplier_start=7.0, multiplier_max=2.0).first_multipliers(1).tolist() == [2.0]


def test_it_settles_where_the_bound_is_met():
    """A risk that falls with its price, ρ(λ) = 3 − λ, under ρ ≤ 1: λ = 2."""
    settings = MultiplierSettings(multiplier_rate=0.1)
    price = settings.first_multipliers(1)
    for _ in range(200):
        price = settings.next_multipliers(price, [1.0 - (3.0 - float(price))])
    assert float(price) == pytest.approx(2.0)


def test_what_is_not_known_moves_nothing():
    """With a confidence, a single episode has a slack of −∞: a step by that would end at the largest price."""
    settings = MultiplierSettings(multiplier_start=0.3)
    assert settings.next_multipliers(settings.first_multipliers(2), [-math.inf, -1.0]).tolist() == [0.3, 0.31]


def test_no_constraints():
    settings = MultiplierSettings()
    assert settings.next_multipliers(settings.first_multipliers(0), []).tolist() == []


@pytest.mark.parametrize("field, value", [("multiplier_rate", 0), ("multiplier_start", -1), ("multiplier_max", 0)])
def test_wrong_settings_name_their_field(field, value):
    with pytest.raises(SettingsError, match=field):
        MultiplierSettings(**{field: value})
