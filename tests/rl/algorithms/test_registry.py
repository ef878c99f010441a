"""Algorithms and measures of other packages: known by their entry points, without a line changed here."""

from __future__ import annotations

import importlib
import json
import sys
import textwrap

import pytest
import torch

from portfolio_sdpo.common import plugins
from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.risk import Constraint, RiskMeasure
from portfolio_sdpo.rl import Problem, Trainer, TrainSettings
from portfolio_sdpo.rl.algorithms import ALGORITHMS

CODE = '''
    from typing import ClassVar, Literal

    import torch

    from portfolio_sdpo.risk import RiskMeasure
    from portfolio_sdpo.rl.algorithms.ascent import adam, describe_policy
    from portfolio_sdpo.rl.algorithms.base import Algorithm, AlgorithmSettings, build_policy


    class ReinforceSettings(AlgorithmSettings):
        kind: Literal["reinforce"] = "reinforce"
        baseline: float = 0.0


    class Reinforce(Algorithm):
        settings_type: ClassVar[type[AlgorithmSettings]] = ReinforceSettings
        accepts_nonlinear = True

        def __init__(self, settings, problem, codec, action_space):
            super().__init__(settings, problem, build_policy(settings.actor, codec, action_space))
            self.optimiser = adam(self.policy, settings.actor.learning_rate)

        def update(self, rollout, iteration, generator):
            returns = rollout.returns("reward", self.problem.discount)[rollout.episode] - self.settings.baseline
            log_prob = self.policy.head.log_prob(self.policy(rollout.observation), rollout.action)
            self.optimiser.zero_grad()
            (-(log_prob * returns).mean()).backward()
            self.optimiser.step()
            return {"return": returns.mean().item()} | describe_policy(self.policy, rollout)

        def optimisers(self):
            return [self.optimiser]


    class Gap(RiskMeasure):
        """Mean distance to the mean."""

        kind: Literal["gap"] = "gap"

        def evaluate(self, values, weights):
            mean = (weights * values).sum(-1, keepdim=True)
            return (weights * (values - mean).abs()).sum(-1)
'''
ENTRY_POINTS = """
    [portfolio_sdpo.algorithms]
    reinforce = throwaway_rl:Reinforce

    [portfolio_sdpo.measures]
    gap = throwaway_rl:Gap
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with an algorithm and a measure, forgotten afterwards."""
    (tmp_path / "throwaway_rl.py").write_text(textwrap.dedent(CODE))
    metadata = tmp_path / "throwaway_rl-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: throwaway-rl\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(textwrap.dedent(ENTRY_POINTS))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    plugins.load_plugins.cache_clear()
    for registry in (ALGORITHMS, RiskMeasure.kinds):
        monkeypatch.setattr(registry, "_items", dict(registry._items))
    yield
    sys.modules.pop("throwaway_rl", None)
    plugins.load_plugins.cache_clear()


@pytest.mark.usefixtures("package")
def test_an_algorithm_and_a_measure_of_another_package(tmp_path):
    """Named in a file, trained, resumed and written back."""
    table = {
        "problem": {"constraints": [{"signal": "reward", "measure": {"kind": "gap"}, "sense": "<=", "bound": 9}]},
        "algorithm": {"kind": "reinforce", "baseline": 0.5, "actor": {"hidden": []}},
        "iterations": 2,
        "steps": 4,
        "tensorboard": False,
    }
    settings = TrainSettings.model_validate_json(json.dumps(table))
    assert type(settings.algorithm).__name__ == "ReinforceSettings" and settings.algorithm.baseline == 0.5
    assert settings.problem.constraints[0].name == "gap of reward <= 9"
    assert TrainSettings.model_validate_json(settings.model_dump_json()) == settings
    env = RandomCmdpVectorEnv(random_cmdp(5, 2, seed=0, horizon=4), 3)
    rows = Trainer(settings, env, tmp_path / "run").run()
    assert len(rows) == 2 and {"return", "kl"} <= rows[0].keys()
    resumed = Trainer(settings, env, tmp_path / "run")
    assert resumed.iteration == 2
    assert all(torch.equal(a, b) for a, b in zip(resumed.policy.parameters(), resumed.policy.parameters(), strict=True))
    assert {"reinforce", "sdpo"} <= set(ALGORITHMS)


@pytest.mark.usefixtures("package")
def test_both_can_be_named_where_users_write_them():
    """A constraint as one line, and the learner of an agent in a TOML file's table."""
    assert Constraint.from_spec("gap of reward <= 3").measure.kind == "gap"
    agent = AgentSettings.model_validate({"learner": {"kind": "reinforce", "baseline": 2}})
    assert agent.learner.baseline == 2.0
    assert AgentSettings.model_validate_json(agent.model_dump_json()) == agent


@pytest.mark.usefixtures("package")
def test_a_wrong_field_of_such_an_algorithm_keeps_its_path():
    with pytest.raises(SettingsError, match=r"^TrainSettings\.algorithm\.baseline: .* \(got 'x'\)\.$"):
        TrainSettings(problem=Problem(), algorithm={"kind": "reinforce", "baseline": "x"}, iterations=1, steps=1)


def test_an_unknown_algorithm_is_named_with_a_hint():
    with pytest.raises(SettingsError, match=r"algorithm: there is no .* 'sdop' \(did you mean 'sdpo'"):
        TrainSettings(problem=Problem(), algorithm={"kind": "sdop"}, iterations=1, steps=1)
    with pytest.raises(SettingsError, match="algorithm: must be the settings of an algorithm, or a table"):
        TrainSettings(problem=Problem(), algorithm=3, iterations=1, steps=1)
    with pytest.raises(SettingsError, match=r"there is no such field \(did you mean 'clip'\?\)"):
        TrainSettings(problem=Problem(), algorithm={"kind": "ppo", "clipp": 0.1}, iterations=1, steps=1)
