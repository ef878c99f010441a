"""Gymnasium environments, scalar and batched; importing this package registers them.

>>> import gymnasium
>>> gymnasium.make("portfolio_sdpo/RandomCmdp-v0", states=50, actions=4, seed=5).unwrapped.cmdp.states
50

Exact answers on random CMDPs (evaluation, constrained optima) are in `portfolio_sdpo.envs.exact`.
"""

from portfolio_sdpo.common.environments import PORTFOLIO, RANDOM_CMDP, SAFETY, register_environments
from portfolio_sdpo.envs.random_cmdp import Cmdp, RandomCmdpEnv, RandomCmdpVectorEnv, random_cmdp

__all__ = ["PORTFOLIO", "RANDOM_CMDP", "SAFETY", "Cmdp", "RandomCmdpEnv", "RandomCmdpVectorEnv", "random_cmdp"]

register_environments()
