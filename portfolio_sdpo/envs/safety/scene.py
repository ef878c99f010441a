"""What a robot sees and touches in one of the suite's worlds, in arrays, and the mirror images of what it sees.

The suite asks MuJoCo for every object by name and computes its lidar object by object, which takes three quarters of
a step. Here indices are looked up once per reset and everything is computed at once; tests hold it against the suite.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

KINDS = ("vases", "buttons", "gremlins", "pillars")
"""What can be touched, each of them a signal."""
_ROBOT = 1000
_STRIDE = 100
"""Geom code of object i of kind k: (k + 1) · stride + i; the sum of a contact's codes says what touched what."""
_UNSTABLE = [int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{what}")) for what in ("QPOS", "QVEL", "QACC")]
"""Warnings after which MuJoCo puts everything back to where it was compiled."""
UNITS = {"accelerometer": 10.0, "gyro": 3.0, "jointvel": 3.0, "ballangvel": 3.0}
"""By which sensors are divided, from the start of their name: networks want numbers near one."""
LIMIT = 1e6
"""What a sensor can read at most; only a crash in the making gets there."""


BINS = 16
"""Of a lidar, from straight ahead to the left and around."""
Part = Literal["vector", "spin", "lidar", "polar", "plain"]
"""What stands side by side in an observation: a vector and an angular velocity (3 columns), a lidar, an object's
closeness by itself and times the cosine and sine of its direction (3), anything that no mirror changes (1)."""


class Scene:
    """Indices into one compiled model; rebuilt after every reset."""

    def __init__(self, task: Any, scaled: bool) -> None:
        self.model, self.data = task.model, task.data
        self.robot = self.model.body("agent").id
        self.goal = self.model.body("goal").id
        self.box = self.model.body("push_box").id if hasattr(task, "push_box") else None
        self._index_objects(task)
        self._index_sensors(task, scaled)
        self._index_geoms(task)

    def _index_objects(self, task: Any) -> None:
        """Where the objects are that the lidar sees, and the hazards."""
        bodies: list[int] = []
        rows: list[int] = []
        self.lidars: list[str] = []
        for obstacle in task._obstacles:
            if not obstacle.is_lidar_observed:
                continue
            found = self._bodies(obstacle)
            bodies += found
            rows += [len(self.lidars)] * len(found)
            self.lidars.append(obstacle.name)
        self._seen = np.array(bodies)
        self._bins = int(task.lidar_conf.num_bins)
        self.reach = float(task.lidar_conf.max_dist)
        self._offset = np.array(rows) * self._bins
        self._of_kind = np.array(rows) == np.arange(len(self.lidars))[:, None]
        hazards = getattr(task, "hazards", None)
        self._hazards = np.array(self._bodies(hazards)) if hazards is not None else np.array([], dtype=int)
        self._radius = float(hazards.size) if hazards is not None else 0.0
        vases: Any = getattr(task, "vases", None)
        moved = self._bodies(vases) if vases is not None and vases.is_constrained else []
        # A body on a free joint moves with the joint's first three velocities.
        dofs = [self.model.body_dofadr[body] for body in moved]
        self._vase_dofs = np.array(dofs, dtype=int)[:, None] + np.arange(3) if dofs else None
        self._vase_speed = float(vases.velocity_threshold) if dofs else 0.0
        gremlins = getattr(task, "gremlins", None)
        self._mocaps = np.array(
            [self.model.body_mocapid[self.model.body(f"gremlin{i}mocap").id] for i in range(gremlins.num)]
            if gremlins is not None
            else [],
            dtype=int,
        )
        self._travel = (float(gremlins.travel), float(gremlins.size)) if gremlins is not None else (0.0, 0.0)

    def _bodies(self, obstacle: Any) -> list[int]:
        """Bodies of an object or of all objects of a kind."""
        if not hasattr(obstacle, "num"):
            return [self.model.body(obstacle.name).id]
        suffix = "obj" if obstacle.name == "gremlins" else ""
        return [self.model.body(f"{obstacle.name[:-1]}{i}{suffix}").id for i in range(obstacle.num)]

    def _index_sensors(self, task: Any, scaled: bool) -> None:
        """Plain sensors first, then joint angles as sine and cosine, then orientations as matrices: as the suite."""
        info, model = task.agent.sensor_info, self.model
        plain: list[int] = []
        units: list[float] = []

        def add(name: str, skip: int = 0) -> None:
            sensor = model.sensor(name).id
            first, count = int(model.sensor_adr[sensor]), int(model.sensor_dim[sensor])
            plain.extend(range(first + skip, first + count))
            unit = next((value for start, value in UNITS.items() if name.startswith(start)), 1.0)
            units.extend([1.0 / unit if scaled else 1.0] * (count - skip))

        for name in (*task.agent.sensor_conf.sensors, *info.hinge_vel_names, *info.ballangvel_names):
            add(name)
        if info.freejoint_pos_name:
            add(info.freejoint_pos_name, skip=2)
        if info.freejoint_qvel_name:
            add(info.freejoint_qvel_name)
        self._plain, self._units = np.array(plain), np.array(units)
        self._angles = np.array([model.sensor_adr[model.sensor(name).id] for name in info.hinge_pos_names], dtype=int)
        self._quaternions = [int(model.sensor_adr[model.sensor(name).id]) for name in info.ballquat_names]

    def _index_geoms(self, task: Any) -> None:
        robot = set(task.agent.body_info.geom_names)
        codes = np.zeros(self.model.ngeom, dtype=np.int64)
        for geom in range(self.model.ngeom):
            name = self.model.geom(geom).name
            if name in robot:
                codes[geom] = _ROBOT
                continue
            for kind, word in enumerate(KINDS):
                if name.startswith(word[:-1]):
                    codes[geom] = (kind + 1) * _STRIDE + int("".join(filter(str.isdigit, name)))
        self._codes = codes

    def strength(self) -> Array:
        """The control at which each motor has its full force, at most 1; a servo, which aims at a speed, takes all."""
        model = self.model
        limited = model.actuator_forcelimited.astype(bool) & (model.actuator_biasprm == 0).all(1)
        full = model.actuator_forcerange[:, 1] / model.actuator_gainprm[:, 0]
        return np.minimum(np.where(limited, full, 1.0), 1.0)

    def advance(self, frames: int) -> None:
        """So many steps of the physics; gremlins are led along their circles."""
        model, data = self.model, self.data
        if len(self._mocaps) == 0:
            mujoco.mj_step(model, data, frames)
        else:
            travel, height = self._travel
            for _ in range(frames):
                phase = data.time
                data.mocap_pos[self._mocaps] = (travel * np.sin(phase), travel * np.cos(phase), height)
                mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)

    @property
    def is_stable(self) -> bool:
        """Whether the physics has not blown up since the reset."""
        return not self.data.warning.number[_UNSTABLE].any()

    def contacts(self) -> dict[str, set[int]]:
        """Which objects of each kind are in contact with the robot."""
        pairs = self.data.contact.geom
        codes = self._codes[pairs[:, 0]] + self._codes[pairs[:, 1]]
        found: dict[str, set[int]] = {}
        for code in codes[(codes > _ROBOT) & (codes < 2 * _ROBOT)].tolist():
            kind, number = divmod(code - _ROBOT, _STRIDE)
            found.setdefault(KINDS[kind - 1], set()).add(number)
        return found

    def in_hazard(self) -> bool:
        """Whether the robot is inside a hazard."""
        if len(self._hazards) == 0:
            return False
        away = self.data.xpos[self._hazards, :2] - self.data.xpos[self.robot, :2]
        return bool((np.sqrt((away * away).sum(1)) < self._radius).any())

    def vases_move(self) -> bool:
        """Whether a vase that the suite counts is moving."""
        if self._vase_dofs is None:
            return False
        velocity = self.data.qvel[self._vase_dofs]
        return bool((np.sqrt((velocity * velocity).sum(1)) >= self._vase_speed).any())

    def direction(self) -> Array:
        """Where the goal is, seen by the robot, [2]: ahead, to the left."""
        away = self.data.xpos[self.goal] - self.data.xpos[self.robot]
        return (away @ self.data.xmat[self.robot].reshape(3, 3))[:2]

    def observe(self, out: Array, hidden: str | None = None) -> None:
        """Sensors and lidars into `out`; the lidar of the kind `hidden` reads zero."""
        data = self.data
        sensors = data.sensordata
        at = len(self._plain)
        np.clip(sensors[self._plain] * self._units, -LIMIT, LIMIT, out=out[:at])
        if len(self._angles):
            angles, end = sensors[self._angles], at + 2 * len(self._angles)
            out[at:end:2], out[at + 1 : end : 2] = np.sin(angles), np.cos(angles)
            at = end
        for first in self._quaternions:
            mujoco.mju_quat2Mat(out[at : at + 9], sensors[first : first + 4])
            at += 9
        self._lidar(out[at:])
        if hidden is not None:
            row = at + self.lidars.index(hidden) * self._bins
            out[row : row + self._bins] = 0.0

    def nearest(self, hidden: str | None = None) -> tuple[Array, Array]:
        """Closeness [kinds, 1] and direction [kinds, 2], cosine and sine, of the nearest object of each kind.

        To be asked after `observe`. Beyond the lidar's reach, and of the kind `hidden`, the closeness is zero.
        """
        away = np.where(self._of_kind, self._away, np.inf)
        chosen = away.argmin(1)
        distance = self._away[chosen, None]
        close = np.maximum(0.0, self.reach - distance) / self.reach
        if hidden is not None:
            close[self.lidars.index(hidden)] = 0.0
        return close, self._ego[chosen] / np.maximum(distance, 1e-9)

    def _lidar(self, out: Array) -> None:
        """Closeness of the nearest object of each kind in each direction; between two bins both see it a little."""
        data = self.data
        world = data.xpos[self._seen]
        world[:, 2] = 0.0
        ego = (world - data.xpos[self.robot]) @ data.xmat[self.robot].reshape(3, 3)
        x, y = ego[:, 0], ego[:, 1]
        self._ego, self._away = ego[:, :2], np.hypot(x, y)
        close = np.maximum(0.0, self.reach - self._away) / self.reach
        angle = np.arctan2(y, x) % (2 * np.pi) / (2 * np.pi / self._bins)
        # The remainder of a tiny negative angle rounds up to the whole circle.
        where = np.minimum(angle.astype(np.int64), self._bins - 1)
        share = angle - where
        out[:] = 0.0
        np.maximum.at(out, self._offset + where, close)
        np.maximum.at(out, self._offset + (where + 1) % self._bins, share * close)
        np.maximum.at(out, self._offset + (where - 1) % self._bins, (1 - share) * close)


class Folds:
    """The four mirror images of an observation that consists of these parts.

    A robot that is nearly alike on all sides need not learn everything four times. Point drives backwards as well as
    forwards and turns left as well as right, so a world and its mirror images (left for right, ahead for behind) ask
    for mirrored actions. Left for right that is exact; ahead for behind it leaves out a nose of five centimetres, which
    matters where things are touched and hardly where they are driven to. Each observation is mirrored so that the goal
    is ahead and to the left, and the action is mirrored back: a policy learns one quarter of the world and knows the
    other three.

    With x, y = ±1 the signs of ahead and left: a vector turns into (x v_x, y v_y, v_z), an angular velocity into
    (y w_x, x w_y, x y w_z), force and turn into (x force, x y turn). Mirroring left for right reverses the bins of a
    lidar; mirroring ahead for behind does that and turns it by half a circle.
    """

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
