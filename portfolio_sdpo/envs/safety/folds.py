"""A robot that is nearly alike on all sides need not learn everything four times.

Point drives backwards as well as forwards and turns left as well as right, so a world and its mirror images (left for
right, ahead for behind) ask for mirrored actions. Left for right that is exact; ahead for behind it leaves out a nose
of five centimetres, which matters where things are touched and hardly where they are driven to. Each observation is
mirrored so that the goal is ahead and to the left, and the action is mirrored back: a policy learns one quarter of the
world and knows the other three.

With x, y = ±1 the signs of ahead and left: a vector turns into (x v_x, y v_y, v_z), an angular velocity into
(y w_x, x w_y, x y w_z), force and turn into (x force, x y turn). Mirroring left for right reverses the bins of a lidar;
mirroring ahead for behind does that and turns it by half a circle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

BINS = 16
"""Of a lidar, from straight ahead to the left and around."""
Part = Literal["vector", "spin", "lidar", "polar", "plain"]
"""What stands side by side in an observation: a vector and an angular velocity (3 columns), a lidar, an object's
closeness by itself and times the cosine and sine of its direction (3), anything that no mirror changes (1)."""


class Folds:
    """The four mirror images of an observation that consists of these parts."""

    def __init__(self, parts: Iterable[Part]) -> None:
        parts = list(parts)
        self._images = {(x, y): _image(parts, x, y) for x in (False, True) for y in (False, True)}

    def apply(self, observation: NDArray[np.float32], direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mirror an observation, in place, so that the goal is ahead and to the left; the signs of an action [2].

        direction: where the goal is, ahead and to the left, [2].
        """
        columns, signs, action = self._images[bool(direction[0] < 0), bool(direction[1] < 0)]
        observation[:] = observation[columns] * signs
        return action


def _image(
    parts: Iterable[Part], behind: bool, right: bool
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64]]:
    """From where each column comes, its sign, and the signs of an action; for a goal that is behind, to the right."""
    x, y = -1.0 if behind else 1.0, -1.0 if right else 1.0
    bins = np.arange(BINS)
    bins = (BINS // 2 - 1 - bins) % BINS if behind else bins
    bins = bins[::-1] if right else bins
    signs_of: dict[Part, list[float]] = {
        "vector": [x, y, 1.0],
        "spin": [y, x, x * y],
        "lidar": [1.0] * BINS,
        "polar": [1.0, x, y],
        "plain": [1.0],
    }
    columns: list[int] = []
    signs: list[float] = []
    for part in parts:
        count = len(signs_of[part])
        columns += (len(columns) + (bins if part == "lidar" else np.arange(count))).tolist()
        signs += signs_of[part]
    return np.array(columns), np.array(signs, dtype=np.float32), np.array([x, x * y])
