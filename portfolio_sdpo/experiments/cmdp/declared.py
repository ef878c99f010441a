"""The experiments as declared grids: what is run, on which problem, with which settings.

The first two are the paper's (section 6, appendix A.1, table of hyperparameters for random CMDPs). Their bounds bite
only while learning: the unconstrained optimum lies inside them. The two `-binding` ones have noisy rewards and bounds
that the unconstrained optimum breaks, so that safety costs something to the end. The rest goes past the paper, see
`beyond_paper`.
"""

from __future__ import annotations

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.experiments.cmdp.beyond_paper import BEYOND
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment, CmdpSettings, SafeStart
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import (
    ActorSettings,
    PdCvarSettings,
    PdVarSettings,
    PpoSettings,
    Problem,
    SdpoSettings,
)
from portfolio_sdpo.rl.critics import CriticSettings

# The paper's table. What it leaves open (epochs, minibatches, targets) is as in `rl`.
_PAPER_ACTOR = ActorSettings(hidden=(64, 64), learning_rate=1e-4)
_PAPER_PPO = PpoSettings(
    actor=_PAPER_ACTOR,
    critic=CriticSettings(kind="mean", hidden=(64, 64), learning_rate=1e-3),
    gae_lambda=0.9,
    clip=0.2,
)
_PAPER_SDPO = SdpoSettings(
    actor=_PAPER_ACTOR,
    critic=CriticSettings(kind="quantile", hidden=(64, 64), learning_rate=1e-3, atoms=128, dimension=256),
    gae_lambda=0.9,
    clip=0.2,
)
_PAPER_ITERATIONS = 400
"""Not in the paper's text."""
_PAPER_EPISODES = 10
"""Of 100 steps: batch size 1000."""
# Without noise whatever raises the mean also narrows the distribution, so PPO finds a safe policy soonest. Only its
# shape has to be the paper's, which does not say where the safe policy came from.
_PAPER_START = PpoSettings(
    actor=ActorSettings(hidden=(64, 64), learning_rate=1e-3),
    critic=CriticSettings(kind="mean", hidden=(64, 64), learning_rate=1e-3),
    epochs=10,
    minibatches=4,
)

# Where the bound binds, tuned on the CMDP of `TUNING_CMDP_SEED`: a table of logits, one-step advantages, and critics
# that tell states apart only reluctantly (in a random CMDP values differ by a fifth of a step's noise).
_TABLE_ACTOR = ActorSettings(hidden=(), learning_rate=5e-2, anneal=400)
_TABLE_CRITIC = CriticSettings(
    kind="quantile",
    atoms=64,
    target_lambda=0.9,
    averaging=0.995,
    table_decay=200.0,
    epochs=3,
    minibatches=4,
    kappa=0.02,
)
_TABLE_SDPO = SdpoSettings(
    actor=_TABLE_ACTOR,
    critic=_TABLE_CRITIC,
    gae_lambda=0.0,
    risk_lambda=0.0,
    clip=0.2,
    epochs=5,
    minibatches=2,
)
_TABLE_PPO = PpoSettings(
    actor=_TABLE_ACTOR,
    critic=CriticSettings(**{**dict(_TABLE_CRITIC), "kind": "mean"}),
    gae_lambda=0.0,
    clip=0.2,
    epochs=5,
    minibatches=2,
)
# Rewards four times as noisy, and a tail of one episode in ten: five times the batch, and an estimate that looks back
# further. Phase I takes small steps on large batches, or the policy makes up its mind on noise.
_TABLE_SDPO_CVAR = SdpoSettings(**{**dict(_TABLE_SDPO), "smoothing": 0.05})
_TABLE_PHASE_ONE = SdpoSettings(
    **{
        **dict(_TABLE_SDPO),
        "phase_one": 1500,
        "phase_one_entropy": 0.0,
        "actor": ActorSettings(hidden=(), learning_rate=1e-2),
        "critic": CriticSettings(**{**dict(_TABLE_CRITIC), "transitions": 2000}),
        "epochs": 2,
    }
)
_PD_ACTOR = ActorSettings(hidden=(), learning_rate=5e-2)

_ALL = (
    CmdpExperiment(
        name="cmdp-cvar",
        title="Random CMDP, 0.1-CVaR of the return at least 51",
        question="How does SDPO compare with PD-CVaR under a bound on CVaR? (the paper's figure 1)",
        cmdp=CmdpSettings(),
        problem=Problem(discount=0.99, constraints=(Constraint.from_spec("cvar(0.1) of reward >= 51 eta=20"),)),
        algorithms={"ppo": _PAPER_PPO, "sdpo": _PAPER_SDPO, "pd-cvar": PdCvarSettings(actor=_PAPER_ACTOR)},
        iterations=_PAPER_ITERATIONS,
        episodes=_PAPER_EPISODES,
        safe_start=SafeStart(algorithm=_PAPER_START, iterations=200, episodes=100, bounds=(51.5,)),
    ),
    CmdpExperiment(
        name="cmdp-variance",
        title="Random CMDP, variance of the return at most 2",
        question="How does SDPO compare with PD-VAR under a bound on variance? (the paper's figure 2)",
        cmdp=CmdpSettings(),
        problem=Problem(discount=0.99, constraints=(Constraint.from_spec("variance of reward <= 2 eta=20"),)),
        algorithms={"ppo": _PAPER_PPO, "sdpo": _PAPER_SDPO, "pd-var": PdVarSettings(actor=_PAPER_ACTOR)},
        iterations=_PAPER_ITERATIONS,
        episodes=_PAPER_EPISODES,
        safe_start=SafeStart(algorithm=_PAPER_START, iterations=200, episodes=100, bounds=(1.8,)),
    ),
    CmdpExperiment(
        name="cmdp-cvar-binding",
        title="Noisy random CMDP, 0.1-CVaR of the return at least 24",
        question="Does SDPO stay inside a CVaR bound that the unconstrained optimum breaks, and at what price?",
        cmdp=CmdpSettings(noise_scale=4.0),
        problem=Problem(
            discount=0.99,
            constraints=(Constraint.from_spec("cvar(0.1) of reward >= 24 eta=1:4:200 margin=0.3 confidence=0.5"),),
        ),
        algorithms={
            "ppo": _TABLE_PPO,
            "sdpo": _TABLE_SDPO_CVAR,
            "pd-cvar": PdCvarSettings(
                actor=ActorSettings(hidden=(), learning_rate=2e-2), multiplier_rate=1e-3, multiplier_max=5.0
            ),
        },
        iterations=400,
        episodes=100,
        safe_start=SafeStart(algorithm=_TABLE_PHASE_ONE, iterations=1500, episodes=200, bounds=(25.0,)),
    ),
    CmdpExperiment(
        name="cmdp-variance-binding",
        title="Noisy random CMDP, variance of the return at most 12",
        question="Does SDPO stay inside a variance bound that the unconstrained optimum breaks, and at what price?",
        cmdp=CmdpSettings(noise_scale=1.0),
        problem=Problem(
            discount=0.99,
            constraints=(Constraint.from_spec("variance of reward <= 12 eta=0.4:4:120 margin=0.25 confidence=1"),),
        ),
        algorithms={
            "ppo": _TABLE_PPO,
            "sdpo": _TABLE_SDPO,
            "pd-var": PdVarSettings(actor=_PD_ACTOR, multiplier_rate=0.01, multiplier_start=0.5, moment_rate=0.05),
        },
        iterations=400,
        episodes=20,
    ),
)
CMDP_EXPERIMENTS = {experiment.name: experiment for experiment in (*_ALL, *BEYOND)}
"""Every experiment on random CMDPs by its name."""


def find_cmdp_experiment(name: str) -> CmdpExperiment:
    """The experiment of that name.

    >>> find_cmdp_experiment("cmdp-variance-binding").problem.constraints[0].name
    'variance of reward <= 12'
    """
    if name not in CMDP_EXPERIMENTS:
        raise SettingsError(f"there is no experiment {name!r}; choose one of {', '.join(CMDP_EXPERIMENTS)}.")
    return CMDP_EXPERIMENTS[name]
