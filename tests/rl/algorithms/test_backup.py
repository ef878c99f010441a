"""Episodes begin at rest: who acts when, what is learnt from, and how large the policy's share becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl import Trainer, TrainSettings
from portfolio_sdpo.rl.algorithms import ActorSettings, BackupSettings, IpoSettings, Problem, SdpoSettings
from portfolio_sdpo.rl.algorithms.backup import REST_STD, Backup, LatePolicy
from portfolio_sdpo.rl.algorithms.ipo import Ipo
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.estimators.base import RiskEstimate
from portfolio_sdpo.rl.rollout import Collector

HORIZON = 10
FIT: dict[str, Any] = {"hidden": (8,), "epochs": 1, "minibatches": 1, "warm_up": 1}
ACTOR = ActorSettings(hidden=(8,), learning_rate=1e-2, initial_std=0.5)


class Walk(VectorEnv[Any, Any, Any]):
    """Ten steps; the observation is a constant and the clock, an action earns itself and costs `pain` 1 if it moves."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int = 4) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.single_action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)

    def _observe(self) -> Any:
        return np.tile(np.array([1.0, self.steps / HORIZON], np.float32), (self.num_envs, 1))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return self._observe(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.steps += 1
        done = np.full(self.num_envs, self.steps == HORIZON)
        moved = (np.abs(np.asarray(actions)[:, 0]) > 0.05).astype(float)
        final = self._observe()
        info: dict[str, Any] = {"pain": moved}
        if done.all():
            info = {"final_obs": final, "final_info": {"pain": moved}}
            self.steps = 0
        return self._observe(), np.asarray(actions)[:, 0].astype(float), np.zeros_like(done), done, info


def problem(bound: float = 4.0, **options: Any) -> Problem:
    return Problem(constraints=(Constraint.from_spec(f"expectation of pain <= {bound} discount=1 eta=2 margin=1"),))


def settings(kind: type[SdpoSettings] | type[IpoSettings] = SdpoSettings, **options: Any) -> Any:
    critic = CriticSettings(kind="quantile" if kind is SdpoSettings else "mean", atoms=8, dimension=8, **FIT)
    return kind(actor=ACTOR, critic=critic, epochs=1, **{"backup": BackupSettings(share=0.3), **options})


def risk(estimate: float, standard_error: float) -> RiskEstimate:
    return RiskEstimate(estimate, standard_error, plug_in=estimate, advantage=torch.zeros(1))


def test_it_rests_until_its_share_is_left(make):
    learner = make(Sdpo, settings(), problem(), Walk())
    observation = torch.tensor([[1.0, clock / HORIZON] for clock in range(HORIZON)])
    parameters = learner.policy(observation)
    at_rest = parameters[:, 1].exp().isclose(torch.tensor(REST_STD))
    assert at_rest.tolist() == [clock < 7 for clock in range(HORIZON)]
    assert (parameters[at_rest, 0] == 0).all()
    parameters.sum().backward()
    assert learner.policy.log_std.grad.item() == 3  # what rests has no gradient


def test_only_what_the_policy_did_is_learnt_from(make):
    """Three of ten steps, as episodes that begin there; their costs are those of the batch."""
    learner = make(Sdpo, settings(), problem(), Walk())
    rollout = Collector(Walk(), ["pain"], HORIZON, seed=0).collect(learner.policy, 0)
    cut = learner.backup.cut_rest(rollout)
    assert (len(cut), cut.episodes) == (12, 4)
    assert cut.step.tolist() == [0, 1, 2] * 4 and cut.episode.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert (cut.observation[:, 1] >= 0.7).all() and cut.ended[cut.ends].all()
    assert cut.returns("pain", 1.0).tolist() == rollout.returns("pain", 1.0).tolist()
    (extrapolated,) = learner.backup.extrapolate([risk(3.0, 0.6)])
    assert (extrapolated.estimate, extrapolated.standard_error) == (pytest.approx(10.0), pytest.approx(2.0))


def test_an_episode_without_a_share_is_left_out(make):
    """One that the batch cut before its policy's turn; the others keep their order."""
    learner = make(Sdpo, settings(), problem(), Walk())
    rollout = Collector(Walk(), ["pain"], HORIZON, seed=0).collect(learner.policy, 0)
    kept = (rollout.episode != 1) | (rollout.step < 5)
    names = ("observation", "action", "log_prob", "next_observation", "terminated", "ended", "last", "episode", "step")
    columns = {name: getattr(rollout, name)[kept] for name in names}
    columns["last"][14] = True
    shorter = replace(rollout, **columns, signals={name: values[kept] for name, values in rollout.signals.items()})
    cut = learner.backup.cut_rest(shorter)
    assert cut.episode.tolist() == [0] * 3 + [1] * 3 + [2] * 3 and cut.step.tolist() == [0, 1, 2] * 3


@pytest.mark.parametrize(
    ("estimate", "error", "expected"),
    [
        (1.0, 1.0, 0.33),  # may grow by a tenth
        (20.0, 0.0, 0.16),  # 0.8 of the bound 4
        (18.0, 2.0, 0.16),
        (1e9, 0.0, 0.01),  # never nothing
        (20.0, float("inf"), 0.16),  # a single episode has no standard error
        (0.0, 0.0, 0.33),
    ],
)
def test_the_share_is_what_the_bound_allows(estimate: float, error: float, expected: float):
    task = problem()
    policy = LatePolicy(ObservationCodec(Walk().single_observation_space), Walk().single_action_space, ACTOR, 0.3)
    backup = Backup(BackupSettings(share=0.3), policy, task)
    backup.extrapolate([risk(estimate, error)])
    log = backup.set_share()
    assert float(policy.share) == pytest.approx(expected) and log["acting_share"] == 1.0


@pytest.mark.parametrize(("algorithm", "kind"), [(Sdpo, SdpoSettings), (Ipo, IpoSettings)])
def test_the_bound_holds_from_the_first_batch_on(algorithm, kind, make, train):
    """Noise alone costs 9.2 an episode, more than twice the bound: the policy gets the share that keeps it."""
    learner = make(algorithm, settings(kind), problem(), Walk(8))
    rows = train(learner, Walk(8), 12, steps=HORIZON)
    assert rows[0]["acting_share"] == pytest.approx(0.3)
    assert max(row["risk_empirical_0"] for row in rows) <= 4
    # Prices are those of acting throughout, which is beyond the bound.
    assert all(row["slack_0"] < 0 and row["price_0"] == 0.5 for row in rows)
    assert all(row["acting_share"] > 0.25 for row in rows)


def test_with_all_of_the_episode_it_is_sdpo(make, train):
    """A bound that nothing can reach: to the last bit."""
    free = problem(bound=1000)
    learners = [
        make(Sdpo, settings(backup=backup), free, Walk()) for backup in (None, BackupSettings(share=1.0, aim=1))
    ]
    plain, late = (train(learner, Walk(), 3, steps=HORIZON) for learner in learners)
    assert [{name: row[name] for name in plain[0]} for row in late] == plain
    assert {row["acting_share"] for row in late} == {1.0}


@pytest.mark.parametrize("overlap", [False, True])
def test_the_share_survives_a_checkpoint(tmp_path, overlap: bool):
    whole = TrainSettings(
        problem=problem(),
        algorithm=settings(),
        iterations=4,
        steps=HORIZON,
        tensorboard=False,
        checkpoint_every=1,
        overlap=overlap,
    )
    trainer = Trainer(whole, Walk(), tmp_path / "whole")
    rows = trainer.run()
    begun = Trainer(whole, Walk(), tmp_path / "again")
    begun.run(lambda row: row["iteration"] == 1)
    again = Trainer(whole, Walk(), tmp_path / "again")
    assert again.run() == rows
    assert again.policy.share == trainer.policy.share > 0.3


def test_what_cannot_rest_is_refused(make, bandit):
    with pytest.raises(SettingsError, match=r"backup: rest keeps a bound '<=' on a cost, not 'expectation of reward"):
        make(Sdpo, settings(), Problem(constraints=(Constraint.from_spec("expectation of reward >= 1"),)), Walk())
    with pytest.raises(SettingsError, match="backup: resting needs actions of which zero stands still"):
        make(Sdpo, settings(), problem(), bandit([1.0, 0.0], pain=[1.0, 0.0]))
    with pytest.raises(SettingsError, match=r"BackupSettings\.share"):
        BackupSettings(share=0)
