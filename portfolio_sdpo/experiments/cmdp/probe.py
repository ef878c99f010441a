"""The true risk of a policy, measured from outside: fresh episodes that the learner never sees, and exact answers.

The columns that it adds to the log of every iteration, i numbering the constraints:

    true_return, true_risk_i   mean return and risk of 1000 fresh episodes, as anybody could measure them
    exact_return               mean return by dynamic programming
    exact_risk_i               risk by dynamic programming, for expectation and variance
    integrated_risk_i          for a CVaR of the reward, of which there is no exact one: from simulated paths, with
                               their reward noise integrated out; a few times sharper than `true_risk_i`
    …_objective                the same of the problem's objective, where that is not the expectation

`true_risk_i` pools all episodes whatever their initial state, `exact_risk_i` and `integrated_risk_i` are the paper's
mean over initial states s0 of the risk from s0. Pooling is the pessimistic choice: differences between initial states
count as risk too, so a pooled variance is never smaller, and a pooled lower-tail CVaR never larger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from portfolio_sdpo.envs import Cmdp
from portfolio_sdpo.envs.exact import Evaluation, evaluate, rollout_returns
from portfolio_sdpo.envs.exact.cvar import simulate_cvar
from portfolio_sdpo.nn.networks import Policy
from portfolio_sdpo.risk import BadStateProbability, CVaR, Expectation, RiskMeasure, Variance
from portfolio_sdpo.rl import Problem
from portfolio_sdpo.rl.rollout import Purpose, stream

Array = NDArray[np.float64]


class Probe:
    """Measures the policy of an iteration; draws its random numbers from a stream of its own."""

    def __init__(
        self, cmdp: Cmdp, problem: Problem, seed: int, episodes: int = 1000, purpose: Purpose = Purpose.PROBE
    ) -> None:
        self.cmdp = cmdp
        self.problem = problem
        self.seed = seed
        self.episodes = episodes
        self.purpose = purpose
        # [H·N, 2]: state and time of every decision that there can be, as the environment shows them.
        time, state = torch.meshgrid(
            torch.arange(cmdp.horizon) / cmdp.horizon, torch.arange(cmdp.states, dtype=torch.float32), indexing="ij"
        )
        self._observations = torch.stack([state.reshape(-1), time.reshape(-1)], -1)

    def __call__(self, policy: Policy, iteration: int) -> dict[str, float]:
        """The columns for the log."""
        return self.measure(policy, iteration)[0]

    def measure(self, policy: Policy, iteration: int) -> tuple[dict[str, float], Array]:
        """The columns, and the reward's returns [episodes] of the fresh episodes."""
        table = self.table(policy)
        fresh, integrated = self._streams(iteration)
        figures, returns = sample_figures(
            self.cmdp, table, self.problem, self.episodes, lambda: np.random.default_rng(fresh)
        )
        simulation_seed = int(integrated.generate_state(1)[0])
        return figures | compute_exact_figures(self.cmdp, table, self.problem, self.episodes, simulation_seed), returns

    def sample(self, policy: Policy, iteration: int) -> dict[str, float]:
        """Only `true_*`: what can be known without the tables of the CMDP."""
        fresh, _ = self._streams(iteration)
        return sample_figures(
            self.cmdp, self.table(policy), self.problem, self.episodes, lambda: np.random.default_rng(fresh)
        )[0]

    def _streams(self, iteration: int) -> list[np.random.SeedSequence]:
        return stream(self.seed, iteration, self.purpose).spawn(2)

    @torch.no_grad()
    def table(self, policy: Policy) -> Array:
        """The policy as probabilities [H, N, M]."""
        probabilities = torch.softmax(policy(self._observations).double(), -1)
        return probabilities.reshape(self.cmdp.horizon, self.cmdp.states, self.cmdp.actions).numpy()


def sample_figures(
    cmdp: Cmdp, table: Array, problem: Problem, episodes: int, rng: Callable[[], np.random.Generator]
) -> tuple[dict[str, float], Array]:
    """`true_*` of a policy [H, N, M], and the reward's returns [episodes]; `rng` starts the same stream every time."""
    returns: dict[tuple[str, float], Array] = {}

    def of(signal: str, discount: float) -> Array:
        # With the same random numbers every signal is that of the same episodes.
        key = signal, discount
        if key not in returns:
            returns[key] = rollout_returns(cmdp, table, discount, episodes, rng(), signal)
        return returns[key]

    reward = of("reward", problem.discount)
    figures = {"true_return": float(reward.mean())}
    if not problem.objective.linear:
        figures["true_objective"] = problem.objective(torch.from_numpy(reward)).item()
    for index, constraint in enumerate(problem.constraints):
        values = of(constraint.signal, problem.discount_of(constraint))
        figures[f"true_risk_{index}"] = constraint.measure(torch.from_numpy(values)).item()
    return figures, reward


def compute_exact_figures(cmdp: Cmdp, table: Array, problem: Problem, episodes: int, seed: int) -> dict[str, float]:
    """`exact_*` and `integrated_*` of a policy [H, N, M]; simulations use `episodes` paths and `seed`."""
    moments: dict[tuple[str, float], Evaluation] = {}

    def of(signal: str, discount: float) -> Evaluation:
        key = signal, discount
        if key not in moments:
            moments[key] = evaluate(cmdp, table, discount, signal)
        return moments[key]

    def sharp(measure: RiskMeasure, signal: str, discount: float) -> dict[str, float]:
        match measure:
            case Expectation() | BadStateProbability():
                return {"exact": of(signal, discount).mean}
            case Variance():
                return {"exact": of(signal, discount).variance}
            case CVaR(alpha=alpha, tail="lower") if signal == "reward":
                moments = of(signal, discount)
                return {"integrated": simulate_cvar(cmdp, table, moments, alpha, discount, episodes, seed)[0]}
        return {}

    figures = {"exact_return": of("reward", problem.discount).mean}
    if not problem.objective.linear:
        found = sharp(problem.objective, "reward", problem.discount)
        figures |= {f"{kind}_objective": value for kind, value in found.items()}
    for index, constraint in enumerate(problem.constraints):
        found = sharp(constraint.measure, constraint.signal, problem.discount_of(constraint))
        figures |= {f"{kind}_risk_{index}": value for kind, value in found.items()}
    return figures


def sharp_kind(figures: Mapping[str, float | str], index: int) -> str | None:
    """How a constraint's risk is known more precisely than by sampling: `exact`, `integrated` or not at all."""
    return next((kind for kind in ("exact", "integrated") if f"{kind}_risk_{index}" in figures), None)


def sharp_objective(figures: Mapping[str, float | str]) -> float | None:
    """The objective as sharply as it is known; None where it is the expectation, which is `exact_return`."""
    names = (f"{kind}_objective" for kind in ("exact", "integrated", "true"))
    return next((float(figures[name]) for name in names if name in figures), None)
