"""What critics keep of past rollouts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.rl.critics import CriticSettings, Memory


def rollout(number: int, count: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Inputs and targets of two keys that name the rollout and the transition."""
    index = torch.arange(count, dtype=torch.float32)
    inputs = torch.stack([torch.full((count,), float(number)), index], -1)
    return inputs, [inputs[:, :1] + 0.5, torch.stack([inputs[:, 0], index, -index], -1)]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=9), st.integers(1, 4))
def test_the_newest_rollouts_are_there_whole_and_no_other(sizes, rollouts):
    memory = Memory(rollouts, 4, 2, [1, 3])
    for number, count in enumerate(sizes):
        memory.add(*rollout(number, count))
    inputs, targets = memory.all()
    kept = range(max(0, len(sizes) - rollouts), len(sizes))
    expected = [rollout(number, sizes[number]) for number in kept]
    order = (inputs[:, 0] * 10 + inputs[:, 1]).argsort()
    assert inputs[order].equal(torch.cat([each for each, _ in expected]))
    for key in range(2):
        assert targets[key][order].equal(torch.cat([each[key] for _, each in expected]))


def test_again_replaces_the_newest():
    memory = Memory(3, 4, 2, [1, 3])
    memory.add(*rollout(0, 4))
    memory.add(*rollout(1, 4))
    memory.add(*rollout(2, 2), again=True)
    assert memory.all()[0][:, 0].tolist() == [0, 0, 0, 0, 2, 2]


def test_a_memory_can_be_read_into_an_empty_one():
    memory, other = Memory(3, 4, 2, [1, 3]), Memory(3, 4, 2, [1, 3])
    for number in range(4):
        memory.add(*rollout(number, 1 + number))
    other.load_state_dict(memory.state_dict())
    for each in (memory, other):
        each.add(*rollout(9, 2))
    assert memory.all()[0].equal(other.all()[0])


def test_its_size_must_be_known():
    with pytest.raises(SettingsError, match=r"CriticSettings.memory: needs `transitions`"):
        CriticSettings(kind="mean", memory=2)
