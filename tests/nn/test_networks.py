"""Observations of every kind as columns, and the first layer against the one-hot product it stands for."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.networks import FirstLayer, Mlp, ObservationCodec, orthogonal

NESTED = spaces.Dict(
    {
        "b": spaces.Tuple((spaces.Box(-1, 1, (2, 2), np.float64), spaces.Discrete(4, start=3))),
        "a": spaces.MultiDiscrete([[2, 5], [3, 7]]),
        "c": spaces.MultiBinary(3),
    }
)


@pytest.mark.parametrize(
    "space, batch, expected, categories",
    [
        (spaces.Discrete(5), np.array([0, 4]), [[0], [4]], [5]),
        (spaces.Discrete(5, start=-2), np.array([-2, 2]), [[0], [4]], [5]),
        (spaces.MultiDiscrete([3, 4]), np.array([[0, 3], [2, 1]]), [[0, 3], [2, 1]], [3, 4]),
        (spaces.MultiDiscrete([3, 4], start=[1, -1]), np.array([[1, 2], [3, 0]]), [[0, 3], [2, 1]], [3, 4]),
        (spaces.Box(-1, 1, (2,)), np.array([[0.5, -0.5], [1, 0]]), [[0.5, -0.5], [1, 0]], []),
        (spaces.Box(0, 255, (1, 2), np.uint8), np.array([[[7, 255]], [[0, 1]]], np.uint8), [[7, 255], [0, 1]], []),
        (spaces.MultiBinary(2), np.array([[0, 1], [1, 1]], np.int8), [[0, 1], [1, 1]], []),
    ],
    ids=str,
)
def test_columns_of_plain_spaces(space, batch, expected, categories):
    codec = ObservationCodec(space)
    encoded = codec.encode(batch, 2)
    assert encoded.dtype == torch.float32 and encoded.tolist() == expected
    assert codec.categories == categories and codec.width == encoded.shape[1]


def test_nested_spaces_have_their_categories_first():
    """gymnasium orders a Dict by its keys; boxes come after all categories, whatever their place."""
    codec = ObservationCodec(NESTED)
    assert codec.categories == [2, 5, 3, 7, 4] and codec.continuous == 4 + 3
    one = {"a": np.array([[1, 4], [2, 6]]), "b": (np.array([[0.1, 0.2], [0.3, 0.4]]), 5), "c": np.array([1, 0, 1])}
    expected = [1, 4, 2, 6, 2, 0.1, 0.2, 0.3, 0.4, 1, 0, 1]
    np.testing.assert_allclose(codec.encode(one, 1)[0], expected, rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(1, 5))
def test_a_batch_is_encoded_row_by_row(seed, count):
    """As gymnasium's vector environments batch a space."""
    codec = ObservationCodec(NESTED)
    NESTED.seed(seed)
    rows = [NESTED.sample() for _ in range(count)]
    empty = gymnasium.vector.utils.create_empty_array(NESTED, count)
    batch = gymnasium.vector.utils.concatenate(NESTED, rows, empty)
    assert codec.encode(batch, count).equal(torch.cat([codec.encode(row, 1) for row in rows]))


def test_encoding_copies():
    """Vector environments may overwrite what they returned."""
    batch = np.zeros((2, 3), np.float32)
    encoded = ObservationCodec(spaces.Box(-1, 1, (3,))).encode(batch, 2)
    batch += 1
    assert not encoded.any()


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Dict({"x": spaces.Sequence(spaces.Discrete(2))})])
def test_other_spaces_are_refused(space):
    with pytest.raises(SettingsError, match="is not supported: use Box, Discrete"):
        ObservationCodec(space)


def test_first_layer_is_the_product_with_one_hot_columns():
    codec = ObservationCodec(NESTED)
    torch.manual_seed(0)
    layer = FirstLayer(codec, width=6, extra=2)
    NESTED.seed(0)
    observation = torch.cat([torch.cat([codec.encode(NESTED.sample(), 1), torch.randn(1, 2)], -1) for _ in range(9)])
    one_hot = [torch.nn.functional.one_hot(observation[:, k].long(), n).float() for k, n in enumerate(codec.categories)]
    dense = torch.cat([*one_hot, observation[:, len(codec.categories) :]], -1)
    matrix = torch.cat([*(table.weight for table in layer.tables), layer.linear.weight.T])
    torch.testing.assert_close(layer(observation), dense @ matrix + layer.linear.bias)
    torch.testing.assert_close(layer(observation.view(3, 3, -1)), layer(observation).view(3, 3, 6))


def test_states_start_nearly_alike():
    """As for a one-hot input: the more states, the smaller each row."""
    torch.manual_seed(0)
    few, many = (
        FirstLayer(ObservationCodec(spaces.Discrete(n)), 256).tables[0].weight.std().item() for n in (10, 1000)
    )
    assert few == pytest.approx(10**-0.5, rel=0.1) and many == pytest.approx(1000**-0.5, rel=0.1)


def test_mlp_shapes_and_layers():
    codec = ObservationCodec(spaces.Box(-1, 1, (3,)))
    torch.manual_seed(0)
    mlp = Mlp(codec, (8, 4), extra=2)
    observation = torch.randn(7, 5)
    hidden = torch.tanh(mlp.first(observation))
    assert mlp.features == 4
    torch.testing.assert_close(mlp(observation), torch.tanh(mlp.rest[0](hidden)))
    assert mlp(observation.view(7, 1, 5)).shape == (7, 1, 4)


def test_orthogonal_layers():
    layer = orthogonal(torch.nn.Linear(6, 4), gain=3.0)
    torch.testing.assert_close(layer.weight @ layer.weight.T, 9 * torch.eye(4), atol=1e-5, rtol=0)
    assert not layer.bias.any()
