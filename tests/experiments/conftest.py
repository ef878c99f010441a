"""A grid small enough to be run in a test: two algorithms, two seeds, four iterations on thirty states."""

from pathlib import Path

import pytest

from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment, CmdpSettings
from portfolio_sdpo.experiments.cmdp.study import run_cmdp
from portfolio_sdpo.experiments.engine.grid import Outcome
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl import ActorSettings, CriticSettings, PpoSettings, Problem, SdpoSettings


@pytest.fixture(scope="session")
def tiny() -> CmdpExperiment:
    actor = ActorSettings(hidden=(), learning_rate=1e-2)
    critic = {"hidden": (8,), "epochs": 1, "minibatches": 1, "warm_up": 1}
    return CmdpExperiment(
        name="tiny",
        title="A tiny noisy CMDP",
        question="Does it run?",
        cmdp=CmdpSettings(states=30, actions=3, noise_scale=1.0, horizon=20),
        problem=Problem(constraints=(Constraint.from_spec("variance of reward <= 4 eta=1 margin=0.3"),)),
        algorithms={
            "ppo": PpoSettings(actor=actor, critic=CriticSettings(kind="mean", **critic), epochs=1),
            "sdpo": SdpoSettings(
                actor=actor,
                critic=CriticSettings(kind="quantile", atoms=8, dimension=8, **critic),
                epochs=1,
                risk_atoms=8,
                partners=4,
            ),
        },
        iterations=4,
        episodes=4,
        seeds=(0, 1),
        cmdp_seeds=(11, 12),
        fresh_episodes=50,
        checkpoint_every=1,
        tensorboard=False,
    )


@pytest.fixture(scope="session")
def tiny_run(tiny: CmdpExperiment, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Outcome]]:
    """The folder of a finished run of the grid, not to be changed, and what became of its runs."""
    root = tmp_path_factory.mktemp("experiments") / "tiny"
    return root, run_cmdp(tiny, jobs=1, root=root)
