"""Safety-Gymnasium 1.0.0 beside current MuJoCo, gymnasium and NumPy: everything that has to be worked around.

The suite pins gymnasium 0.28.1 and numpy < 1.24, so it is installed without its dependencies (`make setup` does it):

    pip install -c constraints.txt -e '.[safety]'
    pip install --no-deps safety-gymnasium==1.0.0

and used through its `Builder`, which needs seven things from here:

1. The package's `__init__` registers everything with a gymnasium that no longer has those hooks, and imports pygame.
   An empty package of that name is put in its place, so that only the modules that are asked for run.
2. Colours are arrays and the defaults of dataclass fields, which Python 3.11 takes only if they are hashable.
3. `float(array of one element)`: NumPy 2.4 refuses it (joint angles of Car and Doggo).
4. `model.jnt(array of one element)`: MuJoCo's bindings want an integer there (Doggo).
5. The space of joint angles is cast from float64's infinity to float32, with a warning.
6. Every reset compiles the model again, and nearly all of its 400 ms go into textures that nobody sees: unless
   a picture is asked for, textures and materials are taken out of the model before it is compiled. What is left is
   reading the same table of assets again, which is kept, and, in Button, placing objects, whose distances are computed
   in plain numbers here: half a second becomes 10 to 40 ms. The same numbers are drawn, the same layouts come out.
7. MuJoCo writes its warnings, of an unstable simulation for instance, to a file in the current directory; they go to
   Python's logging instead, unless the user has set a handler.

This file can go when a release of the suite runs on gymnasium 1.x; 6 and 7 would stay.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import math
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from portfolio_sdpo.errors import MissingExtraError

if TYPE_CHECKING:
    from mujoco import MjModel

PACKAGE = "safety_gymnasium"
MARGIN = 0.5
"""By how much the area of added vases is wider than the task's, on each side."""
INSTALL = "pip install 'portfolio_sdpo[safety]' && pip install --no-deps safety-gymnasium==1.0.0"


class _Suite(types.SimpleNamespace):
    """The parts of the suite that are used here."""

    Builder: Any
    ResamplingError: type[Exception]
    Vases: Any
    textures: bool
    """Whether models are compiled with them."""


def build(robot: str, task: str, vases: int = 0) -> Any:
    """The suite's environment of a robot and a task, for instance `Point` and `Goal1`, with so many vases added.

    Added vases count in no cost of the suite's.
    """
    suite = load()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "overflow encountered in cast", RuntimeWarning)
        builder = suite.Builder(task_id=f"Safety{robot}{task}-v0", config={"agent_name": robot})
        if vases:
            _add_vases(builder.task, suite.Vases(num=vases, is_constrained=False))
    return builder


def _add_vases(task: Any, vases: Any) -> None:
    """Add vases around and between what is there, which is placed first and as without them.

    Between what a gremlin or a goal keeps free there is room for one or two: hence the wider area.
    """
    left, bottom, right, top = task.placements_conf.extents
    vases.placements = [(left - MARGIN, bottom - MARGIN, right + MARGIN, top + MARGIN)]
    task._add_free_geoms(vases)
    task.build_observation_space()
    task._build_placements_dict()
    settings = task.placements_conf
    settings.placements = dict(sorted(settings.placements.items(), key=lambda item: item[0].startswith("vase")))
    task.random_generator.set_placements_info(settings.placements, settings.extents, settings.margin)


@contextmanager
def textures(wanted: bool) -> Iterator[None]:
    """Models compiled inside have textures, or not."""
    suite = load()
    before, suite.textures = suite.textures, wanted
    try:
        yield
    finally:
        suite.textures = before


@cache
def load() -> _Suite:
    """Import the suite, patched."""
    _put_empty_package()
    try:
        import mujoco
        import xmltodict
        from safety_gymnasium.assets import color
        from safety_gymnasium.bases import base_agent

        for name, colour in color.COLOR.items():
            color.COLOR[name] = np.asarray(colour, dtype=np.float64).view(_Colour)
        from safety_gymnasium import world
        from safety_gymnasium.assets.free_geoms import Vases
        from safety_gymnasium.builder import Builder
        from safety_gymnasium.utils import random_generator
        from safety_gymnasium.utils.common_utils import ResamplingError
    except ImportError as error:
        raise MissingExtraError(f"Safety Gym needs {error.name}: {INSTALL}.") from None
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log)
    suite = _Suite(Builder=Builder, ResamplingError=ResamplingError, Vases=Vases, textures=False)
    base_agent.float = _only
    base_agent.BaseAgent._init_jnt_sensors = _with_integers(base_agent.BaseAgent._init_jnt_sensors)

    def unparse(xml: dict[str, Any]) -> str:
        if not suite.textures:
            _strip(xml["mujoco"])
        return str(xmltodict.unparse(xml))

    world.xmltodict = types.SimpleNamespace(parse=xmltodict.parse, unparse=unparse)
    assets = cache(lambda content: world_yaml.load(content, Loader=world_yaml.CSafeLoader))
    world_yaml = world.yaml
    world.yaml = types.SimpleNamespace(
        load=lambda file, Loader: copy.deepcopy(assets(file.read())), FullLoader=world_yaml.FullLoader
    )
    random_generator.RandomGenerator.sample_layout = _sample_layout
    return suite


def _log(message: str) -> None:
    """Instead of MuJoCo's own file MUJOCO_LOG.TXT in the current directory."""
    logging.getLogger(__name__).info("%s", message)


def _put_empty_package() -> None:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        raise MissingExtraError(f"Safety Gym needs {PACKAGE}: {INSTALL}.")
    if PACKAGE not in sys.modules:
        package = types.ModuleType(PACKAGE)
        package.__path__ = list(spec.submodule_search_locations or ())
        package.__file__ = spec.origin
        package.__spec__ = spec
        sys.modules[PACKAGE] = package


class _Colour(np.ndarray):
    """An array that may be the default of a dataclass field."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def _only(value: Any) -> float:
    """The number in an array of one element."""
    return float(np.asarray(value).item())


def _with_integers(initialise: Any) -> Any:
    """Let a method of the suite's agents see a model whose joints can be asked for by arrays of one integer."""

    def initialise_with_integers(agent: Any) -> None:
        model = agent.engine.model
        agent.engine.model = _Model(model)
        try:
            initialise(agent)
        finally:
            agent.engine.model = model

    return initialise_with_integers


class _Model:
    def __init__(self, model: MjModel) -> None:
        self._model = model

    def jnt(self, index: Any) -> Any:
        return self._model.jnt(int(np.asarray(index).item()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _sample_layout(generator: Any) -> bool:
    """The suite's `RandomGenerator.sample_layout`: place one object after the other, at most 100 tries for each."""
    placed: list[tuple[float, float, float]] = []
    layout: dict[str, Any] = {}
    draw, margin = generator.random_generator.random_sample, generator.placements_margin
    for name, (areas, keepout) in generator.placements.items():
        (area,) = areas or (generator.placements_extents,)
        left, bottom, right, top = generator.constrain_placement(area, keepout)
        width, height = right - left, top - bottom
        # The suite's order of operations everywhere, so that the last digit is the same.
        others = [(x, y, other + margin + keepout) for x, y, other in placed]
        for _ in range(100):
            x, y = left + width * draw(), bottom + height * draw()
            if _free(x, y, others):
                break
        else:
            return False
        placed.append((x, y, keepout))
        layout[name] = np.array([x, y])
    generator.layout = layout
    return True


def _free(x: float, y: float, others: list[tuple[float, float, float]]) -> bool:
    """Whether a place is as far from all others as they ask."""
    for a, b, limit in others:  # noqa: SIM110 — all() would take twice as long
        if math.sqrt((x - a) * (x - a) + (y - b) * (y - b)) < limit:
            return False
    return True


def _strip(node: Any) -> None:
    """Take textures, materials and whatever names one out of a parsed model."""
    if isinstance(node, list):
        for item in node:
            _strip(item)
    elif isinstance(node, dict):
        for name in ("texture", "material", "@material"):
            node.pop(name, None)
        for item in node.values():
            _strip(item)
