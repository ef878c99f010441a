"""Plain quantile regression by sorting the floats' bits: exact ranks, to the last tie, and the loss of the search."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.nn.quantiles import _plain_by_sorting, _plain_loss_and_slope

# Few values, of all magnitudes and both signs: ties are common, neighbours are one bit apart.
NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0 + 2**-23, -1.0 - 2**-23, 1e-40, -1e-40, 1e30, -1e30]),
    st.floats(-1e3, 1e3, width=32),
)


@settings(max_examples=300, deadline=None)
@given(
    pred=st.lists(NUMBERS, min_size=1, max_size=20),
    target=st.lists(NUMBERS, min_size=1, max_size=20),
    level=st.floats(0.01, 1.0),
)
def test_sorting_equals_searching(pred, target, level):
    p, t = torch.tensor([pred, pred[::-1]]), torch.tensor([target, target])
    tau = torch.full((1, len(pred)), level)
    loss, slope = _plain_by_sorting(p, tau, t)
    below = (t.unsqueeze(-2) < p.unsqueeze(-1)).sum(-1)
    assert torch.equal(slope, below - len(target) * tau.double())
    # In double precision the search is used.
    expected, _ = _plain_loss_and_slope(p.double(), tau, t.double())
    size = torch.cat([p, t], -1).abs().max().item()
    torch.testing.assert_close(loss, expected.sum(), rtol=1e-9, atol=1e-9 * max(1.0, size))
