"""Exact answers on CMDPs given as tables: what a policy is worth, and how good the best one under a bound can be.

>>> from portfolio_sdpo.envs import random_cmdp
>>> cmdp = random_cmdp(20, 3, seed=5, noise_scale=1.0, horizon=10)
>>> free, calm = solve_unconstrained(cmdp, discount=0.99), solve_variance(cmdp, bound=1.0, discount=0.99)
>>> bool(calm.variance <= 1.0 and calm.mean <= calm.upper_bound <= free.mean)
True

A policy is a table of probabilities [H, N, M], one row for every time and state, or [N, M] if it does not look at the
clock. The risk of a policy is the paper's: the mean over initial states s0 of the risk of the return from s0.
"""

from portfolio_sdpo.envs.exact.cvar import CvarSolution, solve_cvar
from portfolio_sdpo.envs.exact.cvar_objective import CvarObjectiveSolution, maximise_cvar
from portfolio_sdpo.envs.exact.distribution import DiscreteDistribution, enumerate_distribution
from portfolio_sdpo.envs.exact.evaluation import Evaluation, evaluate, rollout_returns, uniform_policy
from portfolio_sdpo.envs.exact.hedging import HedgingOutcome, evaluate_hedging, solve_hedging
from portfolio_sdpo.envs.exact.occupancy import ExpectationSolution, solve_expectation
from portfolio_sdpo.envs.exact.variance import Solution, VarianceSolution, solve_unconstrained, solve_variance

__all__ = [
    "CvarObjectiveSolution",
    "CvarSolution",
    "DiscreteDistribution",
    "Evaluation",
    "ExpectationSolution",
    "HedgingOutcome",
    "Solution",
    "VarianceSolution",
    "enumerate_distribution",
    "evaluate",
    "evaluate_hedging",
    "maximise_cvar",
    "rollout_returns",
    "solve_cvar",
    "solve_expectation",
    "solve_hedging",
    "solve_unconstrained",
    "solve_variance",
    "uniform_policy",
]
