"""The algorithms by name; each file holds what makes it that algorithm.

An algorithm of another package becomes known by `ALGORITHMS.register("reinforce", Reinforce)`, or, without an import,
by an entry point of the group `portfolio_sdpo.algorithms` whose name is the `kind` of its settings:

    [project.entry-points."portfolio_sdpo.algorithms"]
    reinforce = "my_package.reinforce:Reinforce"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from gymnasium import spaces
from pydantic import BeforeValidator, SerializeAsAny

from portfolio_sdpo.common.plugins import Plugins
from portfolio_sdpo.errors import did_you_mean
from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.rl.algorithms.ascent import ActorSettings
from portfolio_sdpo.rl.algorithms.backup import BackupSettings
from portfolio_sdpo.rl.algorithms.base import Algorithm, AlgorithmSettings, Problem
from portfolio_sdpo.rl.algorithms.cpo import Cpo, CpoSettings
from portfolio_sdpo.rl.algorithms.ipo import Ipo, IpoSettings
from portfolio_sdpo.rl.algorithms.pcpo import Pcpo, PcpoSettings
from portfolio_sdpo.rl.algorithms.pd_cvar import PdCvar, PdCvarSettings
from portfolio_sdpo.rl.algorithms.pd_sdpo import PdSdpo, PdSdpoSettings
from portfolio_sdpo.rl.algorithms.pd_var import PdVar, PdVarSettings
from portfolio_sdpo.rl.algorithms.ppo import Ppo, PpoSettings
from portfolio_sdpo.rl.algorithms.ppo_lagrangian import PpoLagrangian, PpoLagrangianSettings
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo, SdpoSettings
from portfolio_sdpo.settings import Choices

ALGORITHMS: Plugins[type[Algorithm]] = Plugins(
    "portfolio_sdpo.algorithms",
    {
        "ppo": Ppo,
        "ipo": Ipo,
        "sdpo": Sdpo,
        "cpo": Cpo,
        "pcpo": Pcpo,
        "pd-cvar": PdCvar,
        "pd-var": PdVar,
        "pd-sdpo": PdSdpo,
        "ppo-lagrangian": PpoLagrangian,
    },
)
"""Kind → class, of this package and of others."""


def resolve_settings(data: Any) -> Any:
    """Settings of an algorithm, or the table of them read from a file, as the settings that its `kind` stands for.

    >>> resolve_settings({"kind": "ppo", "clip": 0.1}).clip
    0.1
    """
    if isinstance(data, AlgorithmSettings):
        return data
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
        raise ValueError("must be the settings of an algorithm, or a table of them with its kind")
    kind = data["kind"]
    if kind not in ALGORITHMS:
        hint = did_you_mean(kind, ALGORITHMS)
        raise ValueError(f"there is no algorithm of the kind {kind!r}{hint}; there are {', '.join(ALGORITHMS)}")
    # Pydantic's own validator, so that a complaint keeps its path: TrainSettings.algorithm.clip.
    return ALGORITHMS[kind].settings_type.__pydantic_validator__.validate_python(dict(data))


def settings_types() -> list[type[AlgorithmSettings]]:
    """The settings of every algorithm that is known."""
    return [algorithm.settings_type for algorithm in ALGORITHMS.values()]


AnySettings = Annotated[SerializeAsAny[AlgorithmSettings], BeforeValidator(resolve_settings), Choices(settings_types)]
"""Type of a settings field that holds the settings of any algorithm, another package's too, told apart by `kind`."""


def build(
    settings: AlgorithmSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
) -> Algorithm:
    """The algorithm that these settings describe, with freshly initialised networks."""
    algorithm: Any = ALGORITHMS[settings.kind]
    built: Algorithm = algorithm(settings, problem, codec, action_space)
    return built


__all__ = [
    "ALGORITHMS",
    "ActorSettings",
    "Algorithm",
    "AlgorithmSettings",
    "AnySettings",
    "BackupSettings",
    "CpoSettings",
    "IpoSettings",
    "PcpoSettings",
    "PdCvarSettings",
    "PdSdpoSettings",
    "PdVarSettings",
    "PpoLagrangianSettings",
    "PpoSettings",
    "Problem",
    "SdpoSettings",
    "build",
    "resolve_settings",
    "settings_types",
]
