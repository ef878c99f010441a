"""Small runs of every algorithm, on which the tests of the trainer agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import AnySettings, Problem
from portfolio_sdpo.rl.trainer import Trainer, TrainSettings

CMDP = random_cmdp(6, 3, seed=0, noise_scale=1.0, horizon=4, costs=("pain",))
ITERATIONS = 9
SPECS = {
    "ppo": "variance of reward <= 9",
    "ipo": "expectation of pain <= 3",
    "sdpo": "variance of reward <= 9 eta=1:20:10",
    "sdpo, pathwise": "cvar(0.1) of reward >= -9",
    "sdpo, phase I": "expectation of pain <= 2.32 eta=1:20:10",  # phase II begins in iteration 4
    "sdpo, memory": "expectation of pain <= 3",
    "sdpo, trajectory": "cvar(0.1) of reward >= -9",
    "cpo": "expectation of pain <= 3",
    "cpo, quantile": "variance of reward <= 9",
    "pcpo": "expectation of pain <= 3",
    "pcpo, quantile": "cvar(0.1) of reward >= -9",
    "pd-cvar": "cvar(0.1) of reward >= -9",
    "pd-var": "variance of reward <= 9",
    "ppo-lagrangian": "expectation of pain <= 3",
    "pd-sdpo": "variance of reward <= 0.1 confidence=1",
    "pd-sdpo, trajectory": "cvar(0.1) of reward >= 9",
    "pd-sdpo, phase I": "expectation of pain <= 2.32",
}
EACH = pytest.mark.parametrize("name", SPECS)


def run_settings(name="sdpo", spec="", iterations=ITERATIONS, seed=0, actor=None, **options):
    """A run that takes a fraction of a second; its episodes are cut in the middle."""
    kind, _, form = name.partition(", ")
    algorithm = {"kind": kind, "actor": {"hidden": (4,), "learning_rate": 0.01, "anneal": 20, **(actor or {})}}
    if kind not in ("pd-cvar", "pd-var") and form != "trajectory":
        critic = "quantile" if kind in ("sdpo", "pd-sdpo") or form == "quantile" else "mean"
        algorithm["critic"] = {
            "kind": critic,
            "hidden": (4,),
            "dimension": 8,
            "atoms": 8,
            "warm_up": 2,
            "epochs": 1,
            "minibatches": 2,
        }
    if kind in ("ppo", "ppo-lagrangian", "ipo", "sdpo", "pd-sdpo"):
        algorithm["epochs"] = 1
    if form in ("pathwise", "trajectory"):
        algorithm["estimator"] = form
    if form == "memory":
        algorithm["critic"] |= {"memory": 3, "transitions": 20}
    if form == "phase I":
        algorithm["phase_one"] = 1000
    return TrainSettings(
        problem=Problem(discount=0.9, constraints=(Constraint.from_spec(spec or SPECS[name]),)),
        algorithm=TypeAdapter(AnySettings).validate_python(algorithm | options.pop("algorithm", {})),
        iterations=iterations,
        steps=6,
        seed=seed,
        checkpoint_every=options.pop("checkpoint_every", 3),
        tensorboard=options.pop("tensorboard", False),
        **options,
    )


def trainer(settings, folder, env=None, probe=None):
    return Trainer(settings, env or RandomCmdpVectorEnv(CMDP, 5), Path(folder), probe)


def contents(folder):
    """Every file of the run by name; what a kill left behind half written is hidden."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if not path.name.startswith(".")}


def names(iterations):
    return [f"checkpoint-{iteration:07d}.safetensors" for iteration in iterations]


class Stop(Exception):
    pass


def stop_after(count):
    def watch(row):
        if row["iteration"] == count - 1:
            raise Stop

    return watch
