"""Both estimators of ∇ρ against finite differences on the little CMDP, whose distribution can be written down."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portfolio_sdpo.envs.exact import enumerate_distribution
from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.risk import CVaR, Entropic, Expectation, MeanSemideviation, Variance
from portfolio_sdpo.rl.critics import Valuation
from portfolio_sdpo.rl.estimators.score import LEAST_WEIGHT, Utility, estimate_risk
from portfolio_sdpo.rl.past import batch_past, own_past
from tests.rl.estimators.little_cmdp import (
    ACTIONS,
    ATOMS,
    EACH,
    NONLINEAR,
    STATES,
    by_score,
    make_little,
    run_assess,
    uniform,
)


@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_the_laws_are_those_of_the_cmdp(discount):
    """`here` against an enumeration that knows nothing of this file."""
    little = make_little(discount)
    distributions = enumerate_distribution(little.cmdp, np.full((STATES, ACTIONS), 1 / ACTIONS), discount)
    for state, distribution in enumerate(distributions):
        assert np.allclose(
            np.repeat(distribution.values, np.round(distribution.weights * ATOMS).astype(int)), little.here[0, state]
        )


@EACH
@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_score_estimator_equals_finite_differences(measure, lam, discount):
    little = make_little(discount)
    truth = little.gradient(measure)
    assert truth.abs().max() > 0.01
    found = run_assess(little, measure, little.valuation(), lam)
    assert found.advantage.dtype == torch.float64
    torch.testing.assert_close(by_score(little, found.advantage, uniform()), truth, rtol=0, atol=1e-8)


@EACH
def test_score_estimator_in_single_precision(measure):
    truth = make_little(0.8).gradient(measure)
    little = make_little(0.8, torch.float32)
    found = run_assess(little, measure, little.valuation())
    assert found.advantage.dtype == torch.float32
    gradient = by_score(little, found.advantage, uniform(torch.float32)).double()
    torch.testing.assert_close(gradient, truth, rtol=0, atol=2e-6)


@NONLINEAR
@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_pathwise_form_equals_finite_differences(measure, discount):
    """Σ_t ∇ Σ_a π(a | s_t) E[u(c_t + γ^t Y(s_t, a))], mean over episodes."""
    little = make_little(discount)
    rollout = little.rollout
    state = little.paths.flatten()
    first = little.here[0, little.paths[:, 0]]
    utility = Utility(measure, first, discount, rollout, own_past(rollout.signals["reward"], discount, rollout))
    worth = torch.stack([utility(little.after[rollout.step, state, a]) for a in range(ACTIONS)], -1)
    logits = uniform().requires_grad_()
    total = (torch.softmax(logits, -1)[state] * worth).sum() / rollout.episodes
    gradient = torch.autograd.grad(total, logits)[0]
    torch.testing.assert_close(gradient, little.gradient(measure), rtol=0, atol=1e-8)


@NONLINEAR
def test_utility_of_some_transitions_is_that_of_all(measure):
    little = make_little(0.8)
    rollout = little.rollout
    distribution = little.valuation().here
    first = distribution[rollout.starts]
    some = torch.tensor([5, 17, 200, 3])
    signal = rollout.signals["reward"]
    for past in (batch_past(signal, 0.8, rollout, 8), own_past(signal, 0.8, rollout)):
        utility = Utility(measure, first, 0.8, rollout, past)
        torch.testing.assert_close(utility(distribution[some], some), utility(distribution)[some])


@NONLINEAR
@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_pooling_is_exact_where_the_past_tells_nothing_of_the_state(measure, lam):
    little = make_little(0.8, starts=(0,), forgetful=True)
    truth = little.gradient(measure)
    past = batch_past(little.rollout.signals["reward"], 0.8, little.rollout, partners=10**6)
    found = run_assess(little, measure, little.valuation(), lam, past)
    torch.testing.assert_close(by_score(little, found.advantage, uniform()), truth, rtol=0, atol=1e-8)


@EACH
@pytest.mark.parametrize("pooled", [True, False])
def test_estimate_is_the_true_risk_when_the_critic_is_exact(measure, pooled):
    little = make_little(0.8)
    past = batch_past(little.rollout.signals["reward"], 0.8, little.rollout, partners=32) if pooled else None
    found = run_assess(little, measure, little.valuation(), past=past)
    truth = little.risk(measure, uniform()).item()
    assert found.estimate == pytest.approx(truth, abs=1e-12)
    assert found.plug_in == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize(
    "measure", [Variance(), Entropic(beta=-0.7), Entropic(beta=1.3), MeanSemideviation(weight=1, order=2)]
)
def test_a_wrong_critic_enters_only_squared(measure):
    """Halving the critic's error halves that of its own value and quarters that of the corrected one."""
    little = make_little(0.8)
    truth = little.risk(measure, uniform()).item()
    generator = torch.Generator().manual_seed(0)
    error = torch.randn(little.here.shape, generator=generator, dtype=torch.float64)
    # Not white noise alone, which would cancel in the mean: the critic is also too high everywhere.
    error = error + 0.5
    plug_in, corrected = [], []
    for size in (0.02, 0.01):
        found = run_assess(little, measure, little.valuation(size * error))
        plug_in.append(found.plug_in - truth)
        corrected.append(found.estimate - truth)
    assert plug_in[0] / plug_in[1] == pytest.approx(2, rel=0.1)
    assert corrected[0] / corrected[1] == pytest.approx(4, rel=0.1)
    assert abs(corrected[1]) < 0.1 * abs(plug_in[1])


@EACH
@pytest.mark.parametrize("ended", [True, False])
def test_with_its_own_past_the_estimate_is_the_mean_of_u(measure, ended, by_hand):
    """Whatever the critic says: the increments telescope to u(return) − ρ(critic). Episodes differ in length."""
    generator = torch.Generator().manual_seed(2)
    rewards = [torch.randn(length, generator=generator).tolist() for length in (3, 1, 4, 2, 2)]
    rollout = by_hand(rewards, [ended] * 5, torch.float64)
    here = torch.randn(len(rollout), 16, generator=generator, dtype=torch.float64)
    ahead = here.roll(-1, 0)
    ahead[rollout.last] = 0.0 if ended else 0.3
    signal = rollout.signals["reward"]
    valuation = Valuation(here, ahead, signal + 0.9 * ahead.mean(-1) - here.mean(-1))
    found = estimate_risk(measure, ("reward", 0.9), rollout, valuation, lam=0.5)
    lengths = rollout.per_episode(torch.ones_like(signal))
    total = rollout.returns("reward", 0.9) + (0.0 if ended else 0.3 * 0.9**lengths)
    u = measure.influence(here[rollout.starts])(total.unsqueeze(-1)).squeeze(-1)
    assert found.estimate == pytest.approx(u.mean().item(), abs=1e-12)
    assert found.standard_error == pytest.approx((u.std() / 5**0.5).item(), abs=1e-12)


@NONLINEAR
def test_with_its_own_past_utility_is_u_to_the_bit(measure):
    """In the precision of the critics, as it always was: no mean of a single function is built."""
    little = make_little(0.8)
    rollout, here = little.rollout, little.valuation().here.float()
    first, signal = here[rollout.starts], rollout.signals["reward"].float()
    past = own_past(signal, 0.8, rollout)
    points = past.cumulated[0].unsqueeze(-1) + (0.8**rollout.step).float().unsqueeze(-1) * here
    expected = measure.influence(first[rollout.episode])(points).mean(-1)
    assert torch.equal(Utility(measure, first, 0.8, rollout, past)(here), expected)


@EACH
@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
def test_advantages_of_any_critic(measure, lam, by_hand):
    """γ^t A_t = Σ_k λ^k (U_{t+k+1} − U_{t+k}), with U_t = E[u(c_t + γ^t Y(s_t))] and U = u(return) at the end.

    For an expectation that is γ^t times GAE.
    """
    rollout = by_hand([[1.0, -2.0, 0.5], [0.3, 0.2, 2.0]], [True, True], torch.float64)
    here = torch.randn(6, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    ahead = here.roll(-1, 0)
    ahead[rollout.last] = 0.0
    signal = rollout.signals["reward"]
    valuation = Valuation(here, ahead, signal + 0.9 * ahead.mean(-1) - here.mean(-1))
    found = estimate_risk(measure, ("reward", 0.9), rollout, valuation, lam).advantage.view(2, 3)
    for episode in range(2):
        rewards, distributions = signal.view(2, 3)[episode].tolist(), here.view(2, 3, 4)[episode]
        u = measure.influence(distributions[0])
        cumulated = [sum(0.9**k * r for k, r in enumerate(rewards[:t])) for t in range(4)]
        worth = [u(cumulated[t] + 0.9**t * distributions[t]).mean().item() for t in range(3)]
        worth.append(u(torch.tensor([cumulated[3]], dtype=torch.float64)).item())
        steps = np.diff(worth)
        for t in range(3):
            expected = sum(lam**k * step for k, step in enumerate(steps[t:]))
            assert 0.9**t * found[episode, t].item() == pytest.approx(expected, abs=1e-10)


def test_a_single_episode_has_no_standard_error(by_hand):
    rollout = by_hand([[1.0, 2.0]], [True])
    zero = torch.zeros(2, 4)
    found = estimate_risk(Variance(), ("reward", 1.0), rollout, Valuation(zero, zero, torch.zeros(2)), 0.9)
    assert found.standard_error == float("inf")


@pytest.mark.parametrize("measure", [Expectation(), Variance(), CVaR(alpha=0.1)])
def test_long_episodes_with_a_short_sight_stay_finite(measure, by_hand):
    """0.5^300 is 0 in single precision."""
    rollout = by_hand([[1.0] * 300, [2.0] * 300], [True, True])
    distribution = torch.linspace(0, 1, 8).expand(600, 8)
    signal = rollout.signals["reward"]
    valuation = Valuation(distribution, distribution, signal + 0.5 * distribution.mean(-1) - distribution.mean(-1))
    found = estimate_risk(measure, ("reward", 0.5), rollout, valuation, 0.9)
    assert found.advantage.isfinite().all()
    assert found.advantage.abs().max() < 1 / LEAST_WEIGHT


def test_partners_that_are_over_do_not_count(by_hand):
    """At step 1 only the second of two chosen episodes is under way, at step 2 neither: then both count."""
    rollout = by_hand([[1.0], [2.0, 0.0, 0.0], [5.0, 0.0]], [True] * 3, torch.float64)
    signal = rollout.signals["reward"]
    first = torch.zeros(3, 1, dtype=torch.float64)
    utility = Utility(Variance(), first, 1.0, rollout, batch_past(signal, 1.0, rollout, partners=2))
    # u(y) = y²; episodes 0 and 2 are chosen, their c_t is 0 at step 0, then 1 and 5.
    worth = utility(torch.zeros(len(rollout), 1, dtype=torch.float64))
    assert worth.tolist() == [0.0, 0.0, 25.0, 13.0, 0.0, 25.0]


@NONLINEAR
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=7),
    partners=st.integers(1, 8),
    discount=st.sampled_from([1.0, 0.7]),
    seed=st.integers(0, 2**31),
)
def test_pooled_utility_is_the_mean_over_the_partners_under_way(measure, lengths, partners, discount, seed, by_hand):
    generator = torch.Generator().manual_seed(seed)
    rewards = [torch.randint(-2, 3, (length,), generator=generator).tolist() for length in lengths]
    rollout = by_hand(rewards, [True] * len(lengths), torch.float64)
    distribution = torch.randn(len(rollout), 5, generator=generator, dtype=torch.float64)
    first = distribution[rollout.starts]
    signal = rollout.signals["reward"]
    utility = Utility(measure, first, discount, rollout, batch_past(signal, discount, rollout, partners))

    chosen = torch.linspace(0, len(lengths) - 1, min(partners, len(lengths))).round().long().tolist()
    expected = []
    for t, atoms in zip(rollout.step.tolist(), distribution, strict=True):
        worth = []
        for j in [j for j in chosen if lengths[j] > t] or chosen:
            before = sum(discount**k * reward for k, reward in enumerate(rewards[j][:t]))
            worth.append(measure.influence(first[j])(before + discount**t * atoms).mean())
        expected.append(torch.stack(worth).mean())
    expected = torch.stack(expected)
    torch.testing.assert_close(utility(distribution), expected, rtol=1e-8, atol=1e-8)
    some = torch.randperm(len(rollout), generator=generator)[: len(rollout) // 2 + 1]
    torch.testing.assert_close(utility(distribution[some], some), expected[some], rtol=1e-8, atol=1e-8)


def test_empirical_risk_and_its_standard_error():
    """The standard error against the spread of many sample variances."""
    samples = torch.randn(2000, 400, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    risks, errors = zip(*(Variance().estimate(row) for row in samples[:300]), strict=True)
    assert np.mean(errors) == pytest.approx(Variance()(samples).std().item(), rel=0.05)
    assert risks[0] == pytest.approx(samples[0].var(unbiased=False).item())
    assert Variance().estimate(torch.ones(1)) == (0.0, float("inf"))


def test_policy_and_score_agree_with_the_little_cmdp():
    """The tabular policy of the package is the softmax that these tests differentiate."""
    little = make_little(0.8, torch.float32)
    env = RandomCmdpVectorEnv(little.cmdp, 1)
    policy = Policy(ObservationCodec(env.single_observation_space["state"]), env.single_action_space, hidden=())
    log_prob = policy.head.log_prob(policy(little.rollout.observation), little.rollout.action)
    torch.testing.assert_close(log_prob, little.log_prob(uniform(torch.float32)).flatten())
