"""CPO, and what PCPO shares with it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm
from torch.nn.utils import parameters_to_vector

from portfolio_sdpo.envs.exact import evaluate, solve_expectation
from portfolio_sdpo.envs.random_cmdp import Cmdp, RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import DivergenceError, SettingsError
from portfolio_sdpo.risk import Constraint, CVaR
from portfolio_sdpo.rl.algorithms.base import ActorSettings, Problem
from portfolio_sdpo.rl.algorithms.cpo import Cpo, CpoSettings, recovery_step, solve_dual
from portfolio_sdpo.rl.algorithms.pcpo import Pcpo, PcpoSettings
from portfolio_sdpo.rl.algorithms.trust_region import LocalModel, Surrogate, assign, conjugate_gradient, curvature
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.rollout import Collector, Purpose, stream, torch_generator

BOTH = pytest.mark.parametrize("algorithm, settings", [(Cpo, CpoSettings), (Pcpo, PcpoSettings)])
LINEAR = ActorSettings(hidden=())
CRITIC = CriticSettings(kind="mean", hidden=(16,), epochs=2, minibatches=2)
QUANTILE = CriticSettings(kind="quantile", hidden=(16,), dimension=16, atoms=16, epochs=2, minibatches=2, averaging=0.9)


def problem(*specs, discount=1.0):
    return Problem(discount=discount, constraints=tuple(map(Constraint.from_spec, specs)))


def model(seed, constraints, delta=0.05, parameters=5):
    """A random local model in double precision, and its H."""
    generator = torch.Generator().manual_seed(seed)
    root, g, b, c = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((parameters, parameters), (parameters,), (constraints, parameters), (constraints,))
    )
    h = root @ root.T + 0.1 * torch.eye(parameters, dtype=torch.float64)
    inverse = torch.linalg.inv(h)
    return LocalModel(g, b, 0.2 * c, inverse @ g, b @ inverse, delta), h


def best_by_slsqp(local, h):
    """Value and violation of the best step that a general solver finds."""
    constraints = [
        {"type": "ineq", "fun": lambda x: -(local.c.numpy() + local.b.numpy() @ x)},
        {"type": "ineq", "fun": lambda x: local.delta - 0.5 * x @ h.numpy() @ x},
    ]
    found = minimize(
        lambda x: -local.g.numpy() @ x,
        np.zeros(len(local.g)),
        jac=lambda x: -local.g.numpy(),
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    return -found.fun, found.success


@pytest.mark.parametrize("constraints", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_the_dual_solves_the_local_problem(constraints, seed):
    local, h = model(seed, constraints)
    value, feasible = best_by_slsqp(local, h)
    dual = solve_dual(local)
    assert (dual is not None) == feasible
    if dual is not None:
        lam, nu = dual
        step = (local.h_g - nu @ local.h_b) / lam
        assert local.g @ step == pytest.approx(value, rel=1e-4, abs=1e-7)
        assert 0.5 * step @ h @ step <= local.delta * (1 + 1e-9)
        assert (local.c + local.b @ step <= 1e-8).all()
        assert (nu >= 0).all()


def test_one_constraint_follows_the_closed_form_of_the_paper():
    """Theorem 2 of Achiam et al.: λ = √((q − r²/s) / (2δ − c²/s)), ν = (r + λc) / s where the constraint is active."""
    local, _ = model(seed=3, constraints=1)
    local = LocalModel(local.g, -local.b, torch.tensor([0.1]).double(), local.h_g, -local.h_b, local.delta)
    q, r, s, c, delta = local.q, float(local.r), float(local.s), 0.1, local.delta
    assert r / (q / (2 * delta)) ** 0.5 + c > 0 and c**2 / s < 2 * delta
    lam, nu = solve_dual(local)
    assert lam == pytest.approx(((q - r**2 / s) / (2 * delta - c**2 / s)) ** 0.5)
    assert float(nu) == pytest.approx((r + lam * c) / s)


def test_recovery_goes_to_the_rim_against_the_cost_alone():
    local, h = model(seed=0, constraints=1)
    local = LocalModel(local.g, local.b, torch.tensor([10.0]).double(), local.h_g, local.h_b, local.delta)
    assert solve_dual(local) is None
    step = recovery_step(local)
    assert 0.5 * step @ h @ step == pytest.approx(local.delta)
    expected = -((2 * local.delta / float(local.s)) ** 0.5) * torch.linalg.solve(h, local.b[0])
    torch.testing.assert_close(step, expected)


def test_recovery_with_contradicting_costs_decreases_the_worst():
    local, _ = model(seed=0, constraints=1)
    b = torch.cat([local.b, -local.b])
    h_b = torch.cat([local.h_b, -local.h_b])
    local = LocalModel(local.g, b, torch.tensor([2.0, 1.0]).double(), local.h_g, h_b, local.delta)
    assert solve_dual(local) is None
    assert b[0] @ recovery_step(local) < 0


def test_a_cost_without_gradient_is_no_obstacle():
    local, _ = model(seed=0, constraints=1)
    zero = torch.zeros_like(local.b)
    inside = LocalModel(local.g, zero, torch.tensor([-1.0]).double(), local.h_g, zero, local.delta)
    lam, nu = solve_dual(inside)
    assert lam == pytest.approx((local.q / (2 * local.delta)) ** 0.5) and float(nu) == 0
    broken = LocalModel(local.g, zero, torch.tensor([1.0]).double(), local.h_g, zero, local.delta)
    assert solve_dual(broken) is None
    assert not recovery_step(broken).any()


def test_curvature_is_the_fisher_matrix(bandit, make):
    """Of a softmax: diag(p) − ppᵀ, for the table of logits; conjugate gradients invert it once damped."""
    env = bandit([1.0, 0.0, 0.5], pain=[1.0, 0.0, 0.5])
    algorithm = make(Cpo, CpoSettings(actor=LINEAR), problem("expectation of pain <= 1"), env)
    (table,) = (p for p in algorithm.policy.parameters() if p.shape == (1, 3))
    with torch.no_grad():
        table.copy_(torch.tensor([[0.3, -0.2, 1.0]]))
    p = torch.softmax(table.detach()[0], -1)
    fisher = torch.diag(p) - torch.outer(p, p)
    product = curvature(algorithm.policy, torch.zeros(7, 2))
    names = [name for name, _ in algorithm.policy.named_parameters()]
    assert names[0] == "network.tables.0.weight"
    v = torch.zeros(sum(q.numel() for q in algorithm.policy.parameters()))
    v[:3] = torch.tensor([1.0, -2.0, 0.5])
    torch.testing.assert_close(product(v)[:3], fisher @ v[:3])
    solved = conjugate_gradient(lambda x: product(x) + 0.1 * x, v, iterations=20)
    torch.testing.assert_close(product(solved) + 0.1 * solved, v, atol=1e-4, rtol=1e-4)


@BOTH
def test_ends_at_the_known_optimum_of_a_bandit(algorithm, settings, bandit, make, train, probabilities):
    """Reward 1, 0.4, 0 at cost 1, 0.1, 0: with E[cost] ≤ 0.4 one third of the first arm is best, worth 0.6, at the
    price 0.6 / 0.9 of a unit of cost."""
    env = bandit([1.0, 0.4, 0.0], pain=[1.0, 0.1, 0.0])
    learner = make(algorithm, settings(actor=LINEAR, critic=CRITIC), problem("expectation of pain <= 0.4"), env)
    rows = train(learner, env, 50)
    p = probabilities(learner)
    assert p @ torch.tensor([1.0, 0.4, 0.0]) == pytest.approx(0.6, abs=0.04)
    assert p @ torch.tensor([1.0, 0.1, 0.0]) <= 0.4 + 0.03
    assert np.median([row["price_0"] for row in rows[-20:]]) == pytest.approx(2 / 3, abs=0.25)
    assert {"return", "objective", "risk_0", "risk_empirical_0", "slack_0", "kl", "entropy"} <= rows[-1].keys()


@BOTH
def test_holds_two_constraints_of_both_senses(algorithm, settings, bandit, make, train, probabilities):
    """pain ≤ 0.4 and joy ≥ 0.3: of arms (1, 1, 0), (0.4, 0.1, 0), (0, 0, 1) in (reward, pain, joy), the best mix is
    (0.367, 0.333, 0.3), worth 0.5."""
    env = bandit([1.0, 0.4, 0.0], pain=[1.0, 0.1, 0.0], joy=[0.0, 0.0, 1.0])
    bounds = problem("expectation of pain <= 0.4", "expectation of joy >= 0.3")
    learner = make(algorithm, settings(actor=LINEAR, critic=CRITIC), bounds, env)
    train(learner, env, 50)
    p = probabilities(learner)
    assert p @ torch.tensor([1.0, 0.4, 0.0]) == pytest.approx(0.5, abs=0.05)
    assert p @ torch.tensor([1.0, 0.1, 0.0]) <= 0.4 + 0.03
    assert p[2] >= 0.3 - 0.03


@BOTH
def test_near_the_linear_program_on_a_small_cmdp(algorithm, settings, make, train):
    """Discounts differ between reward and cost, episodes have ten steps: the units have to be right."""
    cmdp = random_cmdp(10, 3, seed=1, horizon=10, costs=("wear",))
    bounds = problem("expectation of wear <= 3.5 discount=1", discount=0.95)
    optimum = solve_expectation(cmdp, bounds.constraints, 0.95)
    env = RandomCmdpVectorEnv(cmdp, 100)
    learner = make(algorithm, settings(actor=LINEAR, critic=CRITIC, max_kl=0.02), bounds, env)
    train(learner, env, 60, steps=10)
    time, state = torch.meshgrid(torch.arange(10.0) / 10, torch.arange(10.0), indexing="ij")
    with torch.no_grad():
        policy = torch.softmax(learner.policy(torch.stack([state, time], -1)), -1).numpy()
    uniform = evaluate(cmdp, np.full((10, 3), 1 / 3), 0.95).mean
    reached = evaluate(cmdp, policy, 0.95).mean
    assert (reached - uniform) / (optimum.mean - uniform) >= 0.85
    assert evaluate(cmdp, policy, 1.0, "wear").mean <= 3.5 + 0.15


@BOTH
def test_an_infeasible_start_is_left(algorithm, settings, bandit, make, train, probabilities):
    """The trust region is too small to become feasible at once: every step until then decreases the cost."""
    env = bandit([1.0, 0.4, 0.0], pain=[1.0, 0.1, 0.0])
    learner = make(
        algorithm, settings(actor=LINEAR, critic=CRITIC, max_kl=1e-3), problem("expectation of pain <= 0.2"), env
    )
    pain = torch.tensor([1.0, 0.1, 0.0])
    costs, recoveries = [probabilities(learner) @ pain], []
    collector = Collector(env, ["reward", "pain"], 1, seed=0)
    for k in range(30):
        row = learner.update(collector.collect(learner.policy, k), k, torch_generator(stream(0, k, Purpose.UPDATE)))
        costs.append(probabilities(learner) @ pain)
        recoveries.append(row["recovery"])
    assert costs[0] == pytest.approx(1.1 / 3, abs=1e-4)
    assert all(after < before for before, after in zip(costs[:4], costs[1:5], strict=True))
    assert costs[-1] <= 0.2 + 0.03
    if algorithm is Cpo:
        assert all(recoveries[:4]) and not all(recoveries[-10:])


@BOTH
def test_no_update_leaves_the_trust_region(algorithm, settings, bandit, make):
    env = bandit([1.0, 0.4, 0.0], pain=[1.0, 0.1, 0.0])
    learner = make(
        algorithm, settings(actor=LINEAR, critic=CRITIC, max_kl=0.005), problem("expectation of pain <= 0.3"), env
    )
    collector = Collector(env, ["reward", "pain"], 1, seed=0)
    moved = []
    for k in range(15):
        rollout = collector.collect(learner.policy, k)
        with torch.no_grad():
            old = learner.policy(rollout.observation)
        learner.update(rollout, k, torch_generator(stream(0, k, Purpose.UPDATE)))
        with torch.no_grad():
            moved.append(learner.policy.head.kl(old, learner.policy(rollout.observation)).mean().item())
    assert max(moved) <= 0.005
    assert max(moved) > 0.002


@BOTH
def test_nothing_is_ventured_while_the_risk_is_unknown(algorithm, settings, make, train):
    """A single episode has no standard error, so with a confidence any bound counts as broken: pain goes down, although
    reward goes with it."""
    one = np.zeros((1, 2))
    cmdp = Cmdp(
        successors=np.zeros((1, 2, 1), np.int64),
        probabilities=np.ones((1, 2, 1)),
        reward=np.array([[1.0, 0.0]]),
        noise=one,
        initial=np.ones(1),
        horizon=30,
        costs={"pain": np.array([[1.0, 0.0]])},
    )
    env = RandomCmdpVectorEnv(cmdp, 1)
    task = problem("expectation of pain <= 99 confidence=1 discount=1")
    learner = make(algorithm, settings(actor=LINEAR, critic=CRITIC), task, env)
    rows = train(learner, env, 5, steps=30)
    assert {row["slack_0"] for row in rows} == {-math.inf}
    times = torch.stack([torch.zeros(30), torch.arange(30) / 30], -1)
    with torch.no_grad():
        assert torch.softmax(learner.policy(times), -1)[:, 0].mean() < 0.45
    if algorithm is Cpo:
        assert all(row["recovery"] for row in rows)


@BOTH
def test_an_estimate_that_is_not_finite_ends_the_run(algorithm, settings, bandit, make, train, monkeypatch):
    env = bandit([1.0, 0.0], pain=[1.0, 0.0])
    learner = make(algorithm, settings(actor=LINEAR, critic=CRITIC), problem("expectation of pain <= 9"), env)
    estimate = learner.estimator._estimate
    monkeypatch.setattr(
        learner.estimator, "_estimate", lambda *arguments: replace(estimate(*arguments), estimate=math.inf)
    )
    with pytest.raises(DivergenceError, match="the estimate of a risk is not finite"):
        train(learner, env, 1)


@BOTH
def test_no_step_but_that_of_the_trust_region(algorithm, settings, bandit, make):
    """There is no learning rate to set or to anneal, and so no optimiser of the policy."""
    env = bandit([1.0, 0.0], pain=[1.0, 0.0])
    learner = make(algorithm, settings(critic=CRITIC), problem("expectation of pain <= 9"), env)
    assert list(learner.optimisers()) == [learner.critics.optimiser]
    assert not hasattr(learner, "ascent")


@BOTH
def test_continuous_actions(algorithm, settings, exposure, make, train):
    """E[a²] ≤ 1 keeps the exposure just below 1."""
    actor = ActorSettings(hidden=(8,), initial_std=0.2)
    bounds = problem("expectation of energy <= 1")
    learner = make(algorithm, settings(actor=actor, critic=CRITIC, max_kl=0.05), bounds, exposure)
    rows = train(learner, exposure, 40)
    mean, log_std = learner.policy(torch.ones(1, 1))[0].tolist()
    assert mean == pytest.approx(1.0, abs=0.12)
    assert mean**2 + np.exp(2 * log_std) <= 1.1
    assert rows[-1]["return"] > rows[0]["return"] + 0.5


@BOTH
def test_mean_critics_refuse_what_is_not_an_expectation(algorithm, settings, exposure, make):
    kind = settings().kind
    with pytest.raises(SettingsError) as caught:
        make(algorithm, settings(), problem("cvar(0.1) of reward >= 0"), exposure)
    assert str(caught.value) == (
        f"{kind}: bounds only expectations, not cvar[0.1]; use quantile critics, or sdpo, for this measure."
    )
    with pytest.raises(SettingsError, match=rf"^{kind}: .*cvar\[0\.1\]"):
        make(algorithm, settings(), Problem(objective=CVaR(alpha=0.1)), exposure)


# --- non-linear measures, by quantile critics -----------------------------------------------------------------------


@BOTH
def test_variance_ends_at_the_bound(algorithm, settings, bandit, make, train, probabilities):
    """With probability p of a noisy arm that earns 1 ± 1 instead of a sure 0, variance is p + p(1 − p): under 0.51 at
    most p = 0.3. From p = ½, which breaks the bound, both come back to it, and stay."""
    env = bandit([1.0, 0.0], [1.0, 0.0], envs=1000)
    learner = make(algorithm, settings(actor=LINEAR, critic=QUANTILE), problem("variance of reward <= 0.51"), env)
    rows = train(learner, env, 25)
    p = float(probabilities(learner)[0])
    assert p == pytest.approx(0.3, abs=0.04)
    assert rows[0]["risk_0"] == pytest.approx(0.75, abs=0.08)
    assert rows[-1]["risk_0"] == pytest.approx(2 * p - p * p, abs=0.08)


@pytest.mark.parametrize("spec", ["variance of reward <= 9", "cvar(0.2) of reward >= -9"])
def test_the_local_model_prices_small_steps_as_the_exact_risk_does(spec, bandit, make, probabilities):
    """Arms 1 ± 1, 0.5 ± 0.2, 0 ± 0.5: what the surrogate says of small steps, against the risk of the mixture, with the
    sign in which more is worse."""
    means, deviations = np.array([1.0, 0.5, 0.0]), np.array([1.0, 0.2, 0.5])
    env = bandit(means.tolist(), deviations.tolist(), envs=20_000)
    critic = CriticSettings(**{**dict(QUANTILE), "learning_rate": 1e-2, "warm_up": 80, "transitions": 4000})
    learner = make(Pcpo, PcpoSettings(actor=LINEAR, critic=critic), problem(spec), env)
    rollout = Collector(env, ["reward"], 1, seed=0).collect(learner.policy, 0)
    valuations, _ = learner.estimator.fit_critics(rollout, torch_generator(stream(0, 0, Purpose.UPDATE)))
    assessment = learner.estimator.assess(rollout, valuations)
    surrogate = Surrogate(learner.policy, rollout, learner.trust_region.scale_advantages(rollout, assessment))
    constraint = learner.problem.constraints[0]
    distribution = torch.from_numpy((means + deviations * norm.ppf((np.arange(2000) + 0.5) / 2000)[:, None]).ravel())

    def exact():
        weights = probabilities(learner).double().repeat(2000) / 2000
        return constraint.sign * constraint.measure(distribution, weights).item()

    start, before = parameters_to_vector(learner.policy.parameters()).detach(), exact()
    assert constraint.sign * assessment.risks[0].estimate == pytest.approx(before, abs=0.03)
    generator = torch.Generator().manual_seed(0)
    predicted, true = [], []
    for _ in range(6):
        assign(learner.policy, start + 0.05 * torch.randn(len(start), generator=generator))
        with torch.no_grad():
            predicted.append(surrogate.changes()[1].item())
        true.append(exact() - before)
    np.testing.assert_allclose(predicted, true, atol=0.15 * np.abs(true).max())


@BOTH
def test_a_tail_as_the_objective(algorithm, settings, bandit, make, train, probabilities):
    """A sure 0.5 against 1 ± 2: the mean prefers the second arm, the 0.1-CVaR (0.5 against −2.5) the first."""
    env = bandit([0.5, 1.0], [0.0, 2.0])
    task = Problem(discount=1.0, objective=CVaR(alpha=0.1), constraints=problem("variance of reward <= 9").constraints)
    learner = make(algorithm, settings(actor=LINEAR, critic=QUANTILE, max_kl=0.02), task, env)
    rows = train(learner, env, 20)
    assert probabilities(learner)[0] > 0.75
    assert rows[-1]["objective"] > rows[0]["objective"] + 0.5
