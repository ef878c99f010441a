"""What critics keep of past rollouts: where every episode has a look of its own, those of one rollout are too few to
tell what a good place looks like from what these few places look like.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Memory(nn.Module):
    """Transitions of the last rollouts with the targets that they had then; a part of the state in checkpoints.

    Buffers have their full size from the start, so that a checkpoint of any age can be read.
    """

    inputs: Tensor
    """[rollouts, size, D]"""
    counts: Tensor
    """[rollouts] how many transitions of each are there"""
    added: Tensor
    """rollouts that were added so far; the newest is at (added − 1) modulo rollouts"""

    def __init__(self, rollouts: int, size: int, width: int, atoms: Sequence[int]) -> None:
        """size: transitions of a rollout. width: D of an observation. atoms: N of every key's targets."""
        super().__init__()
        self.register_buffer("inputs", torch.zeros(rollouts, size, width))
        for index, count in enumerate(atoms):
            self.register_buffer(f"targets_{index}", torch.zeros(rollouts, size, count))
        self.register_buffer("counts", torch.zeros(rollouts, dtype=torch.int64))
        self.register_buffer("added", torch.zeros((), dtype=torch.int64))

    def add(self, inputs: Tensor, targets: Sequence[Tensor], *, again: bool = False) -> None:
        """Keep a rollout's inputs [n, D] and every key's targets [n, N], n at most `size`, in the place of the oldest.

        again: they are the newest rollout's, which is there already, with other targets.
        """
        self.added += not again
        place = (int(self.added) - 1) % len(self.counts)
        self.counts[place] = len(inputs)
        self.inputs[place, : len(inputs)] = inputs
        for index, target in enumerate(targets):
            self.get_buffer(f"targets_{index}")[place, : len(target)] = target

    def all(self) -> tuple[Tensor, list[Tensor]]:
        """Inputs [n, D] and every key's targets [n, N] of all rollouts that are there."""
        there = torch.arange(self.inputs.shape[1]) < self.counts.unsqueeze(-1)
        targets = [values[there] for name, values in self.named_buffers() if name.startswith("targets_")]
        return self.inputs[there], targets
