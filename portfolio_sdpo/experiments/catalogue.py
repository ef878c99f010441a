"""Every study by its name, without importing any of them: a family is imported when one of its studies is asked for.

A study of another package is declared in its pyproject.toml, as an instance of `Study` or a function that returns one:

    [project.entry-points."portfolio_sdpo.studies"]
    my-study = "my_package.study:MY_STUDY"
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from portfolio_sdpo.common.plugins import Plugins
from portfolio_sdpo.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from portfolio_sdpo.experiments.study import Study

FAMILIES = {
    "portfolio_sdpo.experiments.cmdp.study": (
        "cmdp-cvar",
        "cmdp-variance",
        "cmdp-cvar-binding",
        "cmdp-variance-binding",
        "cmdp-variance-critics",
        "cmdp-cvar-critics",
        "cmdp-cvar-objective",
    ),
    "portfolio_sdpo.experiments.safety.study": (
        *(
            f"safety-b-{robot}{task}{level}"
            for robot in ("point", "car", "doggo")
            for task in ("goal", "button", "push")
            for level in (1, 2)
        ),
        "safety-c",
        *(
            f"safety-b-{robot}{task}{level}-short"
            for robot in ("point", "car", "doggo")
            for task in ("goal", "button", "push")
            for level in (1, 2)
        ),
        *(f"safety-b-{task}-suite" for task in ("pointgoal1", "pointgoal2", "cargoal1", "pointbutton1")),
        "safety-c-short",
    ),
    "portfolio_sdpo.experiments.stocks.study": (
        "stocks",
        "stocks-february",
        "stocks-april",
        "stocks-500-steps",
        "stocks-2000-steps",
        "stocks-windows",
        "stocks-softmax",
    ),
}
"""Module of a family, which has a dictionary `STUDIES` → names of its studies."""
NAMES = tuple(name for names in FAMILIES.values() for name in names)
"""Names of the studies of this package."""


def _load(module: str, name: str) -> Study:
    study: Study = import_module(module).STUDIES[name]
    return study


STUDIES: Plugins[Any] = Plugins(
    "portfolio_sdpo.studies",
    {name: partial(_load, module, name) for module, names in FAMILIES.items() for name in names},
)
"""Name → a study or a function that returns one."""


def find_study(name: str) -> Study:
    """The study of that name.

    >>> find_study("safety-b-carpush2").experiment.world.task
    'CarPush2'
    """
    try:
        entry: Study | Callable[[], Study] = STUDIES[name]
    except KeyError:
        raise SettingsError(
            f"there is no experiment {name!r}{did_you_mean(name, STUDIES)}; `portfolio-sdpo experiment list` names "
            "all of them."
        ) from None
    return entry() if callable(entry) else entry


def list_studies() -> list[Study]:
    """Every study, those of other packages last; one of theirs that cannot be made is left out with a warning."""
    studies = []
    for name in STUDIES:
        try:
            studies.append(find_study(name))
        except Exception as error:
            if name in NAMES:
                raise
            warnings.warn(f"the study {name!r} of another package cannot be made: {error}.", stacklevel=2)
    return studies
