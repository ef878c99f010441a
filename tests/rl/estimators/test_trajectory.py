"""Whole trajectories against slow loops, exact risks and their gradients by finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from portfolio_sdpo.envs.exact import enumerate_distribution
from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import Constraint, CVaR, Entropic, Expectation, Variance
from portfolio_sdpo.rl.algorithms.base import ActorSettings, Problem
from portfolio_sdpo.rl.algorithms.pd_var import PdVar, PdVarSettings
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo, SdpoSettings
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.estimators.trajectory import estimate_by_trajectories, score_weights
from portfolio_sdpo.rl.rollout import Collector

TABLE = ActorSettings(hidden=(), learning_rate=0.05)
CRITIC = CriticSettings(kind="quantile", hidden=(4,), dimension=4, atoms=4)
MEASURES = [Expectation(), Variance(), CVaR(alpha=0.3), CVaR(alpha=0.3, tail="upper"), Entropic(beta=-0.5)]
EACH = pytest.mark.parametrize(
    "measure", MEASURES, ids=lambda measure: f"{measure.label}-{getattr(measure, 'tail', '')}"
)


def problem(*specs, discount=0.9):
    return Problem(discount=discount, constraints=tuple(map(Constraint.from_spec, specs)))


def history_weights(returns, before, influence):
    """[E, H] the weights of PD-CVaR and PD-VAR as they are meant: u of what an episode did, less the mean of u of what
    it might have done with the other episodes' futures; all episodes are equally long."""
    episodes, horizon = before.shape
    weight = torch.zeros_like(before)
    for e in range(episodes):
        for t in range(horizon):
            futures = torch.stack([before[e, t] + returns[other] - before[other, t] for other in range(episodes)])
            weight[e, t] = influence(returns[e : e + 1])[0] - influence(futures).mean()
    return (weight - weight.mean(0)) * episodes / (episodes - 1)


@EACH
def test_weights_are_those_of_the_primal_dual_algorithms(measure, make):
    """PD-VAR's weights, a loop over pairs of episodes, and SDPO's advantage times γ^t are the same."""
    env = RandomCmdpVectorEnv(random_cmdp(5, 2, seed=0, noise_scale=1.0, horizon=4), 7)
    learner = make(PdVar, PdVarSettings(actor=TABLE), problem("variance of reward <= 1"), env)
    rollout = Collector(env, ["reward"], 4, seed=0).collect(learner.policy, 0)
    returns = rollout.returns("reward", 0.9)
    influence = measure.influence(returns)
    paid = (rollout.signals["reward"] * 0.9**rollout.step).view(7, 4)
    slow = history_weights(returns, paid.cumsum(1) - paid, influence)
    shared = learner.ascent.score_weights(rollout, ("reward", 0.9), influence)
    torch.testing.assert_close(shared.view(7, 4), slow, atol=1e-5, rtol=1e-5)
    found = estimate_by_trajectories(measure, ("reward", 0.9), rollout, partners=32)
    torch.testing.assert_close(found.advantage * 0.9**rollout.step, shared, atol=1e-5, rtol=1e-5)
    assert (found.estimate, found.standard_error) == pytest.approx(measure.estimate(returns))
    assert found.plug_in == found.estimate


@EACH
def test_the_gradient_is_that_of_the_exact_risk(measure, make):
    """On a CMDP without noise the distribution of the return is enumerated, and its risk differentiated."""
    cmdp = replace(random_cmdp(3, 2, seed=6, horizon=3), initial=np.array([1.0, 0.0, 0.0]))
    env = RandomCmdpVectorEnv(cmdp, 20_000)
    settings = SdpoSettings(actor=TABLE, estimator="trajectory")
    learner = make(Sdpo, settings, problem(), env)
    parameters = list(learner.policy.parameters())
    with torch.no_grad():
        for parameter in parameters:
            parameter.normal_(0.0, 0.5)
    rollout = Collector(env, ["reward"], 3, seed=0).collect(learner.policy, 0)
    found = estimate_by_trajectories(measure, ("reward", 0.9), rollout, partners=64)

    log_prob = learner.policy.head.log_prob(learner.policy(rollout.observation), rollout.action)
    surrogate = (log_prob * 0.9**rollout.step * found.advantage).sum() / rollout.episodes
    estimated = torch.cat([g.flatten() for g in torch.autograd.grad(surrogate, parameters)])

    time, state = torch.meshgrid(torch.arange(3.0) / 3, torch.arange(3.0), indexing="ij")

    def exact() -> float:
        with torch.no_grad():
            table = torch.softmax(learner.policy(torch.stack([state, time], -1)).double(), -1).numpy()
        values, weights = enumerate_distribution(cmdp, table, 0.9)[0]
        return measure(torch.from_numpy(values), torch.from_numpy(weights)).item()

    assert found.estimate == pytest.approx(exact(), abs=4 * found.standard_error + 1e-6)
    differences = []
    for parameter in parameters:
        flat = parameter.data.view(-1)
        for index in range(len(flat)):
            middle = float(flat[index])
            ends = []
            for shifted in (middle + 1e-2, middle - 1e-2):
                flat[index] = shifted
                ends.append(exact())
            flat[index] = middle
            differences.append((ends[0] - ends[1]) / 2e-2)
    true = torch.tensor(differences)
    assert torch.nn.functional.cosine_similarity(estimated, true, dim=0) > 0.97
    torch.testing.assert_close(estimated, true, atol=0.1 * float(true.abs().max()), rtol=0.1)


def test_an_expectation_is_the_return_to_go_against_the_others(by_hand):
    """Rewards (1, 3) and (2, 0), γ = ½: what is ahead of each step is 2.5, 3 and 2, 0."""
    rollout = by_hand([[1.0, 3.0], [2.0, 0.0]], [True, True])
    found = estimate_by_trajectories(Expectation(), ("reward", 0.5), rollout, partners=8)
    assert found.advantage.tolist() == pytest.approx([0.5, 3.0, -0.5, -3.0])
    assert found.estimate == pytest.approx(2.25)


def test_episodes_that_the_batch_cuts_do_not_count(by_hand):
    """Their returns are not known; they neither teach nor are they compared with."""
    rewards = [[1.0, 3.0], [5.0, 5.0, 5.0], [2.0, 0.0]]
    cut = by_hand(rewards, [True, False, False], truncated=[False, False, True])
    whole = by_hand([rewards[0], rewards[2]], [True, True])
    found, expected = (estimate_by_trajectories(Variance(), ("pain", 0.5), one, partners=8) for one in (cut, whole))
    assert (found.estimate, found.standard_error) == (expected.estimate, expected.standard_error)
    assert found.advantage[2:5].tolist() == [0.0] * 3
    torch.testing.assert_close(found.advantage[[0, 1, 5, 6]], expected.advantage)


def test_without_a_whole_episode_it_says_so(by_hand):
    with pytest.raises(SettingsError, match="estimator trajectory: learns from whole episodes, but none ends"):
        estimate_by_trajectories(Variance(), ("reward", 1.0), by_hand([[1.0], [2.0]], [False, False]), partners=8)


def test_few_partners_stand_for_all(make):
    """The baseline only removes noise: from four partners the weights have the same mean and are nearly as calm."""
    env = RandomCmdpVectorEnv(random_cmdp(5, 2, seed=0, noise_scale=1.0, horizon=6), 400)
    learner = make(PdVar, PdVarSettings(actor=TABLE), problem("variance of reward <= 1"), env)
    rollout = Collector(env, ["reward"], 6, seed=0).collect(learner.policy, 0)
    influence = Variance().influence(rollout.returns("reward", 0.9))
    all_of_them, few, none = (
        score_weights(rollout, ("reward", 0.9), influence, baseline, partners)
        for baseline, partners in (("history", 400), ("history", 4), ("batch", 1))
    )
    assert few.mean() == pytest.approx(0.0, abs=1e-4)
    assert all_of_them.var() <= few.var() < none.var()


def test_no_critics_are_built(bandit, make, train, probabilities):
    """SDPO by trajectories avoids the noisy arm without critics: none are built."""
    env = bandit([1.0, 0.8, 0.0], [2.0, 0.5, 0.0], envs=500)
    settings = SdpoSettings(actor=TABLE, estimator="trajectory", epochs=4, minibatches=1)
    learner = make(Sdpo, settings, problem("cvar(0.1) of reward >= -1.8 eta=1:5:30", discount=1.0), env)
    train(learner, env, 40)
    p = probabilities(learner)
    assert p[1] > 0.6 and p[0] < 0.25
    assert learner.critics is None and len(learner.optimisers()) == 1
