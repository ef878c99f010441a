"""The bank of critics: known distributions, exact calibration, units and averages that leave no trace."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from portfolio_sdpo.envs.exact import evaluate, uniform_policy
from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.networks import MeanCritic, ObservationCodec, Policy
from portfolio_sdpo.nn.quantiles import midpoints
from portfolio_sdpo.risk import Constraint, Expectation, Variance
from portfolio_sdpo.rl.algorithms import Problem
from portfolio_sdpo.rl.critics import CriticBank, CriticSettings, minibatches
from portfolio_sdpo.rl.estimators.score import ScoreEstimator, estimate_risk
from portfolio_sdpo.rl.past import batch_past
from portfolio_sdpo.rl.rollout import Collector, Rollout

REWARD, PAIN = ("reward", 0.9), ("pain", 1.0)
LINE = ObservationCodec(spaces.Box(0, 9, (1,)))
SMALL = CriticSettings(kind="quantile", hidden=(16,), dimension=32, atoms=16)


def bank(settings=SMALL, keys=(REWARD,), codec=LINE, seed=0):
    torch.manual_seed(seed)
    return CriticBank(codec, keys, settings)


def one_step(count, generator):
    """Two states, one step: the reward is 50 plus an exponential of mean 1 or 2, the pain 0 or 8 with odds 3 : 1."""
    state = torch.arange(count) % 2
    exponential = torch.empty(count).exponential_(generator=generator)
    pain = 8 * (torch.rand(count, generator=generator) < 0.25).float()
    ends = torch.ones(count, dtype=torch.bool)
    return Rollout(
        observation=state.unsqueeze(-1).float(),
        action=torch.zeros(count, dtype=torch.int64),
        log_prob=torch.zeros(count),
        signals={"reward": 50 + (1 + state) * exponential, "pain": pain},
        next_observation=torch.zeros(count, 1),
        terminated=ends,
        ended=ends,
        last=ends,
        episode=torch.arange(count),
        step=torch.zeros(count, dtype=torch.int64),
    )


@pytest.mark.parametrize("kind", ["mean", "quantile"])
def test_where_the_sum_of_a_signal_is_closed(kind, by_hand):
    """After a termination always, after a truncation if it is undiscounted, where the batch cuts the episode never."""
    rollout = by_hand([[1.0, 1.0]] * 3, [True, False, False], truncated=[False, True, False])
    plain = ("reward", 1.0)
    critics = bank(SMALL.model_copy(update={"kind": kind}), (REWARD, plain))
    for key, closed in ((REWARD, [True, False, False]), (plain, [True, True, False])):
        here, ahead = critics.predict(key, rollout, midpoints(4))
        assert (ahead[rollout.ends] == 0).all(-1).tolist() == closed
        assert ahead[rollout.starts].equal(here[rollout.starts + 1])
        assert (critics.value(key, rollout, 4).ahead[rollout.ends].abs().sum(-1) > 0).tolist()[-1]


@pytest.mark.parametrize("shared", [False, True])
def test_learns_known_laws(shared):
    """Quantiles, means and variances of an exponential and of a two-point distribution, from 40 batches of 200."""
    settings = CriticSettings(
        kind="quantile", hidden=(32,), dimension=64, atoms=64, epochs=4, learning_rate=3e-3, shared_trunk=shared
    )
    critics = bank(settings, (REWARD, PAIN), ObservationCodec(spaces.Discrete(2)))
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        rollout = one_step(200, generator)
        critics.fit(rollout, generator)
    states, tau = torch.tensor([[0.0], [1.0]]), midpoints(64)
    with torch.no_grad():
        reward, pain = critics[REWARD](states, tau), critics[PAIN](states, tau)
    for distribution, size in zip(reward, (1, 2), strict=True):
        exact = -size * torch.log1p(-tau)
        assert (distribution - 50 - exact).abs().mean() < 0.1 * size
        assert distribution.mean() == pytest.approx(50 + size, abs=0.1 * size)
        assert distribution.var() == pytest.approx(exact.var().item(), rel=0.15)
    for distribution in pain:
        assert distribution.mean() == pytest.approx(2, abs=0.2)
        assert distribution.var() == pytest.approx(12, rel=0.15)


def test_learns_the_laws_of_a_cmdp():
    """Ten noisy steps, from λ-targets: the variance from every first state against the exact one."""
    cmdp = random_cmdp(6, 2, seed=0, noise_scale=1.0, horizon=10)
    env = RandomCmdpVectorEnv(cmdp, 60)
    codec = ObservationCodec(env.single_observation_space)
    policy = Policy(codec, env.single_action_space, hidden=())
    settings = CriticSettings(kind="quantile", hidden=(32,), dimension=64, atoms=32, learning_rate=3e-3)
    critics = bank(settings, (REWARD,), codec)
    generator = torch.Generator().manual_seed(0)
    collector = Collector(env, [], 10, seed=0)
    for iteration in range(30):
        rollout = collector.collect(policy, iteration)
        critics.fit(rollout, generator)
    with torch.no_grad():
        distribution = critics[REWARD](torch.stack([torch.arange(6.0), torch.zeros(6)], -1), midpoints(64))
    exact = evaluate(cmdp, uniform_policy(cmdp), 0.9)
    assert distribution.mean() == pytest.approx(exact.mean, rel=0.04)
    assert np.corrcoef(distribution.mean(-1).numpy(), exact.means)[0, 1] > 0.8
    assert distribution.var(-1).mean() == pytest.approx(exact.variance, rel=0.2)


def test_mean_critics_learn_the_mean():
    critics = bank(CriticSettings(kind="mean", hidden=(16,)), (REWARD, PAIN), ObservationCodec(spaces.Discrete(2)))
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        rollout = one_step(200, generator)
        critics.fit(rollout, generator)
    assert isinstance(critics[PAIN], MeanCritic)
    with torch.no_grad():
        found = critics[REWARD](torch.tensor([[0.0], [1.0]]), midpoints(1)).flatten()
    assert found.tolist() == pytest.approx([51, 52], abs=0.2)


def test_distributions_ahead_stop_at_terminations_and_bootstrap_at_cuts(by_hand):
    rollout = by_hand([[1.0, 2.0, 3.0], [4.0], [5.0, 6.0]], [True, False, False])
    critics = bank()
    tau = midpoints(5)
    here, ahead = critics.predict(REWARD, rollout, tau)
    with torch.no_grad():
        direct = critics[REWARD](rollout.next_observation, tau)
    direct[2] = 0.0
    torch.testing.assert_close(here, critics[REWARD](rollout.observation, tau))
    torch.testing.assert_close(ahead, direct)


@pytest.mark.parametrize("kind", ["mean", "quantile"])
@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_targets(by_hand, kind, lam):
    """λ = 1: what was really received, and the critic where the episode was cut. λ = 0: one reward and the critic."""
    rollout = by_hand([[1.0, 2.0, 4.0], [8.0]], [True, False])
    critics = bank(SMALL.model_copy(update={"kind": kind, "target_lambda": lam}), (REWARD, PAIN))
    generator = torch.Generator().manual_seed(0)
    reward, pain = critics.targets(rollout, generator)
    assert reward.shape == pain.shape == (4, 1 if kind == "mean" else 16)
    assert (reward[2] == 4).all()
    if lam == 1:
        assert pain[:3].unique().tolist() == [40.0, 60.0, 70.0]
        torch.testing.assert_close(reward[0], torch.full_like(reward[0], 1 + 0.9 * 2 + 0.81 * 4))
    else:
        tau = midpoints(1) if kind == "mean" else torch.rand(16, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            torch.testing.assert_close(
                reward[[0, 1, 3]],
                torch.tensor([[1.0], [2.0], [8.0]]) + 0.9 * critics[REWARD](torch.tensor([[1.0], [2.0], [1.0]]), tau),
            )


@pytest.mark.parametrize("critic_bias", [0.0, 100.0])
def test_calibrated_means_are_exact_on_average(by_hand, critic_bias):
    """The mean over episodes of the value at s0 is that of the returns, and TD errors vanish on average at each step,
    also where episodes differ in length; beyond a cut stands the critic."""
    generator = torch.Generator().manual_seed(0)
    rewards = [torch.randn(length, generator=generator).tolist() for length in (3, 5, 1, 5, 2)]
    rollout = by_hand(rewards, [True, True, True, True, False])
    critics = bank()
    critics.averaged[0].location.fill_(critic_bias)
    valuation = critics.value(REWARD, rollout, atoms=8)
    _, raw = critics.predict(REWARD, rollout, midpoints(8))
    returns = rollout.returns("reward", 0.9)
    returns[4] += 0.81 * raw[rollout.ends[4]].mean()
    assert valuation.here[rollout.starts].mean() == pytest.approx(returns.mean().item(), rel=1e-4, abs=1e-4)
    by_step = rollout.grid.lay_out(valuation.increments).sum(1)
    # At steps 3 and 4 two episodes are left; a single one would keep its own residual.
    torch.testing.assert_close(by_step, torch.zeros(5), atol=2e-3, rtol=0)
    found = estimate_risk(Expectation(), REWARD, rollout, valuation, 0.9)
    assert found.estimate == pytest.approx(returns.mean().item(), rel=1e-4, abs=1e-3)


def test_one_step_variance_is_the_sample_variance(by_hand):
    """Known answer: with one state and one step, whatever the critic says."""
    rewards = [[1.0], [2.0], [4.0], [9.0]]
    rollout = by_hand(rewards, [True] * 4)
    valuation = bank().value(REWARD, rollout, atoms=8)
    for past in (None, batch_past(rollout.signals["reward"], 0.9, rollout, partners=32)):
        found = estimate_risk(Variance(), REWARD, rollout, valuation, 0.9, past)
        assert found.estimate == pytest.approx(np.var([1, 2, 4, 9], ddof=1), rel=1e-5)


def test_a_single_episode_is_not_calibrated(by_hand):
    """One episode would explain itself away: the critic's means stay as they are."""
    rollout = by_hand([[1.0, 2.0]], [True])
    critics = bank()
    valuation = critics.value(REWARD, rollout, atoms=8)
    here, ahead = critics.predict(REWARD, rollout, midpoints(8))
    torch.testing.assert_close(valuation.here.mean(-1), here.mean(-1))
    torch.testing.assert_close(valuation.ahead.mean(-1), ahead.mean(-1))
    assert valuation.increments.isfinite().all()


def test_increments_are_those_of_the_laws(by_hand):
    """δ = r + γ E[ahead] − E[here] holds for what `value` returns, stretched or not."""
    rollout = by_hand([[1.0, 2.0, 3.0], [0.5, -1.0], [2.0, 2.0]], [True, False, True])
    valuation = bank().value(REWARD, rollout, atoms=8)
    again = rollout.signals["reward"] + 0.9 * valuation.ahead.mean(-1) - valuation.here.mean(-1)
    torch.testing.assert_close(again, valuation.increments, atol=1e-5, rtol=1e-5)


def test_new_units_change_no_prediction():
    critics = bank()
    critics.fits += 1
    states, tau = torch.rand(20, 1), midpoints(9)
    before = [critic(states, tau) for critic in (critics.online[0], critics[REWARD])]
    for _ in range(30):
        critics._follow_units(REWARD, 1000 + 30 * torch.randn(50, 8))
    assert critics[REWARD].location > 900 and critics[REWARD].scale > 20
    for critic, old in zip((critics.online[0], critics[REWARD]), before, strict=True):
        torch.testing.assert_close(critic(states, tau), old, atol=2e-3, rtol=1e-4)


def test_starts_where_the_first_targets_are():
    """A distribution of mean 1000 and deviation 1 would otherwise be a thousand units away."""
    critics = bank()
    critics._follow_units(REWARD, 1000 + torch.randn(50, 8))
    assert (critics[REWARD](torch.rand(20, 1), midpoints(9)) - 1000).abs().max() < 5


def test_targets_without_spread_are_no_obstacle(by_hand):
    rollout = by_hand([[0.0, 0.0]] * 4, [True] * 4)
    critics = bank(keys=(REWARD, PAIN))
    for _ in range(3):
        row = critics.fit(rollout, torch.Generator().manual_seed(0))
    assert np.isfinite(row["critic_loss"])
    assert critics[PAIN](rollout.observation, midpoints(4)).abs().max() < 0.05


def test_averaged_weights(by_hand):
    """With `averaging` 0 the newest weights are read; else they lag, and move towards the newest."""
    rollout = by_hand([[1.0, 2.0], [3.0, 4.0]], [True, True])
    newest = bank(SMALL.model_copy(update={"averaging": 0.0}))
    lagging = bank(SMALL.model_copy(update={"averaging": 0.99}))
    start = [parameter.clone() for parameter in lagging.averaged.parameters()]
    for critics in (newest, lagging):
        critics.fit(rollout, torch.Generator().manual_seed(0))
    pairs = list(zip(newest.averaged.parameters(), newest.online.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    pairs = list(zip(lagging.averaged.parameters(), lagging.online.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in pairs)
    assert any((a != s).any() for (a, _), s in zip(pairs, start, strict=True))
    assert not any(parameter.requires_grad for parameter in lagging.averaged.parameters())


@pytest.mark.parametrize(("transitions", "used"), [(None, 40), (1000, 40), (12, 12)])
def test_a_fit_may_use_a_part_of_the_rollout(monkeypatch, transitions, used):
    generator = torch.Generator().manual_seed(0)
    rollout = one_step(40, generator)
    critics = bank(SMALL.model_copy(update={"transitions": transitions, "warm_up": 1}))
    seen = []
    monkeypatch.setattr(critics, "regress", lambda inputs, targets, _: seen.append((inputs, targets)) or 0.0)
    critics.fit(rollout, generator)
    ((inputs, (targets,)),) = seen
    assert len(inputs) == len(targets) == used
    # Rows stay together: a target is one of its own state's rewards.
    given = torch.stack([rollout.observation[:, 0], rollout.signals["reward"]], -1).tolist()
    assert all(row in given for row in torch.stack([inputs[:, 0], targets[:, 0]], -1).tolist())


def test_keys_share_a_critic_only_if_signal_and_discount_agree():
    critics = bank(keys=(REWARD, PAIN, REWARD, ("reward", 1.0)))
    assert critics.keys == [REWARD, PAIN, ("reward", 1.0)] and len(critics.online) == 3
    assert critics[REWARD] is not critics["reward", 1.0]


def test_a_shared_trunk_is_one_and_is_optimised_once(by_hand):
    critics = bank(SMALL.model_copy(update={"shared_trunk": True}), keys=(REWARD, PAIN))
    for side in (critics.online, critics.averaged):
        assert side[0].trunk is side[1].trunk
    optimised = [id(p) for group in critics.optimiser.param_groups for p in group["params"]]
    assert len(optimised) == len(set(optimised)) == len(list(critics.online.parameters()))
    before = critics.online[0].trunk.first.linear.weight.clone()
    rollout = by_hand([[1.0, 2.0], [3.0, 4.0]], [True, True])
    critics.fit(rollout, torch.Generator().manual_seed(0))
    assert not critics.online[0].trunk.first.linear.weight.equal(before)


def test_decay_reaches_only_the_rows_of_states():
    settings = SMALL.model_copy(update={"table_decay": 0.5})
    critics = bank(settings, codec=ObservationCodec(spaces.Discrete(5)))
    decays = {group["weight_decay"]: group["params"] for group in critics.optimiser.param_groups}
    assert [tuple(p.shape) for p in decays[0.5]] == [(5, 16)]
    assert sum(p.numel() for ps in decays.values() for p in ps) == sum(p.numel() for p in critics.online.parameters())


@given(count=st.integers(1, 50), parts=st.integers(1, 60))
def test_minibatches_are_a_partition(count, parts):
    batches = list(minibatches(count, parts, torch.Generator().manual_seed(0)))
    assert torch.cat(batches).sort().values.tolist() == list(range(count))
    sizes = [len(batch) for batch in batches]
    assert len(batches) == min(count, parts) and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "field, value", [("hidden", ()), ("target_lambda", 1.1), ("averaging", 1.0), ("kappa", -1.0), ("atoms", 0)]
)
def test_wrong_settings_name_their_field(field, value):
    with pytest.raises(SettingsError, match=field):
        CriticSettings(kind="quantile", **{field: value})


@pytest.mark.parametrize("fit_first", [True, False])
def test_a_trunk_sees_a_rollout_once_for_each_state_of_the_critics_that_is_read(fit_first, by_hand):
    """Before and after the fit; once where both readings are before it."""
    settings = SMALL.model_copy(update={"fit_first": fit_first, "warm_up": 1})
    constraints = tuple(map(Constraint.from_spec, ("expectation of pain <= 3 discount=1", "variance of pain <= 9")))
    problem = Problem(discount=0.9, constraints=constraints)
    torch.manual_seed(0)
    estimator = ScoreEstimator(problem, LINE, settings, gae_lambda=0.9, pooled=True)
    seen: list[int] = []
    for critic in estimator.critics.averaged:
        critic.trunk.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    estimator.fit_critics(by_hand([[1.0, 1.0]] * 3, [True] * 3), torch.Generator().manual_seed(0))
    assert seen.count(6) == len(estimator.critics.keys) * (2 if fit_first else 1)
