"""The algorithms by name; each file holds only what makes it that algorithm."""

from __future__ import annotations

from typing import Annotated, Any

from gymnasium import spaces
from pydantic import Field

from portfolio_sdpo.nn.trunk import ObservationCodec
from portfolio_sdpo.rl.algorithms.base import ActorSettings, Algorithm, AlgorithmSettings, Problem
from portfolio_sdpo.rl.algorithms.cpo import Cpo, CpoSettings
from portfolio_sdpo.rl.algorithms.ipo import Ipo, IpoSettings
from portfolio_sdpo.rl.algorithms.pcpo import Pcpo, PcpoSettings
from portfolio_sdpo.rl.algorithms.pd_cvar import PdCvar, PdCvarSettings
from portfolio_sdpo.rl.algorithms.pd_sdpo import PdSdpo, PdSdpoSettings
from portfolio_sdpo.rl.algorithms.pd_var import PdVar, PdVarSettings
from portfolio_sdpo.rl.algorithms.ppo import Ppo, PpoSettings
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo, SdpoSettings

AnySettings = Annotated[
    PpoSettings
    | IpoSettings
    | SdpoSettings
    | CpoSettings
    | PcpoSettings
    | PdCvarSettings
    | PdVarSettings
    | PdSdpoSettings,
    Field(discriminator="kind"),
]
"""Settings of any algorithm, told apart by `kind`."""

ALGORITHMS: dict[str, Any] = {
    "ppo": Ppo,
    "ipo": Ipo,
    "sdpo": Sdpo,
    "cpo": Cpo,
    "pcpo": Pcpo,
    "pd-cvar": PdCvar,
    "pd-var": PdVar,
    "pd-sdpo": PdSdpo,
}
"""Kind → class."""


def build(
    settings: AlgorithmSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
) -> Algorithm:
    """The algorithm that these settings describe, with freshly initialised networks."""
    algorithm: Algorithm = ALGORITHMS[settings.kind](settings, problem, codec, action_space)
    return algorithm


__all__ = [
    "ALGORITHMS",
    "ActorSettings",
    "Algorithm",
    "AlgorithmSettings",
    "AnySettings",
    "CpoSettings",
    "IpoSettings",
    "PcpoSettings",
    "PdCvarSettings",
    "PdSdpoSettings",
    "PdVarSettings",
    "PpoSettings",
    "Problem",
    "SdpoSettings",
    "build",
]
