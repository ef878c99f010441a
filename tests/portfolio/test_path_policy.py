"""Allocation policies: safe at the start, causal, on the simplex."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.portfolio.path_policy import Allocation


def paths(seed: int, count: int = 3, length: int = 6, assets: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    gross_returns = (0.05 * torch.randn(count, length, assets, generator=generator)).exp()
    listed = torch.rand(count, length, assets, generator=generator) < 0.8
    listed[..., 0] = True
    return torch.where(listed, gross_returns, 1.0), listed


@given(st.integers(0, 2**31), st.integers(2, 60))
@settings(max_examples=20, deadline=None)
def test_starts_all_in_cash_whatever_the_prices(seed, assets):
    torch.manual_seed(seed)
    weights = Allocation(assets, (8, 8))(*paths(seed, assets=assets))
    assert weights[..., 0].min() >= 0.999


def test_weights_are_on_the_simplex_and_only_on_what_is_listed():
    torch.manual_seed(0)
    policy = Allocation(4, (8, 8))
    torch.nn.init.normal_(policy.output.weight, std=3.0)
    torch.nn.init.zeros_(policy.output.bias)
    gross_returns, listed = paths(1)
    weights = policy(gross_returns, listed)
    assert (weights >= 0).all() and (weights[~listed] == 0).all()
    assert weights.sum(-1).allclose(torch.ones(3, 6))


@pytest.mark.parametrize("row", range(5))
def test_later_rows_change_nothing_before_them(row):
    torch.manual_seed(0)
    policy = Allocation(4, (8, 8))
    torch.nn.init.normal_(policy.output.weight)
    gross_returns, listed = paths(2)
    altered = gross_returns.clone()
    altered[:, row + 1 :] *= 1.1
    before, after = policy(gross_returns, listed), policy(altered, listed)
    assert before[:, : row + 1].equal(after[:, : row + 1]) and not before[:, row + 1].equal(after[:, row + 1])


def test_held_weights_matter_only_to_a_policy_that_sees_them():
    logits, held = torch.randn(2, 4), torch.tensor([[0.1, 0.2, 0.3, 0.4]]).expand(2, 4)
    blind, seeing = Allocation(4, (8, 8)), Allocation(4, (8, 8), sees_held=True)
    torch.nn.init.normal_(seeing.from_held.weight)
    assert blind.weights(logits, held).equal(blind.weights(logits))
    assert not seeing.weights(logits, held).allclose(seeing.weights(logits))
