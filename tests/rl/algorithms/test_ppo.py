"""PPO: the clipped surrogate, what it learns without a constraint, and what it may and may not be asked for."""

from __future__ import annotations

import math

import pytest
import torch
from gymnasium import spaces

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.risk import Constraint, CVaR, Expectation
from portfolio_sdpo.rl.algorithms.ascent import ActorSettings, clipped_surrogate, describe_policy
from portfolio_sdpo.rl.algorithms.base import Problem
from portfolio_sdpo.rl.algorithms.cpo import Cpo, CpoSettings
from portfolio_sdpo.rl.algorithms.ppo import Ppo, PpoSettings
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo, SdpoSettings
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.estimators.base import Direction
from portfolio_sdpo.rl.rollout import Collector, Rollout

CRITIC = CriticSettings(kind="mean", hidden=(8,), epochs=2, minibatches=2)


def settings(learning_rate=0.05, **options):
    return PpoSettings(actor=ActorSettings(hidden=(), learning_rate=learning_rate), critic=CRITIC, **options)


def assess(learner, rollout, generator):
    """What an update begins with: fit the critics, then objective and risks from them."""
    valuations, _ = learner.estimator.fit_critics(rollout, generator)
    return learner.estimator.assess(rollout, valuations)


@pytest.mark.parametrize(
    "ratio, advantage, value, slope",
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.5, 2.0, 2.4, 0.0),  # beyond 1 + ε there is nothing to gain
        (0.5, 2.0, 1.0, 1.0),  # but the way back is open
        (1.5, -2.0, -3.0, -3.0),
        (0.5, -2.0, -1.6, 0.0),
        (1.1, -2.0, -2.2, -2.2),
    ],
)
def test_clipped_surrogate(ratio, advantage, value, slope):
    """min(ω A, clip(ω, 1 ± 0.2) A) and its derivative with respect to ln ω."""
    log_ratio = torch.tensor([math.log(ratio)], requires_grad=True)
    surrogate = clipped_surrogate(log_ratio, torch.tensor([advantage]), clip=0.2)
    assert surrogate.item() == pytest.approx(value)
    surrogate.backward()
    assert log_ratio.grad.item() == pytest.approx(slope)


def test_finds_the_best_arm_and_obeys_no_bound(bandit, make, train, probabilities):
    env = bandit([1.0, 0.4, 0.0], pain=[1.0, 0.1, 0.0])
    problem = Problem(constraints=(Constraint.from_spec("expectation of pain <= 0.4"),))
    learner = make(Ppo, settings(), problem, env)
    rows = train(learner, env, 60)
    assert probabilities(learner)[0] > 0.95
    assert rows[0]["risk_0"] < 0.4 < rows[-1]["risk_0"]
    assert "price_0" not in rows[0]
    assert {"return", "objective", "risk_0", "risk_se_0", "risk_plug_in_0", "risk_empirical_0"} <= rows[0].keys()


@pytest.mark.parametrize("critic", ["mean", "quantile"])
def test_logs_any_measure(critic, bandit, make, train):
    """Arms N(1, 1), N(0.4, 1), N(0, 1), each with a third: known variance and 0.1-CVaR. A mean critic knows of neither,
    so the sampled ones are logged."""
    env = bandit([1.0, 0.4, 0.0], [1.0, 1.0, 1.0], envs=2000)
    specs = ("variance of reward <= 0.1", "cvar(0.1) of reward >= 9")
    problem = Problem(constraints=tuple(map(Constraint.from_spec, specs)))
    kind = CRITIC.model_copy(update={"kind": critic, "learning_rate": 1e-2, "dimension": 16, "atoms": 32})
    row = train(make(Ppo, PpoSettings(critic=kind), problem, env), env, 1)[0]
    variance = 1 + torch.tensor([1.0, 0.4, 0.0]).var(unbiased=False).item()
    tail = 0.4667 - 1.755 * variance**0.5  # of a normal distribution with these moments, which the mixture nearly has
    assert row["risk_0"] == pytest.approx(variance, rel=0.1)
    assert row["risk_1"] == pytest.approx(tail, abs=0.15)
    assert 0 < row["risk_se_0"] < 0.1 and 0 < row["risk_se_1"] < 0.15
    if critic == "mean":
        for index in range(2):
            assert row[f"risk_{index}"] == row[f"risk_plug_in_{index}"] == row[f"risk_empirical_{index}"]


@pytest.mark.parametrize("critic", ["mean", "quantile"])
def test_the_value_of_a_state_is_its_mean(critic, make):
    """Two states, one step: the reward is exponential of mean 0.5 or 3, whose medians are 31 % less. In each state the
    advantages have mean 0."""
    generator = torch.Generator().manual_seed(0)
    state = torch.arange(400) % 2
    ends = torch.ones(400, dtype=torch.bool)
    rollout = Rollout(
        observation=state.unsqueeze(-1).float(),
        action=torch.zeros(400, dtype=torch.int64),
        log_prob=torch.full((400,), -math.log(2)),
        signals={"reward": (0.5 + 2.5 * state) * torch.empty(400).exponential_(generator=generator)},
        next_observation=torch.zeros(400, 1),
        terminated=ends,
        ended=ends,
        last=ends,
        episode=torch.arange(400),
        step=torch.zeros(400, dtype=torch.int64),
    )
    options = CriticSettings(kind=critic, hidden=(16,), dimension=32, atoms=32, epochs=5, learning_rate=1e-2)
    torch.manual_seed(0)
    codec = ObservationCodec(spaces.Discrete(2))
    learner = Ppo(PpoSettings(critic=options), Problem(discount=0.9), codec, spaces.Discrete(2))
    for _ in range(20):
        advantage = assess(learner, rollout, generator).objective.advantage
    assert [advantage[state == s].mean().item() for s in (0, 1)] == pytest.approx([0.0, 0.0], abs=0.15)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_an_entropy_bonus_opens_the_policy(bandit, make, weight):
    env = bandit([1.0, 0.4, 0.0])
    learner = make(Ppo, settings(entropy=weight), Problem(), env)
    with torch.no_grad():
        next(iter(learner.policy.parameters()))[0] = torch.tensor([2.0, 0.0, 0.0])
    rollout = Collector(env, [], 1, seed=0).collect(learner.policy, 0)
    before = describe_policy(learner.policy, rollout)["entropy"]
    after = learner.ascent.ascend(rollout, Direction(torch.zeros(len(rollout))), 0, torch.Generator())["entropy"]
    assert after == pytest.approx(before) if weight == 0 else after > before + 0.1


def test_advantages_are_standardised_once(bandit, make):
    """A thousandfold reward changes nothing in the step."""
    steps = []
    for scale in (1.0, 1000.0):
        env = bandit([scale, 0.4 * scale, 0.0])
        learner = make(Ppo, settings(), Problem(), env)
        rollout = Collector(env, [], 1, seed=0).collect(learner.policy, 0)
        learner.ascent.ascend(rollout, Direction(rollout.signals["reward"]), 0, torch.Generator().manual_seed(0))
        steps.append(torch.cat([p.detach().flatten() for p in learner.policy.parameters()]))
    torch.testing.assert_close(steps[0], steps[1], atol=1e-5, rtol=1e-4)
    assert steps[0].abs().max() > 0


def test_equal_advantages_teach_nothing(bandit, make):
    env = bandit([1.0, 1.0])
    learner = make(Ppo, settings(), Problem(), env)
    rollout = Collector(env, [], 1, seed=0).collect(learner.policy, 0)
    learner.ascent.ascend(rollout, Direction(torch.ones(len(rollout))), 0, torch.Generator())
    assert not any(parameter.any() for parameter in learner.policy.parameters())


def test_continuous_actions(exposure, make, train):
    """Reward a + a²ξ has the mean a, so exposure grows without a bound."""
    actor = ActorSettings(hidden=(), learning_rate=0.02, initial_std=0.3)
    learner = make(Ppo, PpoSettings(actor=actor, critic=CRITIC), Problem(), exposure)
    rows = train(learner, exposure, 30)
    assert rows[-1]["return"] > rows[0]["return"] + 0.5


def test_the_learning_rate_falls_to_a_tenth(bandit, make, train):
    actor = ActorSettings(hidden=(), learning_rate=0.1, anneal=10)
    assert [actor.rate(k) for k in (0, 5, 10, 99)] == pytest.approx([0.1, 0.055, 0.01, 0.01])
    env = bandit([1.0, 0.0])
    learner = make(Ppo, PpoSettings(actor=actor, critic=CRITIC), Problem(), env)
    train(learner, env, 6)
    assert learner.ascent.optimiser.param_groups[0]["lr"] == pytest.approx(0.055)


def test_describe_policy(bandit, make):
    """Known answers: no change has no KL; uniform over three arms has the entropy ln 3."""
    env = bandit([1.0, 0.0, 0.0])
    learner = make(Ppo, settings(), Problem(), env)
    rollout = Collector(env, [], 1, seed=0).collect(learner.policy, 0)
    assert describe_policy(learner.policy, rollout) == {"kl": 0.0, "entropy": pytest.approx(math.log(3), abs=1e-6)}
    with torch.no_grad():
        next(iter(learner.policy.parameters()))[0] = torch.tensor([1.0, 0.0, 0.0])
    p = torch.softmax(torch.tensor([1.0, 0.0, 0.0]), -1)
    kl = (torch.log(torch.full((3,), 1 / 3)) - p.log()).mean().item()
    assert describe_policy(learner.policy, rollout)["kl"] == pytest.approx(kl, rel=0.2)


def test_clip_fraction_is_the_share_of_ratios_beyond_the_range(bandit, make):
    """From 1/3 each to probabilities (0.36, 0.24, 0.40): ratios 1.08, 0.72 and 1.2, of which clip 0.1 allows one."""
    env = bandit([1.0, 0.0, 0.0])
    learner = make(Ppo, settings(), Problem(), env)
    rollout = Collector(env, [], 1, seed=0).collect(learner.policy, 0)
    with torch.no_grad():
        next(iter(learner.policy.parameters()))[0] = torch.tensor([0.36, 0.24, 0.40]).log()
    beyond = (rollout.action != 0).float().mean().item()
    assert describe_policy(learner.policy, rollout, clip=0.1)["clip_fraction"] == pytest.approx(beyond)
    assert describe_policy(learner.policy, rollout, clip=0.5)["clip_fraction"] == 0.0


def test_explained_variance(make):
    """A critic that knows the two states' rewards explains all of the variance between them; of a reward that is the
    same everywhere there is nothing to explain."""
    state = torch.arange(2).repeat(200)
    ends = torch.ones(400, dtype=torch.bool)

    def log(reward, **options):
        rollout = Rollout(
            observation=state.unsqueeze(-1).float(),
            action=torch.zeros(400, dtype=torch.int64),
            log_prob=torch.full((400,), -math.log(2)),
            signals={"reward": reward},
            next_observation=state.unsqueeze(-1).float(),
            terminated=ends,
            ended=ends,
            last=ends,
            episode=torch.arange(400),
            step=torch.zeros(400, dtype=torch.int64),
        )
        torch.manual_seed(0)
        codec = ObservationCodec(spaces.Discrete(2))
        critic = CriticSettings(kind="mean", hidden=(8,), learning_rate=0.05, averaging=0, **options)
        learner = Ppo(PpoSettings(critic=critic), Problem(), codec, spaces.Discrete(2))
        return learner.update(rollout, 0, torch.Generator().manual_seed(0))

    noise = torch.randn(400, generator=torch.Generator().manual_seed(1))
    assert log(state.float())["explained_variance"] == pytest.approx(1.0, abs=0.02)
    # Half of the variance is between states, half is noise.
    assert log(2 * state.float() + noise)["explained_variance"] == pytest.approx(0.5, abs=0.1)
    assert log(torch.ones(400))["explained_variance"] <= 1.0


def test_maximises_nothing_but_the_expectation(exposure, make):
    with pytest.raises(SettingsError, match=r"ppo: .*cvar\[0.1\].*use sdpo"):
        make(Ppo, PpoSettings(), Problem(objective=CVaR(alpha=0.1)), exposure)


@pytest.mark.parametrize("field, value", [("clip", 0.0), ("clip", 1.0), ("epochs", 0), ("entropy", -1.0)])
def test_wrong_settings_name_their_field(field, value):
    with pytest.raises(SettingsError, match=f"PpoSettings.{field}"):
        PpoSettings(**{field: value})


@pytest.mark.parametrize("fit_first", [True, False])
def test_a_critic_judges_a_rollout_before_or_after_it_has_learnt_it(fit_first):
    """Each observation has one episode, so a critic that knows the rollout by heart finds no action better than any."""
    count = 8
    codec = ObservationCodec(spaces.Discrete(count))
    state, ends = torch.arange(count), torch.ones(count, dtype=torch.bool)
    rollout = Rollout(
        observation=state.unsqueeze(-1).float(),
        action=state % 2,
        log_prob=torch.full((count,), -math.log(2)),
        signals={"reward": (state % 2).float()},
        next_observation=torch.zeros(count, 1),
        terminated=ends,
        ended=ends,
        last=ends,
        episode=state,
        step=torch.zeros(count, dtype=torch.int64),
    )
    critic = CriticSettings(
        kind="mean", hidden=(64,), learning_rate=0.05, epochs=200, minibatches=1, averaging=0, fit_first=fit_first
    )
    torch.manual_seed(0)
    learner = Ppo(PpoSettings(critic=critic), Problem(), codec, spaces.Discrete(2))
    advantage = assess(learner, rollout, torch.Generator().manual_seed(0)).objective.advantage
    gap = (advantage[state % 2 == 1].mean() - advantage[state % 2 == 0].mean()).item()
    assert abs(gap) < 0.05 if fit_first else gap > 0.7


COSTS = torch.tensor([[4.0, 0, 0], [0, 2, 0], [0, 0, 8], [0, 0, 0]])
"""Four episodes of three steps."""


def costly(*, ended=True):
    """A rollout of them in one state, where no critic can know more than the mean of each step."""
    episodes, steps = COSTS.shape
    last = (torch.arange(episodes * steps) + 1) % steps == 0
    return Rollout(
        observation=torch.zeros(episodes * steps, 1),
        action=torch.zeros(episodes * steps, dtype=torch.int64),
        log_prob=torch.zeros(episodes * steps),
        signals={"reward": torch.zeros(episodes * steps), "cost": COSTS.flatten()},
        next_observation=torch.zeros(episodes * steps, 1),
        terminated=last & ended,
        ended=last & ended,
        last=last,
        episode=torch.arange(episodes).repeat_interleave(steps),
        step=torch.arange(steps).repeat(episodes),
    )


def bounded(limit, kind=PpoSettings, algorithm=Ppo, critic="mean", **options):
    """A learner under one limit whose credit for costs fades by half a step."""
    critics = CriticSettings(kind=critic, hidden=(4,), dimension=8, atoms=8)
    chosen = kind(critic=critics, gae_lambda=1.0, credit_discount=0.5, **options)
    return algorithm(chosen, Problem(constraints=(limit,)), ObservationCodec(spaces.Discrete(1)), spaces.Discrete(2))


def on_cost(discount=1.0, **fields):
    return Constraint(
        **{"signal": "cost", "measure": Expectation(), "sense": "<=", "bound": 5} | fields, discount=discount
    )


@pytest.mark.parametrize("discount, credit", [(1.0, 0.5), (0.9, 0.5), (0.4, 0.4)])
@pytest.mark.parametrize("critic", ["mean", "quantile"])
def test_credit_for_a_cost_fades_and_its_budget_does_not(critic, discount, credit):
    """With λ = 1 the advantage is the cost ahead, discounted for credit, less the mean of its step. Credit never
    reaches beyond the budget."""
    episodes, steps = COSTS.shape
    learner = bounded(on_cost(discount), critic=critic)
    risk = assess(learner, costly(), torch.Generator().manual_seed(0)).risks[0]
    totals = COSTS @ discount ** torch.arange(steps)
    assert risk.estimate == pytest.approx(totals.mean().item(), rel=1e-5)
    if credit != discount:
        assert risk.standard_error == pytest.approx(totals.std().item() / episodes**0.5, rel=1e-4)
    ahead = torch.stack([COSTS[:, t:] @ credit ** torch.arange(steps - t) for t in range(steps)], 1)
    stretch = (episodes / (episodes - 1)) ** 0.5
    expected = stretch * (ahead - ahead.mean(0))
    torch.testing.assert_close(risk.advantage.view(episodes, steps), expected, atol=1e-4, rtol=1e-4)


def test_whose_credit_fades():
    """Only that of expectations; a bound on the reward shares the objective's critic where their discounts agree."""
    tail = on_cost(measure=CVaR(alpha=0.1, tail="upper"))
    assert bounded(tail, critic="quantile").critics.keys == [("reward", 0.99), ("cost", 1.0)]
    assert bounded(on_cost()).critics.keys == [("reward", 0.99), ("cost", 0.5)]
    problem = Problem(discount=0.5, constraints=(on_cost(signal="reward", sense=">="),))
    shared = Ppo(PpoSettings(credit_discount=0.5), problem, ObservationCodec(spaces.Discrete(1)), spaces.Discrete(2))
    assert shared.critics.keys == [("reward", 0.5)]


def test_a_trust_region_counts_costs_in_units_of_the_budget():
    learner = bounded(on_cost(), CpoSettings, Cpo)
    assessment = assess(learner, costly(), torch.Generator().manual_seed(0))
    row = learner.trust_region.scale_advantages(costly(), assessment)[1]
    advantage = assessment.risks[0].advantage
    torch.testing.assert_close(row, COSTS.shape[1] * (advantage - advantage.mean()))


def test_a_budget_is_read_off_whole_episodes():
    with pytest.raises(SettingsError, match="credit_discount: learns from whole episodes, but none ends within"):
        assess(bounded(on_cost()), costly(ended=False), torch.Generator())


def test_credit_needs_critics():
    settings = SdpoSettings(estimator="trajectory", credit_discount=0.5)
    codec = ObservationCodec(spaces.Discrete(1))
    with pytest.raises(SettingsError, match="credit_discount: trajectory has no critics to read it"):
        Sdpo(settings, Problem(constraints=(on_cost(),)), codec, spaces.Discrete(2))
