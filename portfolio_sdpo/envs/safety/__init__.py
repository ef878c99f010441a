"""Safety Gym: a Point, a Car or a Doggo that goes to goals, presses buttons or pushes a box past what it should avoid.

>>> import gymnasium
>>> from portfolio_sdpo.envs import SAFETY
>>> env = gymnasium.make(SAFETY, task="CarPush2", vases=3)
>>> observation, signals = env.reset(seed=0)
>>> sorted(signals)
['buttons', 'cost', 'gremlins', 'hazards', 'pillars', 'vases']

Several in this process: `gymnasium.make_vec(SAFETY, num_envs=4, task=...)`; each in a process of its own: with
`vectorization_mode="async"`. The suite and MuJoCo are only imported when the first environment is made; how they are
installed is told in `suite.py`.
"""

from typing import TYPE_CHECKING, Any

from portfolio_sdpo.envs.safety.tasks import HORIZON, ROBOTS, SIGNALS, TASKS
from portfolio_sdpo.errors import MissingExtraError

if TYPE_CHECKING:
    from portfolio_sdpo.envs.safety.env import SafetyEnv, SafetyVectorEnv

__all__ = ["HORIZON", "ROBOTS", "SIGNALS", "TASKS", "SafetyEnv", "SafetyVectorEnv"]


def __getattr__(name: str) -> Any:
    if name not in ("SafetyEnv", "SafetyVectorEnv"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from portfolio_sdpo.envs.safety import env
    except ModuleNotFoundError as error:
        from portfolio_sdpo.envs.safety.suite import INSTALL

        raise MissingExtraError(f"Safety Gym needs the package {error.name}: {INSTALL}.") from None
    return getattr(env, name)
