"""Gymnasium environments, scalar and batched; importing this package registers them.

>>> import gymnasium
>>> gymnasium.make("portfolio_sdpo/RandomCmdp-v0", states=50, actions=4, seed=5).unwrapped.cmdp.states
50

Exact answers on random CMDPs (evaluation, constrained optima) are in `portfolio_sdpo.envs.exact`.
"""

import gymnasium

from portfolio_sdpo.envs.random_cmdp import Cmdp, RandomCmdpEnv, RandomCmdpVectorEnv, random_cmdp

__all__ = ["PORTFOLIO", "RANDOM_CMDP", "SAFETY", "Cmdp", "RandomCmdpEnv", "RandomCmdpVectorEnv", "random_cmdp"]

RANDOM_CMDP = "portfolio_sdpo/RandomCmdp-v0"
"""Name under which gymnasium makes a random CMDP; settings: states, actions, seed, noise_scale, horizon, costs."""

PORTFOLIO = "portfolio_sdpo/Portfolio-v0"
"""Name under which gymnasium makes a portfolio; settings: those of `portfolio.env.make_portfolio_env`."""

SAFETY = "portfolio_sdpo/Safety-v0"
"""Name under which gymnasium makes a task of Safety Gym; settings: those of `safety.env.SafetyEnv`."""

if RANDOM_CMDP not in gymnasium.registry:
    gymnasium.register(
        RANDOM_CMDP,
        entry_point="portfolio_sdpo.envs.random_cmdp:make_random_cmdp_env",
        vector_entry_point="portfolio_sdpo.envs.random_cmdp:make_random_cmdp_vector_env",
    )

if PORTFOLIO not in gymnasium.registry:
    # By name, so that pandas and all that trades is only imported by who wants it.
    gymnasium.register(
        PORTFOLIO,
        entry_point="portfolio_sdpo.envs.portfolio:make_portfolio_env",
        vector_entry_point="portfolio_sdpo.envs.portfolio:make_portfolio_vector_env",
    )

if SAFETY not in gymnasium.registry:
    # By name as well: MuJoCo comes with an extra.
    gymnasium.register(
        SAFETY,
        entry_point="portfolio_sdpo.envs.safety:SafetyEnv",
        vector_entry_point="portfolio_sdpo.envs.safety:SafetyVectorEnv",
    )
