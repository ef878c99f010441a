"""Past the paper: what barrier and critics contribute, PCPO with distributional critics, CVaR as the objective.

All on small noisy CMDPs (100 states, 5 actions, 50 steps), so that a grid takes minutes and not hours; the bounds bind.
The grid {barrier, dual} × {quantile critics, whole trajectories} changes one part at a time:

                         quantile critics    whole trajectories
    barrier              sdpo                sdpo-trajectory
    dual ascent          pd-sdpo             pd-trajectory
    projection           pcpo

Policy, clipped surrogate, running estimate and confidence are the same in the first two rows.
"""

from __future__ import annotations

from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment, CmdpSettings
from portfolio_sdpo.risk import Constraint, CVaR, Expectation
from portfolio_sdpo.rl.algorithms import (
    ActorSettings,
    AnySettings,
    PcpoSettings,
    PdSdpoSettings,
    Problem,
    SdpoSettings,
)
from portfolio_sdpo.rl.critics import CriticSettings

# Tuned by a few runs on the CMDP of `TUNING_CMDP_SEED`: SDPO's barrier, the critics and PCPO's radius. What has no
# critics, and the multipliers, took their settings over from there. Two things decide. Critics need hundreds of steps
# before the first update, and to keep up afterwards: distributions that do not yet narrow towards the end of an episode
# make the advantage of its last step a hundred times as large as any other. And the largest price of a barrier,
# 1/(η · margin), has to lie well above what the bound is worth at the optimum (0.21 a unit of variance, 0.33 of CVaR,
# 0.4 of wear).
_ITERATIONS = 150
_ACTOR = ActorSettings(hidden=(), learning_rate=5e-2, anneal=_ITERATIONS)
_CRITIC = CriticSettings(
    kind="quantile",
    hidden=(64, 64),
    learning_rate=1e-2,
    atoms=16,
    dimension=32,
    target_lambda=0.9,
    warm_up=30,
    averaging=0.95,
    table_decay=20.0,
    epochs=5,
    minibatches=2,
    kappa=0.02,
)
_SDPO = SdpoSettings(
    actor=_ACTOR, critic=_CRITIC, gae_lambda=0.0, risk_lambda=0.0, clip=0.2, epochs=4, minibatches=1, smoothing=0.2
)


def _with(settings: SdpoSettings, **changes: object) -> SdpoSettings:
    return SdpoSettings(**{**dict(settings), **changes})


def _dual(settings: SdpoSettings, rate: float, start: float) -> PdSdpoSettings:
    """The same with a multiplier in the place of the barrier."""
    shared = {name: value for name, value in settings if name != "kind"}
    return PdSdpoSettings(**shared, multiplier_rate=rate, multiplier_start=start)


def _grid(sdpo: SdpoSettings, rate: float, start: float) -> dict[str, AnySettings]:
    """{barrier, dual} × {quantile critics, whole trajectories}, and the projection with quantile critics."""
    trajectory = _with(sdpo, estimator="trajectory")
    return {
        "sdpo": sdpo,
        "sdpo-trajectory": trajectory,
        "pd-sdpo": _dual(sdpo, rate, start),
        "pd-trajectory": _dual(trajectory, rate, start),
        "pcpo": PcpoSettings(
            actor=ActorSettings(hidden=()), critic=sdpo.critic, gae_lambda=sdpo.gae_lambda, max_kl=0.005
        ),
    }


BEYOND = (
    CmdpExperiment(
        name="cmdp-variance-critics",
        title="Small noisy CMDP, variance of the return at most 26",
        question="Of SDPO's gain under a bound on variance, what does the barrier contribute, and what do the critics?",
        cmdp=CmdpSettings(states=100, actions=5, noise_scale=2.0, horizon=50),
        problem=Problem(
            discount=0.99,
            constraints=(Constraint.from_spec("variance of reward <= 26 eta=1:3:60 margin=0.5 confidence=1"),),
        ),
        algorithms=_grid(_SDPO, rate=0.002, start=0.25),
        iterations=_ITERATIONS,
        episodes=20,
    ),
    CmdpExperiment(
        name="cmdp-cvar-critics",
        title="Small, very noisy CMDP, 0.1-CVaR of the return at least -13",
        question="The same under a bound on CVaR, which the uniform policy keeps and the unconstrained optimum breaks.",
        cmdp=CmdpSettings(states=100, actions=5, noise_scale=8.0, horizon=50),
        problem=Problem(
            discount=0.99,
            constraints=(Constraint.from_spec("cvar(0.1) of reward >= -13 eta=1:3:60 margin=0.5 confidence=0.5"),),
        ),
        algorithms=_grid(_with(_SDPO, smoothing=0.1), rate=0.002, start=0.2),
        iterations=_ITERATIONS,
        episodes=40,
    ),
    CmdpExperiment(
        name="cmdp-cvar-objective",
        title="Small noisy CMDP, the highest 0.1-CVaR of the return with an expected cost of at most 12",
        question="Under a bound on another signal, does maximising CVaR give a better tail than maximising the mean?",
        cmdp=CmdpSettings(states=100, actions=5, noise_scale=4.0, horizon=50, costs=("wear",)),
        problem=Problem(
            discount=0.99,
            objective=CVaR(alpha=0.1),
            constraints=(Constraint.from_spec("expectation of wear <= 12 eta=1:5:60 margin=0.1 confidence=1"),),
        ),
        algorithms={"sdpo-cvar": _with(_SDPO, phase_one=100), "sdpo-mean": _with(_SDPO, phase_one=100)},
        objectives={"sdpo-mean": Expectation()},
        iterations=_ITERATIONS,
        episodes=40,
    ),
)
"""Declared after those of the paper, see `declared`."""
