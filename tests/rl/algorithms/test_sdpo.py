"""SDPO beyond expectations: any measure as constraint or objective, by both estimators. Expectations: see test_ipo."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from portfolio_sdpo.envs.exact import evaluate, solve_variance, uniform_policy
from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import Constraint, CVaR, Variance
from portfolio_sdpo.rl.algorithms.base import ActorSettings, Problem
from portfolio_sdpo.rl.algorithms.ppo import Ppo, PpoSettings
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo, SdpoSettings
from portfolio_sdpo.rl.critics import CriticSettings

CRITIC = CriticSettings(
    kind="quantile", hidden=(16,), dimension=16, atoms=16, epochs=4, minibatches=2, learning_rate=1e-2, averaging=0.9
)
TABLE = ActorSettings(hidden=(), learning_rate=0.06, anneal=60)
ESTIMATORS = pytest.mark.parametrize("estimator", ["score", "pathwise"])


def options(**given):
    fields = {"actor": TABLE, "critic": CRITIC, "epochs": 4, "minibatches": 1, "smoothing": 0.5, "risk_atoms": 16}
    return SdpoSettings(**(fields | given))


def problem(*specs, discount=1.0, **fields):
    return Problem(discount=discount, constraints=tuple(map(Constraint.from_spec, specs)), **fields)


def mixture_cvar(p, means, deviations, alpha):
    """Lower CVaR of a mixture of normal arms: the quantile by bisection, then the tail's mean."""
    p, means, deviations = (np.asarray(x, dtype=float) for x in (p, means, np.maximum(deviations, 1e-9)))
    low, high = -20.0, 20.0
    for _ in range(80):
        middle = (low + high) / 2
        below = p @ norm.cdf((middle - means) / deviations)
        low, high = (middle, high) if below < alpha else (low, middle)
    z = (low - means) / deviations
    return low - (p @ ((low - means) * norm.cdf(z) + deviations * norm.pdf(z))) / alpha


@ESTIMATORS
def test_avoids_the_bad_tail_of_a_bandit(estimator, bandit, make, train, probabilities):
    """Means 1, 0.8, 0 with deviations 2, 0.5, 0: the first arm's 0.1-CVaR is −2.5, the second's −0.08. From a feasible
    start (a bound below the uniform policy's −1.5) the second arm has to be found without ever taking the first."""
    means, deviations = [1.0, 0.8, 0.0], [2.0, 0.5, 0.0]
    env = bandit(means, deviations, envs=500)
    assert mixture_cvar([1 / 3] * 3, means, deviations, 0.1) > -1.8
    learner = make(Sdpo, options(estimator=estimator), problem("cvar(0.1) of reward >= -1.8 eta=1:5:60"), env)
    risks = []
    for _ in range(5):
        rows = train(learner, env, 8)
        risks.append(mixture_cvar(probabilities(learner), means, deviations, 0.1))
    p = probabilities(learner).numpy()
    assert min(risks) > -1.8
    assert p @ means > 0.7
    assert rows[-1]["risk_0"] == pytest.approx(risks[-1], abs=0.4)


@ESTIMATORS
def test_variance_on_a_continuous_action(estimator, exposure, make, train):
    """Var(Y) = m⁴ + what the policy's own noise adds ≤ 1: the exposure comes near 1 and stays below."""
    env = type(exposure)(1000)
    actor = ActorSettings(hidden=(), learning_rate=0.05, initial_std=0.2, anneal=60)
    task = problem("variance of reward <= 1 eta=2:20:30")
    learner = make(Sdpo, options(actor=actor, estimator=estimator, epochs=3), task, env)
    rows = train(learner, env, 40)
    mean, log_std = learner.policy(torch.ones(1, 1))[0].tolist()
    s = math.exp(2 * log_std)
    variance = s + mean**4 + 6 * mean**2 * s + 3 * s**2
    assert mean > 0.7 and variance < 1.05
    assert np.mean([row["risk_0"] for row in rows[-10:]]) == pytest.approx(variance, abs=0.15)


def table(learner, cmdp):
    times, states = torch.arange(float(cmdp.horizon)) / cmdp.horizon, torch.arange(float(cmdp.states))
    time, state = torch.meshgrid(times, states, indexing="ij")
    with torch.no_grad():
        return torch.softmax(learner.policy(torch.stack([state, time], -1)), -1).numpy()


@pytest.mark.parametrize("pooled", [True, None])
def test_variance_on_a_small_cmdp(make, train, pooled):
    """High reward is noisy. PPO breaks the bound; SDPO never does, by its true variance, and makes most of the gain.

    Backward critics (None, the default) are right wherever the state remembers the past; here it hardly does, and they
    must not cost any of the gain.
    """
    cmdp = random_cmdp(10, 3, seed=2, noise_scale=1.0, horizon=5)
    uniform = evaluate(cmdp, uniform_policy(cmdp), 0.95)
    bound = 1.1 * uniform.variance
    task = problem(f"variance of reward <= {bound} eta=3:20:40", discount=0.95)
    best = solve_variance(cmdp, bound=bound, discount=0.95)
    env = RandomCmdpVectorEnv(cmdp, 120)
    reached = {}
    for name, learner in {
        "sdpo": make(Sdpo, options(pooled=pooled), task, env),
        "ppo": make(Ppo, PpoSettings(actor=TABLE, epochs=4, minibatches=1), task, env),
    }.items():
        policies = []
        for _ in range(3):
            train(learner, env, 14, steps=5)
            policies.append(evaluate(cmdp, table(learner, cmdp), 0.95))
        reached[name] = policies
    assert all(policy.variance < bound for policy in reached["sdpo"])
    assert (reached["sdpo"][-1].mean - uniform.mean) / (best.mean - uniform.mean) > 0.65
    assert reached["ppo"][-1].variance > 1.1 * bound


@ESTIMATORS
@pytest.mark.parametrize("measure", ["variance", "cvar(0.2)"])
def test_the_barrier_reaches_the_policy(estimator, measure, bandit, make, train, probabilities):
    """Near the bound, at a high price, one update leads away from the noisy arm, which has the highest reward."""
    means, deviations = [1.0, 0.3, 0.2], [2.0, 0.1, 0.1]
    env = bandit(means, deviations, envs=1000)
    risk = mixture_cvar([1 / 3] * 3, means, deviations, 0.2)
    spec = f"cvar(0.2) of reward >= {risk - 0.05}" if "cvar" in measure else "variance of reward <= 1.5"
    learner = make(Sdpo, options(estimator=estimator), problem(f"{spec} eta=0.2"), env)
    free = make(Ppo, PpoSettings(actor=TABLE), Problem(), env)
    (row,) = train(learner, env, 1)
    train(free, env, 1)
    assert row["price_0"] > 5
    assert probabilities(learner)[0] < 1 / 3 - 0.01
    assert probabilities(free)[0] > 1 / 3 + 0.01


@pytest.mark.parametrize("cautious", [True, False])
def test_a_risk_measure_as_the_objective(cautious, bandit, make, train, probabilities):
    """Arms N(1, 2²), N(0.8, 0.3²), 0 with pain 0, 0.3, 1, E[pain] ≤ 0.5: the 0.1-CVaR is best at the second arm, the
    expectation at the first."""
    means, deviations = [1.0, 0.8, 0.0], [2.0, 0.3, 0.0]
    env = bandit(means, deviations, envs=500, pain=[0.0, 0.3, 1.0])
    objective = {"objective": CVaR(alpha=0.1)} if cautious else {}
    learner = make(Sdpo, options(), problem("expectation of pain <= 0.5 eta=20", **objective), env)
    start = mixture_cvar(probabilities(learner), means, deviations, 0.1)
    rows = train(learner, env, 40)
    p = probabilities(learner).numpy()
    assert p @ [0.0, 0.3, 1.0] <= 0.5
    assert p[1 if cautious else 0] > 0.8
    if cautious:
        end = mixture_cvar(p, means, deviations, 0.1)
        assert end > start + 1
        assert rows[-1]["objective"] == pytest.approx(end, abs=0.25)


def test_two_measures_of_two_signals(bandit, make, train, probabilities):
    """Arms (reward, its deviation, pain): a (1, 2, 0), b (1, 0.1, 1), c (0.2, 0.1, 0). Var ≤ 1.6 forbids much of a,
    E[pain] ≤ 0.45 much of b: the best mixture has all three."""
    means, deviations, pain = np.array([1.0, 1.0, 0.2]), np.array([2.0, 0.1, 0.1]), np.array([0.0, 1.0, 0.0])
    env = bandit(means.tolist(), deviations.tolist(), envs=500, pain=pain.tolist())
    task = problem("variance of reward <= 1.6 eta=5:30:40", "expectation of pain <= 0.45 eta=10:40:40 discount=0.9")
    learner = make(Sdpo, options(), task, env)
    rows = train(learner, env, 50)
    p = probabilities(learner).numpy()
    variance = p @ (deviations**2 + means**2) - (p @ means) ** 2
    assert variance <= 1.6 and p @ pain <= 0.45 + 0.02
    assert p @ means > 0.74  # at its best 0.86
    assert rows[-1]["suboptimality_bound"] == pytest.approx(1 / 30 + 1 / 40)
    assert rows[-1]["risk_0"] == pytest.approx(variance, abs=0.25)


def test_phase_one_of_the_pathwise_form_leaves_the_optimiser_usable(bandit, make, train, probabilities):
    """Without an advantage there is nothing to standardise by: steps must not be 10¹² times too large, or Adam's memory
    of them would stop all learning in phase II."""
    means, deviations = [1.0, 0.8, 0.0], [2.0, 0.3, 0.0]
    env = bandit(means, deviations, envs=500)
    task = problem("variance of reward <= 1.2 eta=5")
    learner = make(Sdpo, options(estimator="pathwise", phase_one=40), task, env)
    rows = train(learner, env, 30)
    phases = [row["phase"] for row in rows]
    assert phases[0] == 1 and phases[-1] == 2
    state = learner.ascent.optimiser.state_dict()["state"]
    assert max(float(entry["exp_avg_sq"].max()) for entry in state.values()) < 1e3
    p = probabilities(learner).numpy()
    assert p @ means > 0.7
    assert p @ (np.square(deviations) + np.square(means)) - (p @ means) ** 2 <= 1.2


def test_pathwise_only_where_it_is_needed(bandit, make):
    """Expectations have an exact advantage: no critic of actions is made for them."""
    env = bandit([1.0, 0.0], [1.0, 0.0], pain=[1.0, 0.0])
    both = problem("expectation of pain <= 0.9", "variance of reward <= 2")
    learner = make(Sdpo, options(estimator="pathwise"), both, env)
    assert learner.estimator.constraints == [1]
    assert list(learner.pathwise["critics"].keys) == list(learner.backward_critics.keys) == [("reward", 1.0)]
    assert len(learner.optimisers()) == 4  # of the policy, its critics, those of the past and those of actions
    linear = make(Sdpo, options(estimator="pathwise"), problem("expectation of pain <= 0.9"), env)
    assert linear.estimator.action_critics is None and len(linear.optimisers()) == 2


@ESTIMATORS
@pytest.mark.parametrize("pooled", [True, False])
def test_every_setting_runs(estimator, pooled, make, train):
    cmdp = random_cmdp(6, 2, seed=0, noise_scale=1.0, horizon=4, costs=("pain",))
    env = RandomCmdpVectorEnv(cmdp, 6)
    task = problem("cvar(0.2) of pain <= 4", "variance of reward <= 9", "wang(0.5) of reward >= -9", discount=0.9)
    chosen = options(
        estimator=estimator,
        pooled=pooled,
        partners=3,
        critic=CRITIC.model_copy(update={"shared_trunk": True}),
        entropy=0.01,
        actor=ActorSettings(hidden=(4,)),
    )
    rows = train(make(Sdpo, chosen, task, env), env, 2, steps=6)  # the second episode of each is cut
    assert all(math.isfinite(value) for row in rows for value in row.values() if isinstance(value, float))
    assert {"risk_2", "slack_2", "price_2", "regime_2"} <= rows[0].keys()


def test_mean_critics_are_refused_where_a_law_is_needed(exposure, make):
    mean = CriticSettings(kind="mean")
    with pytest.raises(SettingsError, match="sdpo: mean critics know nothing of variance; use quantile critics"):
        make(Sdpo, SdpoSettings(critic=mean), problem("variance of reward <= 1"), exposure)
    with pytest.raises(SettingsError, match="sdpo: maximises only the expectation with mean critics, not variance"):
        make(Sdpo, SdpoSettings(critic=mean), Problem(objective=Variance()), exposure)
    make(Sdpo, SdpoSettings(critic=mean), problem("expectation of energy <= 1"), exposure)


@pytest.mark.parametrize("field, value", [("risk_lambda", 1.5), ("risk_atoms", 1), ("partners", 0), ("estimator", "x")])
def test_wrong_settings_name_their_field(field, value):
    with pytest.raises(SettingsError, match=f"SdpoSettings.{field}"):
        SdpoSettings(**{field: value})
