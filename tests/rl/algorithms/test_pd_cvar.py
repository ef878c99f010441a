"""PD-CVaR, and what PD-VAR shares with it."""

from __future__ import annotations

import copy

import pytest
import torch

from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import Constraint, CVaR
from portfolio_sdpo.rl.algorithms.base import ActorSettings, Problem
from portfolio_sdpo.rl.algorithms.pd_cvar import PdCvar, PdCvarSettings
from portfolio_sdpo.rl.algorithms.pd_var import PdVar, PdVarSettings
from portfolio_sdpo.rl.rollout import Collector

LINEAR = ActorSettings(hidden=(), learning_rate=0.02, initial_std=0.1)
LOWER, UPPER = "cvar(0.1) of reward >= -0.755", "cvar(0.1) of energy <= 1.2"
EACH = pytest.mark.parametrize(
    "algorithm, settings, spec",
    [
        (PdCvar, PdCvarSettings, LOWER),
        (PdCvar, PdCvarSettings, UPPER),
        (PdVar, PdVarSettings, "variance of reward <= 1"),
    ],
)


def problem(*specs, discount=1.0):
    return Problem(discount=discount, constraints=tuple(map(Constraint.from_spec, specs)))


def exposure_mean(algorithm):
    with torch.no_grad():
        return float(algorithm.policy(torch.ones(1, 1))[0, 0])


def test_ends_at_the_known_optimum_of_a_reward(exposure, make, train):
    """CVaR = m − 1.755 m² ≥ −0.755 at m = 1, where the multiplier is 1 / (2 · 1.755 − 1) = 0.4."""
    settings = PdCvarSettings(actor=LINEAR, multiplier_rate=0.003, multiplier_start=0.3)
    learner = make(PdCvar, settings, problem(LOWER), exposure)
    tail = train(learner, exposure, 300)[-150:]
    assert sum(row["return"] for row in tail) / 150 == pytest.approx(1.0, abs=0.15)
    assert sum(row["risk_0"] for row in tail) / 150 == pytest.approx(-0.755, abs=0.25)
    assert sum(row["price_0"] for row in tail) / 150 == pytest.approx(0.4, abs=0.1)
    mean = exposure_mean(learner)
    assert mean == pytest.approx(1.0, abs=0.2)
    assert float(learner.nu[0]) == pytest.approx(mean - 1.2816 * mean**2, abs=0.3)


def test_ends_at_the_known_optimum_of_a_cost(exposure, make, train):
    """The upper tail of a²: with a deviation of s, CVaR ≈ m² + 2 · 1.755 m s ≤ 1.2, so m stays below 1.1."""
    learner = make(PdCvar, PdCvarSettings(actor=LINEAR, multiplier_rate=0.05), problem(UPPER), exposure)
    rows = train(learner, exposure, 200)
    assert 0.7 < exposure_mean(learner) < 1.1
    assert sum(row["risk_0"] for row in rows[-60:]) / 60 == pytest.approx(1.2, abs=0.1)
    assert rows[-1]["return"] > rows[0]["return"] + 0.5


def test_avoids_the_bad_tail_of_a_bandit(bandit, make, train, probabilities):
    """Means 1, 0.8, 0 with deviations 2, 0.5, 0: under 0.1-CVaR ≥ −0.5 the second arm is best (its own is −0.08, the
    first one's −2.5)."""
    env = bandit([1.0, 0.8, 0.0], [2.0, 0.5, 0.0])
    settings = PdCvarSettings(actor=ActorSettings(hidden=(), learning_rate=0.05), multiplier_rate=0.02)
    learner = make(PdCvar, settings, problem("cvar(0.1) of reward >= -0.5"), env)
    train(learner, env, 150)
    p = probabilities(learner)
    assert p[1] > 0.75 and p[0] < 0.2


@EACH
@pytest.mark.parametrize("baseline", ["history", "batch"])
def test_score_weights_are_those_of_the_published_gradient(algorithm, settings, spec, baseline, make):
    """In the mean over many episodes, Σ_t ∇ln π · w_t agrees with ∇ln P · u(Y) for any baseline."""
    cmdp = random_cmdp(3, 2, seed=0, noise_scale=1.0, horizon=3, costs=("energy",))
    env = RandomCmdpVectorEnv(cmdp, 20000)
    learner = make(algorithm, settings(actor=LINEAR, baseline=baseline), problem(spec, discount=0.9), env)
    rollout = Collector(env, ["reward", "energy"], 3, seed=0).collect(learner.policy, 0)
    key = learner.problem.budget_keys()[0]
    returns = rollout.returns(*key)
    _, influence = learner.follow(0, learner.problem.constraints[0], returns.double())

    def gradient(weights):
        log_prob = learner.policy.head.log_prob(learner.policy(rollout.observation), rollout.action)
        mean = (log_prob * weights).sum() / rollout.episodes
        return torch.cat([g.flatten() for g in torch.autograd.grad(mean, list(learner.policy.parameters()))])

    published = gradient((influence(returns) - influence(returns).mean())[rollout.episode])
    weights = learner.ascent.score_weights(rollout, key, influence)
    torch.testing.assert_close(gradient(weights), published, atol=0.02, rtol=0.05)
    if baseline == "history":
        assert weights.var() < influence(returns).var()


def test_the_history_baseline_of_an_expectation_is_the_return_to_go(make):
    env = RandomCmdpVectorEnv(random_cmdp(5, 2, seed=0, noise_scale=1.0, horizon=4), 6)
    learner = make(PdVar, PdVarSettings(), problem("variance of reward <= 1", discount=0.9), env)
    rollout = Collector(env, ["reward"], 4, seed=0).collect(learner.policy, 0)
    weights = learner.ascent.score_weights(rollout, ("reward", 0.9), lambda y: y).view(6, 4)
    paid = (rollout.signals["reward"] * 0.9**rollout.step).view(6, 4)
    ahead = paid.flip(1).cumsum(1).flip(1)
    others = (ahead.sum(0) - ahead) / 5
    torch.testing.assert_close(weights, ahead - others, atol=1e-5, rtol=1e-5)


@EACH
def test_a_single_episode_still_teaches(algorithm, settings, spec, make, train):
    env = RandomCmdpVectorEnv(random_cmdp(3, 2, seed=0, noise_scale=1.0, horizon=3, costs=("energy",)), 1)
    learner = make(algorithm, settings(actor=LINEAR), problem(spec), env)
    before = [parameter.clone() for parameter in learner.policy.parameters()]
    (row,) = train(learner, env, 1, steps=3)
    assert any((new != old).any() for new, old in zip(learner.policy.parameters(), before, strict=True))
    assert all(value == value for value in row.values() if isinstance(value, float))


@EACH
def test_state_and_columns(algorithm, settings, spec, exposure, make, train):
    """Everything that a restart needs is in the state, and the log has the columns of the other algorithms."""
    learner = make(algorithm, settings(actor=LINEAR, multiplier_start=2.0, multiplier_max=1.5), problem(spec), exposure)
    rows = train(learner, exposure, 3)
    state = copy.deepcopy(learner.state_dict())
    assert {"multiplier", "nu" if algorithm is PdCvar else "moments"} <= state.keys()
    assert rows[0]["price_0"] == 1.5 and float(state["multiplier"]) <= 1.5
    columns = {"return", "objective", "risk_0", "risk_empirical_0", "slack_0", "price_0", "kl", "entropy"}
    assert columns <= rows[0].keys()
    fresh = make(algorithm, settings(actor=LINEAR), problem(spec), exposure)
    fresh.load_state_dict(state)
    fresh.optimisers()[0].load_state_dict(copy.deepcopy(learner.optimisers()[0].state_dict()))
    assert train(fresh, exposure, 1) == train(learner, exposure, 1)


def test_several_constraints(exposure, make, train):
    learner = make(PdCvar, PdCvarSettings(actor=LINEAR, multiplier_rate=0.05), problem(LOWER, UPPER), exposure)
    row = train(learner, exposure, 2)[-1]
    assert {"risk_1", "price_1", "slack_1"} <= row.keys() and learner.nu.shape == (2,)


def test_refuses_other_measures(exposure, make):
    with pytest.raises(SettingsError, match="pd-cvar: bounds only the cvar, not variance"):
        make(PdCvar, PdCvarSettings(), problem("variance of reward <= 1"), exposure)
    with pytest.raises(SettingsError, match="pd-cvar: bounds only the cvar, not expectation"):
        make(PdCvar, PdCvarSettings(), problem("expectation of energy <= 1"), exposure)
    with pytest.raises(SettingsError, match="pd-cvar: maximises only the expectation"):
        make(PdCvar, PdCvarSettings(), Problem(objective=CVaR(alpha=0.1)), exposure)


@EACH
def test_the_learning_rate_falls(algorithm, settings, spec, exposure, make, train):
    actor = ActorSettings(hidden=(), learning_rate=0.1, anneal=10)
    learner = make(algorithm, settings(actor=actor), problem(spec), exposure)
    train(learner, exposure, 6)
    assert learner.ascent.optimiser.param_groups[0]["lr"] == pytest.approx(0.055)


@EACH
def test_only_whole_episodes_count(algorithm, settings, spec, make, train):
    """Of 5 steps the last is the beginning of an episode that the batch cuts: it changes nothing."""
    cmdp = random_cmdp(3, 2, seed=0, noise_scale=1.0, horizon=4, costs=("energy",))
    env = RandomCmdpVectorEnv(cmdp, 20)
    learner = make(algorithm, settings(actor=LINEAR), problem(spec), env)
    rollout = Collector(env, ["reward", "energy"], 5, seed=0).collect(learner.policy, 0)
    assert rollout.episodes == 40
    row = learner.update(rollout, 0, torch.Generator())
    assert row["return"] == pytest.approx(rollout.whole().returns("reward", 1.0).mean().item())
    assert row["risk_empirical_0"] == pytest.approx(
        learner.problem.constraints[0].measure(rollout.whole().returns(*learner.problem.budget_keys()[0])).item()
    )
    cut = Collector(env, ["reward", "energy"], 3, seed=0).collect(learner.policy, 0)
    with pytest.raises(SettingsError, match="learns from whole episodes, but none ends within `steps`"):
        learner.update(cut, 0, torch.Generator())
