"""IPO, and SDPO where it is IPO: expectation constraints, whose optimum is a linear program."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.envs.exact import evaluate, solve_expectation, solve_unconstrained, uniform_policy
from portfolio_sdpo.envs.random_cmdp import Cmdp, RandomCmdpVectorEnv
from portfolio_sdpo.errors import DivergenceError, InfeasibleConstraintError, SettingsError
from portfolio_sdpo.risk import Barrier, Constraint, CVaR, suboptimality_bound
from portfolio_sdpo.rl.algorithms.base import ActorSettings, Problem
from portfolio_sdpo.rl.algorithms.ipo import Ipo, IpoSettings
from portfolio_sdpo.rl.algorithms.ppo import Ppo, PpoSettings
from portfolio_sdpo.rl.algorithms.pricing import make_barrier
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo, SdpoSettings
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.estimators.base import RiskEstimate
from portfolio_sdpo.rl.rollout import Collector, Purpose, stream, torch_generator

MEAN = CriticSettings(kind="mean", hidden=(16,), epochs=1, minibatches=2, learning_rate=5e-3)
QUANTILE = MEAN.model_copy(update={"kind": "quantile", "dimension": 16, "atoms": 8})
TABLE = ActorSettings(hidden=(), learning_rate=0.06, anneal=80)
QUICK = {"actor": TABLE, "epochs": 4, "minibatches": 1, "smoothing": 0.5}
BOTH = pytest.mark.parametrize(
    "algorithm, options",
    [(Ipo, IpoSettings(critic=MEAN, **QUICK)), (Sdpo, SdpoSettings(critic=QUANTILE, risk_atoms=8, **QUICK))],
    ids=["ipo", "sdpo"],
)


def problem(*specs, discount=1.0):
    return Problem(discount=discount, constraints=tuple(map(Constraint.from_spec, specs)))


def layered(seed, layers=4, width=5, actions=3, fan=2):
    """A CMDP of 20 states in four layers, one per step: a table of logits can be any policy, also the optimal one.

    Reward is dear: `pain` is mostly reward, and `toil` rather the lack of it.
    """
    rng = np.random.default_rng(seed)
    count = layers * width
    successors = np.zeros((count, actions, fan), np.int64)
    for state in range(count):
        following = min(state // width + 1, layers - 1) * width
        successors[state] = [following + rng.permutation(width)[:fan] for _ in range(actions)]
    chances = rng.random((count, actions, fan))
    reward = rng.random((count, actions))
    return Cmdp(
        successors=successors,
        probabilities=chances / chances.sum(-1, keepdims=True),
        reward=reward,
        noise=np.zeros_like(reward),
        initial=np.repeat([1 / width, 0.0], [width, count - width]),
        horizon=layers,
        costs={
            "pain": 0.7 * reward + 0.3 * rng.random((count, actions)),
            "toil": 0.4 * (1 - reward) + 0.6 * rng.random((count, actions)),
        },
    )


def table(learner, cmdp):
    """The policy as probabilities [H, N, M]."""
    times, states = torch.arange(float(cmdp.horizon)) / cmdp.horizon, torch.arange(float(cmdp.states))
    time, state = torch.meshgrid(times, states, indexing="ij")
    with torch.no_grad():
        return torch.softmax(learner.policy(torch.stack([state, time], -1)), -1).numpy()


def quarter_way(cmdp, signal, discount):
    """A bound on a signal a quarter of the way from the uniform to the best unconstrained policy."""
    ends = [uniform_policy(cmdp), solve_unconstrained(cmdp, discount=discount).policy]
    low, high = (evaluate(cmdp, policy, discount, signal).mean for policy in ends)
    return low + 0.25 * (high - low)


@pytest.mark.parametrize("seed", [0, 1])
@BOTH
def test_near_the_linear_program(algorithm, options, seed, make, train):
    """Feasible, within 3 % of the optimum, and at the price that the linear program's multipliers name."""
    cmdp = layered(seed)
    bound = quarter_way(cmdp, "pain", 0.95)
    task = problem(f"expectation of pain <= {bound} eta=10:30:50", discount=0.95)
    optimum = solve_expectation(cmdp, task.constraints, 0.95)
    env = RandomCmdpVectorEnv(cmdp, 200)
    learner = make(algorithm, options, task, env)
    rows = train(learner, env, 90, steps=cmdp.horizon)
    policy = table(learner, cmdp)
    assert evaluate(cmdp, policy, 0.95, "pain").mean <= bound
    assert evaluate(cmdp, policy, 0.95).mean >= 0.97 * optimum.mean
    assert rows[-1]["suboptimality_bound"] == pytest.approx(1 / 30)
    # The multiplier is a step function of the bound, and the barrier stays somewhat inside.
    inside = problem(f"expectation of pain <= {bound - 0.1}")
    (least,), (most,) = optimum.multipliers, solve_expectation(cmdp, inside.constraints, 0.95).multipliers
    assert 0.75 * least <= np.mean([row["price_0"] for row in rows[-40:]]) <= 1.25 * most


def test_ppo_breaks_the_bound_of_the_same_problem(make, train):
    cmdp = layered(0)
    bound = quarter_way(cmdp, "pain", 0.95)
    task = problem(f"expectation of pain <= {bound}", discount=0.95)
    env = RandomCmdpVectorEnv(cmdp, 200)
    learner = make(Ppo, PpoSettings(actor=TABLE, critic=MEAN), task, env)
    train(learner, env, 30, steps=cmdp.horizon)
    policy = table(learner, cmdp)
    assert evaluate(cmdp, policy, 0.95, "pain").mean > bound + 0.1
    assert evaluate(cmdp, policy, 0.95).mean > solve_expectation(cmdp, task.constraints, 0.95).mean


@BOTH
def test_two_constraints_with_their_own_signal_sense_eta_and_discount(algorithm, options, make, train):
    """pain ≤ and toil ≥, both binding at the optimum, discounts 1 and 0.9, the reward's 0.95."""
    cmdp = layered(7)
    pain = quarter_way(cmdp, "pain", 1.0)
    toil = evaluate(cmdp, uniform_policy(cmdp), 0.9, "toil").mean - 0.02
    task = problem(
        f"expectation of pain <= {pain} eta=10:40:60 discount=1",
        f"expectation of toil >= {toil} eta=20:60:60 discount=0.9",
        discount=0.95,
    )
    optimum = solve_expectation(cmdp, task.constraints, 0.95)
    assert min(optimum.multipliers) > 0.05
    env = RandomCmdpVectorEnv(cmdp, 200)
    learner = make(algorithm, options, task, env)
    rows = train(learner, env, 90, steps=cmdp.horizon)
    policy = table(learner, cmdp)
    assert evaluate(cmdp, policy, 1.0, "pain").mean <= pain + 0.01
    assert evaluate(cmdp, policy, 0.9, "toil").mean >= toil - 0.01
    assert evaluate(cmdp, policy, 0.95).mean >= 0.96 * optimum.mean
    assert rows[-1]["suboptimality_bound"] == pytest.approx(1 / 40 + 1 / 60)
    assert rows[0]["risk_0"] == pytest.approx(evaluate(cmdp, uniform_policy(cmdp), 1.0, "pain").mean, rel=0.05)


def barrier_optimum(rewards, costs, bounds, etas):
    """max p·r + Σ_i ln(d_i − p·c_i) / η_i over probabilities p, by pairwise Frank-Wolfe from the uniform p (inside).

    Also how far from stationary p is: max_a of r − Σ price_i c_i, less its mean under p.
    """

    def slope(p):
        slacks = np.maximum(bounds - costs @ p, 1e-12)
        return rewards - (1 / (etas * slacks)) @ costs

    p = np.full(len(rewards), 1 / len(rewards))
    for _ in range(2000):
        gradient = slope(p)
        if (gap := gradient.max() - gradient @ p) < 1e-9:
            break
        best, worst = gradient.argmax(), np.where(p > 0, gradient, np.inf).argmin()
        move = np.zeros_like(p)
        move[best], move[worst] = 1.0, -1.0
        low, high = 0.0, p[worst]
        if slope(p + high * move) @ move < 0 or (costs @ (p + high * move) >= bounds).any():
            for _ in range(60):
                middle = (low + high) / 2
                inside = (costs @ (p + middle * move) < bounds).all()
                low, high = (middle, high) if inside and slope(p + middle * move) @ move > 0 else (low, middle)
            p = p + low * move
        else:
            p = p + high * move
            p[worst] = 0.0
    return p, gap


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 3), eta=st.sampled_from([2.0, 10.0, 50.0]))
def test_theorem_1_on_bandits(seed, count, eta):
    """J* − J ≤ Σ 1/η_i: the barrier's optimum loses at most that against the linear program's. Uniform is feasible."""
    rng = np.random.default_rng(seed)
    rewards, costs = rng.random(5), rng.random((count, 5))
    bounds = costs.mean(1) + 0.05
    etas = eta * rng.uniform(0.5, 2.0, count)
    cmdp = Cmdp(
        successors=np.zeros((1, 5, 1), np.int64),
        probabilities=np.ones((1, 5, 1)),
        reward=rewards[None],
        noise=np.zeros((1, 5)),
        initial=np.ones(1),
        horizon=1,
        costs={f"cost{i}": costs[i][None] for i in range(count)},
    )
    constraints = [Constraint.from_spec(f"expectation of cost{i} <= {bounds[i]} eta={etas[i]}") for i in range(count)]
    best = solve_expectation(cmdp, constraints, 1.0).mean
    p, gap = barrier_optimum(rewards, costs, bounds, etas)
    assert (costs @ p < bounds).all() and gap < 1e-3
    loss = best - rewards @ p
    assert -1e-6 <= loss <= suboptimality_bound(constraints, 0) + gap + 1e-9


@BOTH
def test_ends_at_the_barrier_optimum_of_a_bandit(algorithm, options, bandit, make, train, probabilities):
    """And so within 1/η of the constrained one, 0.6, as Theorem 1 says."""
    rewards, pain, bound, eta = [1.0, 0.4, 0.0], [1.0, 0.1, 0.0], 0.4, 10.0
    env = bandit(rewards, pain=pain, envs=1000)
    actor = ActorSettings(hidden=(), learning_rate=0.1, anneal=60)
    chosen = options.model_copy(update={"actor": actor})
    learner = make(algorithm, chosen, problem(f"expectation of pain <= {bound} eta={eta}"), env)
    rows = train(learner, env, 60)
    exact, _ = barrier_optimum(np.array(rewards), np.array([pain]), np.array([bound]), np.array([eta]))
    p = probabilities(learner).numpy()
    assert p @ pain <= bound
    assert p @ rewards == pytest.approx(exact @ rewards, abs=0.04)
    assert 0.6 - p @ rewards <= rows[-1]["suboptimality_bound"] + 0.02
    price = 1 / (eta * (bound - exact @ pain))
    assert np.mean([row["price_0"] for row in rows[-30:]]) == pytest.approx(price, rel=0.35)


@BOTH
@pytest.mark.parametrize(
    "spec, safer", [("expectation of pain <= 0.37 eta=0.1", -1), ("expectation of joy >= 0.63 eta=0.1", 1)]
)
def test_the_barrier_reaches_the_policy(algorithm, options, spec, safer, bandit, make, train, probabilities):
    """Near the bound, at a high price, one update leads away from it, although reward leads the other way."""
    rewards, pain = torch.tensor([1.0, 0.4, 0.0]), torch.tensor([1.0, 0.1, 0.0])
    env = bandit(rewards.tolist(), pain=pain.tolist(), joy=(1 - pain).tolist())
    signal = pain if "pain" in spec else 1 - pain
    learner, free = make(algorithm, options, problem(spec), env), make(Ppo, PpoSettings(actor=TABLE), Problem(), env)
    before = probabilities(learner) @ signal
    (row,) = train(learner, env, 1)
    train(free, env, 1)
    assert row["price_0"] > 5
    assert (probabilities(learner) @ signal - before) * safer > 0.005
    assert (probabilities(free) @ signal - before) * safer < -0.005
    assert probabilities(learner) @ rewards < probabilities(free) @ rewards


@BOTH
def test_prices_follow_the_barrier(algorithm, options, bandit, make, train):
    """1 / (η slack) inside, 1 / (η margin) from the margin on; the regime says which."""
    env = bandit([1.0, 0.0], pain=[1.0, 0.0])
    rows = {}
    for bound in (0.9, 0.52, 0.3):
        learner = make(algorithm, options, problem(f"expectation of pain <= {bound} eta=4 margin=0.1"), env)
        (rows[bound],) = train(learner, env, 1)
        slack = rows[bound]["slack_0"]
        assert slack == pytest.approx(bound - rows[bound]["risk_0"])
        assert rows[bound]["price_0"] == pytest.approx(1 / (4 * max(slack, 0.1)))
    assert [row["regime_0"] for row in rows.values()] == ["interior", "margin", "violated"]


def test_the_running_estimate(bandit, make):
    """Known answer: risks 1 and 2 with standard error 1, their plain mean; confidence takes standard errors off."""
    env = bandit([1.0, 0.0], pain=[1.0, 0.0])
    specs = ("expectation of pain <= 3", "expectation of reward >= 0 confidence=2")
    learner = make(Ipo, IpoSettings(smoothing=0.25), problem(*specs), env)
    newest = [
        [RiskEstimate(estimate=value, standard_error=1.0, plug_in=0.0, advantage=torch.zeros(1))] * 2
        for value in (1.0, 2.0)
    ]
    slacks, errors = learner.pricing.monitor.track(newest[0])
    assert slacks == [2.0, -1.0] and errors == [1.0, 1.0]
    slacks, errors = learner.pricing.monitor.track(newest[1])
    error = math.sqrt(0.5)
    assert slacks == pytest.approx([1.5, 1.5 - 2 * error]) and errors == pytest.approx([error, error])
    for value in (math.nan, math.inf, -math.inf):
        broken = RiskEstimate(estimate=value, standard_error=1.0, plug_in=0.0, advantage=torch.zeros(1))
        with pytest.raises(DivergenceError, match="not finite"):
            learner.pricing.monitor.track([newest[0][0], broken])


def test_the_running_estimate_outlives_single_episodes(bandit, make):
    """They have no standard error. While there are only such, their estimates are averaged; the first batch that has
    a standard error restarts the running estimate; and one that has none again is forgotten with the next."""
    env = bandit([1.0, 0.0], pain=[1.0, 0.0])
    task = problem("expectation of pain <= 3 confidence=1")
    learner = make(Ipo, IpoSettings(smoothing=0.25), task, env)

    def track(value, error):
        newest = RiskEstimate(estimate=value, standard_error=error, plug_in=0.0, advantage=torch.zeros(1))
        ((slack,), (error,)) = learner.pricing.monitor.track([newest])
        return float(learner.risk), error, slack

    assert track(1.0, math.inf) == (1.0, math.inf, -math.inf)
    assert track(2.0, math.inf) == (1.5, math.inf, -math.inf)
    assert track(2.0, 0.5) == (2.0, 0.5, 0.5)
    assert track(2.0, 0.5) == (2.0, pytest.approx(0.5 * math.sqrt(0.75**2 + 0.25**2)), pytest.approx(0.605, abs=1e-3))
    assert track(1.0, math.inf)[1:] == (math.inf, -math.inf)
    assert track(1.0, 0.5) == (1.0, 0.5, 1.5)


def test_without_a_margin_the_barrier_takes_the_standard_error():
    task = problem("expectation of pain <= 3 eta=2", "expectation of pain <= 3 eta=2 margin=0.7")
    own, given_margin = task.constraints
    assert make_barrier(own, 0, 0.2) == Barrier(eta=2, margin=0.2)
    assert make_barrier(own, 0, 0.0) == Barrier(eta=2, margin=0.003)
    assert make_barrier(own, 0, math.inf) == Barrier(eta=2, margin=0.003)
    assert make_barrier(given_margin, 0, 0.2) == Barrier(eta=2, margin=0.7)


@BOTH
def test_a_single_episode_is_enough_to_continue(algorithm, options, make, train):
    env = RandomCmdpVectorEnv(layered(0), 1)
    learner = make(algorithm, options, problem("expectation of pain <= 9"), env)
    rows = train(learner, env, 3, steps=4)
    assert all(math.isfinite(row["slack_0"]) and math.isfinite(row["price_0"]) for row in rows)


@BOTH
def test_phase_one_minds_only_the_worst_constraint(algorithm, options, bandit, make, train, probabilities):
    """Until both hold, reward counts for nothing and the tighter bound alone has a price."""
    rewards, pain, joy = [1.0, 0.0, 0.0], [1.0, 0.0, 0.5], [0.0, 1.0, 0.0]
    env = bandit(rewards, pain=pain, joy=joy)
    actor = ActorSettings(hidden=(), learning_rate=0.05)
    chosen = options.model_copy(update={"actor": actor, "phase_one": 60, "smoothing": 1.0})
    specs = ("expectation of pain <= 0.3 eta=5", "expectation of joy >= 0.6 eta=5")
    learner = make(algorithm, chosen, problem(*specs), env)
    rows = train(learner, env, 40)
    phases = [row["phase"] for row in rows]
    assert phases[0] == 1 and phases[-1] == 2 and phases == sorted(phases)
    for row in rows[: phases.index(2)]:
        worst = int(row["slack_0"] > row["slack_1"])
        assert [row["price_0"], row["price_1"]] == [1.0 - worst, float(worst)]
    p = probabilities(learner).numpy()
    assert p @ pain <= 0.3 and p @ joy >= 0.6


def test_phase_one_gives_up_with_the_best_slack(bandit, make, train):
    env = bandit([1.0, 0.0], pain=[1.0, 0.5])
    actor = ActorSettings(hidden=(), learning_rate=0.1)
    task = problem("expectation of pain <= 0.4")
    learner = make(Ipo, IpoSettings(actor=actor, critic=MEAN, phase_one=30), task, env)
    with pytest.raises(InfeasibleConstraintError, match=r"'expectation of pain <= 0.4' in 30 iterations") as caught:
        train(learner, env, 31)
    assert -0.2 < caught.value.best_slack < -0.1


def test_eta_grows_from_the_first_iteration_of_phase_two(bandit, make, train):
    """The schedule is for the barrier, and in phase I there is none; without a phase I it counts all iterations."""
    env = bandit([1.0, 0.0, 0.0], pain=[1.0, 0.0, 0.5])
    actor = ActorSettings(hidden=(), learning_rate=0.02)
    task = problem("expectation of pain <= 0.3 eta=1:16:8")
    learner = make(Ipo, IpoSettings(actor=actor, critic=MEAN, phase_one=60, smoothing=1.0), task, env)
    rows = train(learner, env, 30)
    first = [row["phase"] for row in rows].index(2.0)
    assert first >= 3
    expected = [1.0] * first + [2.0 ** (-0.5 * min(k, 8)) for k in range(30 - first)]
    assert [row["suboptimality_bound"] for row in rows] == pytest.approx(expected)
    free = make(Ipo, IpoSettings(actor=actor, critic=MEAN), problem("expectation of pain <= 0.9 eta=1:16:8"), env)
    bounds = [row["suboptimality_bound"] for row in train(free, env, 10)]
    assert bounds == pytest.approx([2.0 ** (-0.5 * min(k, 8)) for k in range(10)])


def test_refuses_what_is_not_an_expectation(exposure, make):
    for task in (problem("cvar(0.1) of reward >= 0"), Problem(objective=CVaR(alpha=0.1))):
        with pytest.raises(SettingsError, match=r"ipo: .*not cvar\[0.1\]; use sdpo"):
            make(Ipo, IpoSettings(), task, exposure)


def test_without_constraints_it_is_ppo(bandit, make, train, probabilities):
    env = bandit([1.0, 0.4, 0.0])
    ends = []
    for algorithm, options in ((Ppo, PpoSettings), (Ipo, IpoSettings)):
        learner = make(algorithm, options(actor=TABLE, critic=MEAN), Problem(), env)
        train(learner, env, 5)
        ends.append(probabilities(learner))
    assert ends[0].equal(ends[1])


@BOTH
def test_continuous_actions(algorithm, options, exposure, make, train):
    """E[a²] ≤ 1 keeps the exposure below 1."""
    actor = ActorSettings(hidden=(), learning_rate=0.06, initial_std=0.2, anneal=40)
    chosen = options.model_copy(update={"actor": actor})
    learner = make(algorithm, chosen, problem("expectation of energy <= 1 eta=5:30:30"), exposure)
    train(learner, exposure, 50)
    mean, log_std = learner.policy(torch.ones(1, 1))[0].tolist()
    assert mean > 0.7 and mean**2 + math.exp(2 * log_std) <= 1


def test_updates_use_their_generator_alone(bandit, make):
    env = bandit([1.0, 0.4, 0.0], pain=[1.0, 0.1, 0.0])
    rows = []
    for seed in (1, 2):
        learner = make(Ipo, IpoSettings(actor=TABLE, critic=MEAN), problem("expectation of pain <= 0.4"), env)
        rollout = Collector(env, ["pain"], 1, seed=0).collect(learner.policy, 0)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 — numpy's global generator, which nothing should use
        torch.manual_seed(seed)
        rows.append(learner.update(rollout, 0, torch_generator(stream(0, 0, Purpose.UPDATE))))
    assert rows[0] == rows[1]
