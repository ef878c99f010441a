"""A Safety Gym grid small enough for a test: worlds of twenty steps, two robots, tiny networks."""

from pathlib import Path
from typing import Any

from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment, WorldSettings
from portfolio_sdpo.experiments.safety.study import list_safety_runs
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import (
    ActorSettings,
    CpoSettings,
    IpoSettings,
    PcpoSettings,
    PpoSettings,
    Problem,
    SdpoSettings,
)
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.metrics import write_config, write_rows


def toy(task: str = "PointGoal1", **changes: Any) -> SafetyExperiment:
    """PPO, IPO, SDPO, CPO and PCPO on one task."""
    fit: dict[str, Any] = {"hidden": (8,), "epochs": 1, "minibatches": 1, "warm_up": 1}
    shared: dict[str, Any] = {
        "actor": ActorSettings(hidden=(8,), learning_rate=1e-2, initial_std=0.1),
        "critic": CriticSettings(kind="mean", **fit),
    }
    quantile = CriticSettings(kind="quantile", atoms=8, dimension=8, **fit)
    fields: dict[str, Any] = {
        "name": "safety-toy",
        "title": f"A toy of {task}",
        "question": "Does it run?",
        "world": WorldSettings(task=task, horizon=20),
        "problem": Problem(constraints=(Constraint.from_spec("expectation of cost <= 2 discount=1 eta=30"),)),
        "algorithms": {
            "ppo": PpoSettings(**shared, epochs=1),
            "ipo": IpoSettings(**shared, epochs=1),
            "sdpo": SdpoSettings(**{**shared, "critic": quantile}, epochs=1, risk_atoms=8),
            "cpo": CpoSettings(**shared),
            "pcpo": PcpoSettings(**shared),
        },
        "iterations": 2,
        "episodes": 2,
        "lane": 2,
        "seeds": (0,),
        "checkpoint_every": 1,
        "tensorboard": False,
    }
    return SafetyExperiment(**{**fields, **changes})


TWO = Problem(
    constraints=(
        Constraint.from_spec("expectation of vases <= 1 discount=1 eta=40"),
        Constraint.from_spec("bad-state-probability of hazards <= 0.1 eta=60"),
    )
)
"""The two constraints of question (C)."""


def write_log(returns: list[float], *risks: list[float], signals: tuple[str, ...] = ("cost",)) -> list[dict]:
    """Iterations of 40 steps and two episodes."""
    rows = []
    for iteration, (episode_return, *found) in enumerate(zip(returns, *risks, strict=True)):
        row = {"iteration": float(iteration), "episode_return": episode_return, "total_steps": 40.0 * (iteration + 1)}
        for index, (risk, signal) in enumerate(zip(found, signals, strict=True)):
            row |= {f"risk_empirical_{index}": risk, f"batch_{signal}": 2 * risk}
        rows.append(row)
    return rows


def make_up(experiment: SafetyExperiment, root: Path, logs: dict[str, list[dict]], rate: float = 100.0) -> None:
    for run in list_safety_runs(experiment, root):
        if run.name in logs:
            settings = run.settings()
            run.folder.mkdir(parents=True)
            write_config(run.folder / "config.json", settings, settings.fingerprint(""), "", "")
            write_rows(run.folder / "metrics.parquet", logs[run.name])
            run.mark_done(iterations=len(logs[run.name]), workers=0, steps_per_second=rate)
