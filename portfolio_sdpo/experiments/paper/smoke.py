"""The paper's experiments as toys: the same questions, algorithms and files, at a size that proves nothing.

They show within minutes that everything works on a machine, from the first run to the last page. Their names, and so
their folders, begin with `smoke-`: no result of theirs can get among real ones.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment, CmdpSettings
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment, WorldSettings
from portfolio_sdpo.experiments.stocks.declared import STOCKS, StocksExperiment
from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import (
    ActorSettings,
    AnySettings,
    CpoSettings,
    IpoSettings,
    PcpoSettings,
    PdCvarSettings,
    PdVarSettings,
    PpoSettings,
    Problem,
    SdpoSettings,
)
from portfolio_sdpo.rl.critics import CriticSettings

PREFIX = "smoke-"
SEEDS = (0, 1, 2)
_TOY = ", as a toy"


def _cmdp(name: str, constraint: str, rival: str, settings: AnySettings) -> CmdpExperiment:
    actor = ActorSettings(hidden=(), learning_rate=5e-2)
    fit: dict[str, Any] = {"hidden": (16,), "epochs": 1, "minibatches": 1, "warm_up": 1}
    ascent: dict[str, Any] = {"actor": actor, "epochs": 2, "gae_lambda": 0.0}
    quantile = CriticSettings(kind="quantile", atoms=16, dimension=16, **fit)
    return CmdpExperiment(
        name=f"{PREFIX}{name}",
        title=f"Random CMDP, {constraint.partition(' eta')[0]}{_TOY}",
        question="Does everything run?",
        cmdp=CmdpSettings(states=40, actions=4, noise_scale=1.0, horizon=20),
        problem=Problem(discount=0.99, constraints=(Constraint.from_spec(constraint),)),
        algorithms={
            "ppo": PpoSettings(critic=CriticSettings(kind="mean", **fit), **ascent),
            "sdpo": SdpoSettings(critic=quantile, risk_atoms=16, partners=8, risk_lambda=0.0, **ascent),
            rival: settings,
        },
        iterations=12,
        episodes=20,
        seeds=SEEDS,
        cmdp_seeds=(11,),
        fresh_episodes=100,
        tensorboard=False,
    )


_PD_ACTOR = ActorSettings(hidden=(), learning_rate=5e-2)
CMDP_CVAR = _cmdp("cmdp-cvar", "cvar(0.1) of reward >= 5 eta=2 margin=0.3", "pd-cvar", PdCvarSettings(actor=_PD_ACTOR))
CMDP_VARIANCE = _cmdp(
    "cmdp-variance", "variance of reward <= 4.5 eta=2 margin=0.3", "pd-var", PdVarSettings(actor=_PD_ACTOR)
)


def _robots(**changes: Any) -> SafetyExperiment:
    fit: dict[str, Any] = {"hidden": (16,), "epochs": 1, "minibatches": 1, "warm_up": 1}
    shared: dict[str, Any] = {"actor": ActorSettings(hidden=(16,), learning_rate=1e-2, initial_std=0.4)}
    mean = CriticSettings(kind="mean", **fit)
    quantile = CriticSettings(kind="quantile", atoms=16, dimension=16, kappa=5.0, **fit)
    fields: dict[str, Any] = {
        "question": "Does everything run?",
        "algorithms": {
            "ppo": PpoSettings(critic=mean, epochs=2, **shared),
            "ipo": IpoSettings(critic=mean, epochs=2, **shared),
            "sdpo": SdpoSettings(critic=quantile, epochs=2, risk_atoms=16, **shared),
            "cpo": CpoSettings(critic=mean, **shared),
            "pcpo": PcpoSettings(critic=mean, **shared),
        },
        "iterations": 4,
        "episodes": 2,
        "lane": 2,
        "seeds": SEEDS,
        "tensorboard": False,
    }
    return SafetyExperiment(**{**fields, **changes})


SAFETY_B = _robots(
    name=f"{PREFIX}safety-b",
    title=f"PointGoal1, expected cost at most 2{_TOY}",
    world=WorldSettings(task="PointGoal1", horizon=50),
    problem=Problem(constraints=(Constraint.from_spec("expectation of cost <= 2 discount=1 eta=30"),)),
)
SAFETY_C = _robots(
    name=f"{PREFIX}safety-c",
    title=f"PointGoal2, two bounds{_TOY}",
    world=WorldSettings(task="PointGoal2", terminal_hazards=True, horizon=50),
    problem=Problem(
        constraints=(
            Constraint.from_spec("expectation of vases <= 1 discount=1 eta=40"),
            Constraint.from_spec("bad-state-probability of hazards <= 0.1 eta=60"),
        )
    ),
).with_changes(algorithms=("ppo", "ipo", "sdpo"))


def _small(agent: AgentSettings) -> dict[str, Any]:
    settings: dict[str, Any] = agent.model_dump()
    settings |= {"episodes": 8, "first": 1, "further": 1, "limit": {**settings["limit"], "horizon": 5}}
    for network in ("actor", "critic"):
        settings["learner"][network]["hidden"] = (8, 8)
    settings["learner"]["critic"] |= {"atoms": 8, "dimension": 8, "warm_up": 1}
    return settings


STOCKS_TOY = StocksExperiment(
    **{
        **dict(STOCKS),
        "name": f"{PREFIX}stocks",
        "title": f"Nine stocks through two weeks of 2019{_TOY}",
        "question": "Does everything run?",
        "algorithms": {label: _small(STOCKS.algorithms[label]) for label in STOCKS.shown},
        "seeds": SEEDS,
        "strategies": ("cash", "equal-weight"),
        "limit": {**STOCKS.limit.model_dump(), "horizon": 5},
        "end": date(2019, 1, 16),
    }
)
