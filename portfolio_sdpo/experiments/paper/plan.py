"""The studies behind each of the paper's questions at each scale.

`smoke` are toys in folders of their own (see `smoke`). `laptop` are the declared experiments that a small machine can
run within hours, `paper` those with the paper's tables and its numbers of runs; both use the folders of `experiment
run`, so that no run is made twice. Runs of different sizes have different names or folders.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from portfolio_sdpo.envs.safety.tasks import TASKS
from portfolio_sdpo.experiments.cmdp.declared import find_cmdp_experiment
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.study import CmdpStudy
from portfolio_sdpo.experiments.paper import smoke
from portfolio_sdpo.experiments.safety.declared import find_safety_experiment
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment
from portfolio_sdpo.experiments.safety.study import SafetyStudy
from portfolio_sdpo.experiments.stocks.declared import STEPS, STOCKS
from portfolio_sdpo.experiments.stocks.study import StocksStudy
from portfolio_sdpo.experiments.study import Study

Scale = Literal["smoke", "laptop", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
LAPTOP_SEEDS = (0, 1, 2)
"""Of Safety Gym and stocks; the fewest with which one algorithm can be told from another."""
_PAPER_BOUND = "the paper's bound, which the unconstrained optimum keeps anyway"
_BINDING = "not in the paper: a bound that binds, so that keeping it costs something"
_SHORT = "the same question within 500,000 steps, with settings for short runs"
_PAPER = "the paper's own settings"
_STOCKS = f"the paper's table, {STEPS} optimiser steps a day; bounded logits, so that no stock locks the policy in"
_TOY = "a toy: shows that everything runs, and nothing else"
_PAPER_CMDPS: dict[str, Any] = {"cmdp_seeds": (5, 10), "seeds": tuple(range(10))}


def plan_studies(question: str, scale: Scale, home: Path | None = None) -> list[Study]:
    """The studies of one question, A to D; `home` is where their folders are, by default the user's own."""
    match question, scale:
        case "A", "smoke":
            return [CmdpStudy(each, _TOY, home=home) for each in (smoke.CMDP_CVAR, smoke.CMDP_VARIANCE)]
        case "A", _:
            changes = _PAPER_CMDPS if scale == "paper" else {}
            roles = {"cmdp-cvar": _PAPER_BOUND, "cmdp-variance": _PAPER_BOUND}
            if scale == "laptop":
                roles |= {"cmdp-cvar-binding": _BINDING, "cmdp-variance-binding": _BINDING}
            return [CmdpStudy(_cmdp(name, changes), role, home=home) for name, role in roles.items()]
        case "B" | "C", "smoke":
            return [SafetyStudy(smoke.SAFETY_B if question == "B" else smoke.SAFETY_C, _TOY, home=home)]
        case "B" | "C", "laptop":
            name = "safety-b-pointgoal1-short" if question == "B" else "safety-c-short"
            return [SafetyStudy(_safety(name, question, LAPTOP_SEEDS), _SHORT, home=home)]
        case "B", _:
            names = [f"safety-b-{task.lower()}" for task in TASKS]
            return [SafetyStudy(_safety(name, "B", tuple(range(10))), _PAPER, home=home) for name in names]
        case "C", _:
            return [SafetyStudy(_safety("safety-c", "C", tuple(range(5))), _PAPER, home=home)]
        case _, "smoke":
            return [StocksStudy(smoke.STOCKS_TOY, _TOY, home=home)]
        case _:
            few = STOCKS.with_changes(seeds=LAPTOP_SEEDS) if scale == "laptop" else STOCKS
            return [StocksStudy(few, _STOCKS, home=home)]


def _cmdp(name: str, changes: dict[str, Any]) -> CmdpExperiment:
    rival = "pd-cvar" if "cvar" in name else "pd-var"
    return find_cmdp_experiment(name).with_changes(algorithms=("ppo", "sdpo", rival), **changes)


def _safety(name: str, question: str, seeds: tuple[int, ...]) -> SafetyExperiment:
    """With the algorithms that the paper compares there."""
    labels = ("ppo", "ipo", "sdpo", *(("cpo", "pcpo") if question == "B" else ()))
    return find_safety_experiment(name).with_changes(algorithms=labels, seeds=seeds)
