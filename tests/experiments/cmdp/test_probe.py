"""The probe tells the truth, cheaply repeatable, and the learner does not notice it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from portfolio_sdpo.envs import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.envs.exact import evaluate, uniform_policy
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.probe import Probe, compute_exact_figures, sample_figures, sharp_kind
from portfolio_sdpo.experiments.cmdp.study import CmdpRun
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl import Problem, Trainer
from portfolio_sdpo.rl.checkpoint import checkpoints

PROBE_COLUMNS = ("true_", "exact_", "integrated_")
SPECS = ("variance of reward <= 4", "cvar(0.1) of reward >= 5", "expectation of wear <= 9 discount=1")


@pytest.fixture
def problem() -> Problem:
    return Problem(discount=0.95, constraints=tuple(map(Constraint.from_spec, SPECS)))


@pytest.fixture
def cmdp():
    return random_cmdp(20, 3, seed=5, noise_scale=1.0, horizon=15, costs=("wear",))


@pytest.fixture
def policy(cmdp) -> Policy:
    """Depends on state and time."""
    environment = RandomCmdpVectorEnv(cmdp, 2)
    torch.manual_seed(0)
    policy = Policy(ObservationCodec(environment.single_observation_space), environment.single_action_space, (8,))
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter)
    return policy


def test_table_is_the_policy(cmdp, policy, problem):
    table = Probe(cmdp, problem, seed=0).table(policy)
    assert table.shape == (15, 20, 3)
    environment = RandomCmdpVectorEnv(cmdp, 4)
    observation, _ = environment.reset(seed=3)
    for _ in range(7):
        observation, *_ = environment.step(np.array([0, 1, 2, 0]))
    codec = ObservationCodec(environment.single_observation_space)
    expected = torch.softmax(policy(codec.encode(observation, 4)), -1).detach().numpy()
    np.testing.assert_allclose(table[7, observation["state"]], expected, rtol=1e-5)


def test_sampled_and_exact_figures_agree(cmdp, policy, problem):
    """On many episodes; the pooled variance is the pooled one."""
    table = Probe(cmdp, problem, seed=0).table(policy)
    sampled, returns = sample_figures(cmdp, table, problem, 40_000, lambda: np.random.default_rng(1))
    exact = compute_exact_figures(cmdp, table, problem, 20_000, seed=2)
    moments = evaluate(cmdp, table, 0.95)
    error = returns.std() / 200
    assert sampled["true_return"] == pytest.approx(exact["exact_return"], abs=4 * error)
    assert exact["exact_return"] == moments.mean
    assert exact["exact_risk_0"] == moments.variance
    pooled = moments.variance + moments.initial @ (moments.means - moments.mean) ** 2
    assert sampled["true_risk_0"] == pytest.approx(pooled, rel=0.03)
    assert sampled["true_risk_0"] > exact["exact_risk_0"]
    assert sampled["true_risk_1"] == pytest.approx(exact["integrated_risk_1"], abs=0.1)
    assert exact["exact_risk_2"] == evaluate(cmdp, table, 1.0, "wear").mean
    assert sampled["true_risk_2"] == pytest.approx(exact["exact_risk_2"], abs=0.1)


def test_how_each_risk_is_known(cmdp, problem):
    table = np.broadcast_to(uniform_policy(cmdp), (15, 20, 3))
    figures = compute_exact_figures(cmdp, table, problem, 100, seed=0)
    assert [sharp_kind(figures, index) for index in range(4)] == ["exact", "integrated", "exact", None]


def test_episodes_are_fresh_in_every_iteration_and_the_same_every_time(cmdp, policy, problem):
    probe = Probe(cmdp, problem, seed=3, episodes=100)
    assert probe(policy, 0) == Probe(cmdp, problem, seed=3, episodes=100)(policy, 0)
    others = [probe(policy, 1), Probe(cmdp, problem, seed=4, episodes=100)(policy, 0)]
    for other in others:
        assert other["true_return"] != probe(policy, 0)["true_return"]
        assert other["exact_return"] == probe(policy, 0)["exact_return"]


@pytest.mark.parametrize("label", ["ppo", "sdpo"])
def test_training_is_the_same_with_and_without_it(tiny: CmdpExperiment, tmp_path: Path, label: str):
    cmdp = tiny.cmdp.draw(11)
    logs, weights = [], []
    for name in ("with", "without"):
        case = CmdpRun(tiny, label, 11, 0, tmp_path / name)
        probe = Probe(cmdp, tiny.problem, case.seed, episodes=50) if name == "with" else None
        trainer = Trainer(case.settings(cmdp), RandomCmdpVectorEnv(cmdp, tiny.episodes), case.folder, probe)
        logs.append(trainer.run())
        weights.append(checkpoints(case.folder)[-1].read_bytes())
    probed, plain = logs
    assert weights[0] == weights[1]
    assert [{k: v for k, v in row.items() if not k.startswith(PROBE_COLUMNS)} for row in probed] == plain
    assert {name for name in probed[0] if name.startswith(PROBE_COLUMNS)} == {
        "true_return",
        "true_risk_0",
        "exact_return",
        "exact_risk_0",
    }
