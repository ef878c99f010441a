"""The fast quantile Huber loss against the pairwise one, against hand-made answers and against its own definition."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from portfolio_sdpo.errors import PortfolioSdpoError, SettingsError
from portfolio_sdpo.nn import quantiles
from portfolio_sdpo.nn.quantiles import pairwise_quantile_huber_loss, quantile_huber_loss


def loss_and_gradient(function, pred: Tensor, tau: Tensor, target: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """The loss and, undoing the mean over rows, Σ_j ∂ξ/∂p_i / M: a number in [−1, 1] for every quantile."""
    leaf = pred.clone().requires_grad_()
    loss = function(leaf, tau, target, kappa)
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), gradient * (pred.numel() / pred.shape[-1])


def assert_same(pred: Tensor, tau: Tensor, target: Tensor, kappa: float) -> None:
    fast_loss, fast_gradient = loss_and_gradient(quantile_huber_loss, pred, tau, target, kappa)
    loss, gradient = loss_and_gradient(pairwise_quantile_huber_loss, pred, tau, target, kappa)
    torch.testing.assert_close(fast_loss, loss, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(fast_gradient, gradient, rtol=1e-6, atol=1e-6)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 5),
    n=st.integers(1, 40),
    m=st.integers(1, 40),
    kappa=st.sampled_from([1e-3, 0.1, 0.3, 1.0, 7.0, 1e3, 1e8]),
    offset=st.sampled_from([0.0, -3.0, 1e4, -1e4]),
    spread=st.sampled_from([0.0, 0.01, 1.0, 50.0, 1e4]),
    ties=st.booleans(),
    shared_tau=st.booleans(),
)
def test_equals_pairwise(seed, rows, n, m, kappa, offset, spread, ties, shared_tau):
    generator = torch.Generator().manual_seed(seed)
    values = offset + spread * torch.randn(rows, n + m, generator=generator)
    if ties:
        values = values.round()
    tau = torch.rand(*(() if shared_tau else (rows,)), n, generator=generator)
    assert_same(values[:, :n], tau, values[:, n:], kappa)


@settings(max_examples=60, deadline=None)
@given(
    pred=st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=9),
    target=st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=9),
    level=st.floats(0.01, 1.0),
    kappa=st.floats(0.05, 100.0),
)
def test_equals_pairwise_on_adversarial_values(pred, target, level, kappa):
    """In double precision, where the pairwise form is exact enough to be trusted on any mixture of magnitudes."""
    p, t = torch.tensor([pred], dtype=torch.float64), torch.tensor([target], dtype=torch.float64)
    fast = loss_and_gradient(quantile_huber_loss, p, torch.tensor(level), t, kappa)
    slow = loss_and_gradient(pairwise_quantile_huber_loss, p, torch.tensor(level), t, kappa)
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-7)


@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 4),
    n=st.integers(1, 20),
    m=st.integers(1, 20),
    offset=st.sampled_from([0.0, -3.0, 1e4]),
)
def test_plain_quantile_regression_equals_pairwise(seed, rows, n, m, offset):
    """κ = 0; without ties, where every slope between −τ and 1 − τ is a right one."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(rows, n + m, generator=generator).argsort(-1)
    values = offset + 0.25 * order
    assert_same(values[:, :n], torch.rand(n, generator=generator), values[:, n:], 0.0)


@pytest.mark.parametrize("kappa", [1e-2, 1.0, 1e6])
def test_cuts_that_fall_exactly_on_targets(kappa):
    grid = kappa * torch.arange(-3.0, 4.0).expand(2, -1)
    assert_same(grid, torch.linspace(0.1, 0.9, 7), grid, kappa)


def test_zeros_of_both_signs_are_equal():
    zeros = torch.tensor([[0.0, -0.0, 0.0, -0.0]])
    for pred in (zeros, -zeros):
        assert_same(pred, torch.tensor([0.1, 0.4, 0.6, 0.9]), zeros, 1e-3)


def test_one_far_outlier_does_not_blur_the_rest():
    pred, target = torch.randn(1, 64), torch.randn(1, 64)
    target[0, 5] = -1e8
    assert_same(pred, torch.rand(64), target, 1.0)


@pytest.mark.parametrize("kappa", [0.2, 1.0, 30.0])
def test_gradient_is_the_derivative(kappa):
    generator = torch.Generator().manual_seed(3)
    pred = torch.randn(2, 3, 6, dtype=torch.float64, generator=generator, requires_grad=True)
    tau = torch.rand(6, dtype=torch.float64, generator=generator)
    target = torch.randn(2, 3, 11, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(lambda p: quantile_huber_loss(p, tau, target, kappa), pred)


@pytest.mark.parametrize("function", [quantile_huber_loss, pairwise_quantile_huber_loss])
def test_hand_computed_case(function):
    # δ = T − p:  p=0: 0.5, 3 (τ=¼);  p=1: −0.5, 2 (τ=¾), κ = 1
    # ¼·(0.125 + 2.5)/2 + (¼·0.125 + ¾·1.5)/2 = 0.328125 + 0.578125
    pred = torch.tensor([[0.0, 1.0]])
    loss, gradient = loss_and_gradient(function, pred, torch.tensor([0.25, 0.75]), torch.tensor([[0.5, 3.0]]), 1.0)
    assert loss.item() == pytest.approx(0.90625)
    # −¼·(0.5 + 1)/2;  (¼·0.5 − ¾·1)/2
    assert gradient.tolist() == [[pytest.approx(-0.1875), pytest.approx(-0.3125)]]


def test_a_batch_is_the_mean_of_its_rows_and_a_row_the_sum_of_its_quantiles():
    pred, tau, target = torch.randn(2, 3, 4), torch.rand(4), torch.randn(2, 3, 5)
    single = [
        quantile_huber_loss(pred[i, j, k, None], tau[k, None], target[i, j]) * 4
        for i in range(2)
        for j in range(3)
        for k in range(4)
    ]
    torch.testing.assert_close(quantile_huber_loss(pred, tau, target), torch.stack(single).mean())


def test_minimiser_is_the_quantile():
    """For small κ the gradient at the τ-quantile of the targets vanishes, up to the 1/M step of their distribution."""
    target = torch.randn(1, 1001, dtype=torch.float64)
    tau = torch.tensor([0.05, 0.25, 0.5, 0.9], dtype=torch.float64)
    quantile = torch.quantile(target, tau, dim=-1).T
    _, gradient = loss_and_gradient(quantile_huber_loss, quantile, tau, target, 1e-6)
    assert gradient.abs().max() <= 1 / 1001
    _, above = loss_and_gradient(quantile_huber_loss, quantile + 0.1, tau, target, 1e-6)
    _, below = loss_and_gradient(quantile_huber_loss, quantile - 0.1, tau, target, 1e-6)
    assert (above > 0).all()
    assert (below < 0).all()


def test_descent_learns_the_quantiles_of_a_known_law():
    target = -torch.log(torch.rand(1, 4000, generator=torch.Generator().manual_seed(0)))  # exponential(1)
    tau = torch.tensor([0.1, 0.5, 0.9])
    pred = torch.zeros(1, 3, requires_grad=True)
    optimiser = torch.optim.Adam([pred], lr=0.05)
    for _ in range(400):
        optimiser.zero_grad()
        quantile_huber_loss(pred, tau, target, kappa=0.01).backward()
        optimiser.step()
    torch.testing.assert_close(pred.detach()[0], -torch.log(1 - tau), atol=0.1, rtol=0)


@pytest.mark.parametrize("shape", [(), (7,), (1, 7), (3, 1), (3, 7), (2, 1, 7), (2, 3, 1), (2, 3, 7)])
def test_tau_broadcasts(shape):
    assert_same(torch.randn(2, 3, 7), torch.rand(shape), torch.randn(2, 3, 4), 1.0)


def test_row_without_batch_dimension():
    assert_same(torch.randn(5), torch.rand(5), torch.randn(9), 1.0)


def test_strided_inputs():
    assert_same(torch.randn(7, 6).T, torch.rand(7, 6).T, torch.randn(6, 10)[:, ::2], 1.0)


def test_blocks_of_rows_add_up(monkeypatch):
    pred, tau, target = torch.randn(11, 6), torch.rand(11, 6), torch.randn(11, 4)
    whole = loss_and_gradient(quantile_huber_loss, pred, tau, target, 1.0)
    monkeypatch.setattr(quantiles, "_BLOCK", 70)
    torch.testing.assert_close(loss_and_gradient(quantile_huber_loss, pred, tau, target, 1.0), whole)


def test_both_ways_to_rank_agree(monkeypatch):
    pred, tau, target = torch.randn(9, 20).round(decimals=1), torch.rand(20), torch.randn(9, 33).round(decimals=1)
    both = [loss_and_gradient(quantile_huber_loss, pred, tau, target, kappa) for kappa in (0.3, 30.0)]
    monkeypatch.setattr(quantiles, "_ranks", lambda t, p, kappa=None: quantiles._ranks_by_searching(t, p, kappa))
    for by_sorting, kappa in zip(both, (0.3, 30.0), strict=True):
        torch.testing.assert_close(by_sorting, loss_and_gradient(quantile_huber_loss, pred, tau, target, kappa))


def test_rows_within_kappa_and_rows_beyond_it_in_one_batch(monkeypatch):
    spread = torch.tensor([0.1, 0.1, 5.0, 0.1, 50.0, 1.0, 5.0]).unsqueeze(-1)
    pred, target = spread * torch.randn(7, 12), spread * torch.randn(7, 9)
    for block in (quantiles._BLOCK, 40):
        monkeypatch.setattr(quantiles, "_BLOCK", block)
        assert_same(pred, torch.rand(7, 12), target, 4.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_result_has_the_type_of_pred(dtype):
    pred = torch.randn(4, 8, dtype=dtype, requires_grad=True)
    loss = quantile_huber_loss(pred, torch.rand(8), torch.randn(4, 8))
    loss.backward()
    assert loss.dtype == dtype
    assert loss.shape == ()
    assert pred.grad is not None
    assert pred.grad.dtype == dtype


def test_target_and_tau_get_no_gradient_and_inputs_stay_untouched():
    pred, tau, target = torch.randn(3, 4, requires_grad=True), torch.rand(4), torch.randn(3, 5)
    before = target.clone()
    for function in (quantile_huber_loss, pairwise_quantile_huber_loss):
        live_tau, live_target = tau.clone().requires_grad_(), target.clone().requires_grad_()
        (2 * function(pred, live_tau, live_target)).backward()
        assert live_tau.grad is None
        assert live_target.grad is None
    assert torch.equal(target, before)


def test_incoming_gradient_scales():
    pred, tau, target = torch.randn(3, 4, requires_grad=True), torch.rand(4), torch.randn(3, 5)
    (once,) = torch.autograd.grad(quantile_huber_loss(pred, tau, target), pred)
    (thrice,) = torch.autograd.grad(3 * quantile_huber_loss(pred, tau, target), pred)
    torch.testing.assert_close(thrice, 3 * once)


def test_nan_is_not_hidden():
    pred, tau, target = torch.randn(2, 4), torch.rand(4), torch.randn(2, 5)
    spoiled = target.clone()
    spoiled[1, 2] = math.nan
    assert quantile_huber_loss(pred, tau, spoiled).isnan()
    pred[0, 1] = math.nan
    assert quantile_huber_loss(pred, tau, target).isnan()


def test_keeps_one_tensor_of_the_size_of_pred_for_backward():
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    pred = torch.randn(8, 16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        quantile_huber_loss(pred, torch.rand(16), torch.randn(8, 16))
    assert kept == [pred.numel()]


def test_memory_is_linear_in_the_number_of_quantiles():
    def allocated(n: int) -> int:
        pred, tau, target = torch.randn(16, n, requires_grad=True), torch.rand(n), torch.randn(16, n)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            quantile_huber_loss(pred, tau, target).backward()
        return sum(max(0, event.self_cpu_memory_usage) for event in record.key_averages())

    assert allocated(512) < 4.5 * allocated(128)


@pytest.mark.parametrize("function", [quantile_huber_loss, pairwise_quantile_huber_loss])
class TestErrors:
    @pytest.mark.parametrize("kappa", [-1.0, math.nan, math.inf])
    def test_kappa(self, function, kappa):
        with pytest.raises(SettingsError, match="kappa") as caught:
            function(torch.zeros(2, 3), torch.rand(3), torch.zeros(2, 3), kappa)
        assert isinstance(caught.value, PortfolioSdpoError)

    def test_batch_dimensions_differ(self, function):
        with pytest.raises(ValueError, match=r"pred and target must agree.*\[2, 3\] and \[4, 3\]"):
            function(torch.zeros(2, 3), torch.rand(3), torch.zeros(4, 3))

    @pytest.mark.parametrize("shape", [(4,), (3, 3), (1, 2, 3)])
    def test_tau_does_not_fit(self, function, shape):
        with pytest.raises(ValueError, match="tau of shape"):
            function(torch.zeros(2, 3), torch.rand(shape), torch.zeros(2, 3))

    @pytest.mark.parametrize("target", [torch.zeros(2, 0), torch.tensor(1.0), torch.zeros(2, 3, dtype=torch.int64)])
    def test_target_is_empty_or_no_number(self, function, target):
        with pytest.raises(ValueError, match="target"):
            function(torch.zeros(2, 3), torch.rand(3), target)
