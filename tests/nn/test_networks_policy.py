"""Heads against torch.distributions, and where a policy starts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.distributions import Categorical, Independent, Normal, kl_divergence

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.heads import CASH_AT_START, UNLISTED, CategoricalHead, GaussianHead, SimplexHead
from portfolio_sdpo.nn.networks import ObservationCodec, Policy

HEADS = [CategoricalHead(4), GaussianHead(2)]
EACH = pytest.mark.parametrize("head", HEADS, ids=["categorical", "gaussian"])


def distribution(head, parameters):
    if isinstance(head, CategoricalHead):
        return Categorical(logits=parameters)
    mean, log_std = parameters.chunk(2, -1)
    return Independent(Normal(mean, log_std.exp()), 1)


def parameters(*shape, seed=0):
    return torch.randn(*shape, 4, generator=torch.Generator().manual_seed(seed))


@EACH
def test_formulas_are_those_of_torch(head):
    old, new = parameters(5, 3), parameters(5, 3, seed=1)
    action = distribution(head, old).sample()
    torch.testing.assert_close(head.log_prob(new, action), distribution(head, new).log_prob(action))
    torch.testing.assert_close(head.entropy(new), distribution(head, new).entropy())
    torch.testing.assert_close(head.kl(old, new), kl_divergence(distribution(head, old), distribution(head, new)))
    assert head.log_prob(new, action).shape == head.kl(old, new).shape == (5, 3)


@EACH
def test_kl_has_its_minimum_at_the_old_policy(head):
    old = parameters(6)
    new = old.clone().requires_grad_()
    divergence = head.kl(old, new)
    assert divergence.abs().max() < 1e-6
    (slope,) = torch.autograd.grad(divergence.sum(), new)
    assert slope.abs().max() < 1e-5
    assert (head.kl(old, parameters(6, seed=2)) > 0).all()


@EACH
def test_samples_follow_the_law(head):
    one = parameters(1)
    action = head.sample(one.expand(200_000, -1), torch.Generator().manual_seed(3))
    assert action.dtype == head.action_dtype and action.shape[1:] == head.action_shape
    if isinstance(head, CategoricalHead):
        share = torch.bincount(action, minlength=4) / len(action)
        torch.testing.assert_close(share, torch.softmax(one[0], -1), atol=0.005, rtol=0)
    else:
        mean, log_std = one[0].chunk(2, -1)
        torch.testing.assert_close(action.mean(0), mean, atol=0.03, rtol=0)
        torch.testing.assert_close(action.std(0), log_std.exp(), atol=0, rtol=0.02)
    again = head.sample(one.expand(200_000, -1), torch.Generator().manual_seed(3))
    assert again.equal(action)


@EACH
def test_mode_is_the_most_likely_action(head):
    some = parameters(50)
    mode = head.mode(some)
    for _ in range(20):
        other = distribution(head, some).sample()
        assert (head.log_prob(some, mode) >= head.log_prob(some, other)).all()


@pytest.mark.parametrize("hidden", [(), (16,), (16, 8)])
def test_starts_at_a_known_place(hidden):
    """Uniform over actions, or no motion with the deviation that was asked for."""
    codec = ObservationCodec(spaces.Dict({"state": spaces.Discrete(5), "time": spaces.Box(0, 1, (1,))}))
    observation = torch.tensor([[0.0, 0.1], [4.0, 0.9]])
    torch.manual_seed(0)
    logits = Policy(codec, spaces.Discrete(3), hidden)(observation)
    assert logits.shape == (2, 3)
    torch.testing.assert_close(torch.softmax(logits, -1), torch.full((2, 3), 1 / 3), atol=0.01, rtol=0)
    gaussian = Policy(codec, spaces.Box(-1, 1, (2,)), hidden, initial_std=0.3)(observation)
    assert gaussian.shape == (2, 4)
    assert gaussian[:, :2].abs().max() < 0.02
    torch.testing.assert_close(gaussian[:, 2:].exp(), torch.full((2, 2), 0.3))
    if not hidden:
        assert not logits.any() and not gaussian[:, :2].any()


def test_without_hidden_layers_a_discrete_state_has_a_table_of_logits():
    policy = Policy(ObservationCodec(spaces.Discrete(4)), spaces.Discrete(3), hidden=())
    (table,) = policy.parameters()
    assert table.shape == (4, 3)
    with torch.no_grad():
        table.copy_(torch.arange(12.0).view(4, 3))
    assert policy(torch.tensor([[2.0]])).tolist() == [[6.0, 7.0, 8.0]]


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))], ids=str)
def test_every_parameter_gets_a_gradient_and_acting_makes_none(space):
    codec = ObservationCodec(spaces.Dict({"state": spaces.Discrete(2), "time": spaces.Box(0, 1, (1,))}))
    policy = Policy(codec, space, hidden=(8,))
    observation = torch.tensor([[0.0, 0.5], [1.0, 0.2]])
    action, log_prob = policy.act(observation, torch.Generator().manual_seed(0))
    assert not log_prob.requires_grad
    again = policy.head.log_prob(policy(observation), action)
    torch.testing.assert_close(again, log_prob)
    again.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in policy.parameters())


@pytest.mark.parametrize(
    "space", [spaces.MultiDiscrete([2, 2]), spaces.Box(-1, 1, (2, 2)), spaces.MultiBinary(3)], ids=str
)
def test_other_action_spaces_are_refused(space):
    with pytest.raises(SettingsError, match="is not supported: use Discrete or a one-dimensional Box"):
        Policy(ObservationCodec(spaces.Discrete(2)), space, hidden=())


def test_extreme_logits_stay_finite():
    head = CategoricalHead(3)
    sure = torch.tensor([[1e4, 0.0, -1e4]])
    assert head.entropy(sure).item() == pytest.approx(0, abs=1e-6)
    assert np.isfinite(head.kl(sure, -sure).item())
    assert head.sample(sure.expand(1000, -1), torch.Generator()).eq(0).all()


class TestBoundedLogits:
    """A policy of weights whose logits have a bound: no asset is ever out of its reach."""

    def test_without_a_bound_nothing_changes(self):
        head, logits = SimplexHead(10), torch.linspace(-40, 40, 10)
        assert head.limit(logits) is logits
        start = head.to_executable(head.initial)
        assert start[0].item() == pytest.approx(CASH_AT_START) and head.initial[1:].tolist() == [0.0] * 9

    def test_it_starts_as_near_to_cash_as_the_bound_allows(self):
        roomy, tight = SimplexHead(10, bound=9.0), SimplexHead(10, bound=3.0)
        assert roomy.to_executable(roomy.limit(roomy.initial))[0].item() == pytest.approx(CASH_AT_START)
        assert tight.to_executable(tight.limit(tight.initial))[0].item() == pytest.approx(1 / (1 + 9 * math.exp(-6)))

    def test_no_weight_is_less_than_the_bound_says_but_that_of_what_is_not_listed(self):
        head = SimplexHead(5, bound=2.0)
        weights = head.to_executable(head.limit(torch.tensor([50.0, -9.0, 0.5, UNLISTED, UNLISTED + 3.0])))
        assert (weights[1] / weights[0]).item() == pytest.approx(math.exp(-4.0))
        # What is held shifts the logits of all stocks a little, also of those that are not listed.
        assert (weights[3:] < 1e-9).all()

    @pytest.mark.parametrize(
        ("pull", "passed"), [(1.0, [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]), (-1.0, [-1.0, -1.0, -1.0, -1.0, 0.0, 0.0])]
    )
    def test_a_gradient_that_leads_further_out_is_zero_and_any_other_passes_whole(self, pull, passed):
        """By hand: bound 2. A step goes against the gradient, so that a positive one leads down."""
        logits = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], requires_grad=True)
        (pull * SimplexHead(6, bound=2.0).limit(logits)).sum().backward()
        assert logits.grad.tolist() == passed

    def test_trust_regions_may_differentiate_twice(self):
        logits = torch.tensor([0.5, -0.5], dtype=torch.float64, requires_grad=True)
        squares = SimplexHead(2, bound=2.0).limit(logits).square().sum()
        (gradient,) = torch.autograd.grad(squares, logits, create_graph=True)
        gradient.sum().backward()
        assert logits.grad.tolist() == [2.0, 2.0]

    def test_other_actions_have_no_logits_to_bound(self):
        with pytest.raises(SettingsError, match="logit_bound: only weights on cash and stocks have logits"):
            Policy(ObservationCodec(spaces.Discrete(2)), spaces.Discrete(3), (), logit_bound=3.0)
