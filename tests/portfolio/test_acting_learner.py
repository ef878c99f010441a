import copy

import numpy as np
import pytest
import torch

from portfolio_sdpo.envs.portfolio import PortfolioVectorEnv
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.networks import Policy
from portfolio_sdpo.portfolio.acting_learner import ActingLearner, WeightSpace, act_on_paths
from portfolio_sdpo.portfolio.path_codec import PathCodec
from portfolio_sdpo.portfolio.scenarios import Paths
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import ActorSettings, CpoSettings, PdCvarSettings, PpoSettings, Problem, SdpoSettings
from portfolio_sdpo.rl.critics import CriticSettings

ACTOR = ActorSettings(hidden=(8, 8), learning_rate=1e-2)
MEAN = CriticSettings(kind="mean", hidden=(8, 8), epochs=2, minibatches=1)
QUANTILE = CriticSettings(kind="quantile", hidden=(8, 8), epochs=2, minibatches=1, atoms=16, dimension=16)
CVAR = Problem(discount=0.99, constraints=(Constraint.from_spec("cvar(0.1) of reward >= -0.05 eta=100"),))


def random_paths(paths=3, length=6, assets=4, seed=0, delisting=False):
    rng = np.random.default_rng(seed)
    gross_returns = np.ones((paths, length + 1, assets))
    gross_returns[..., 1:] = np.exp(0.03 * rng.standard_normal((paths, length + 1, assets - 1)))
    listed = np.ones(gross_returns.shape, dtype=bool)
    if delisting:
        listed[:, 3:, 2] = False
        gross_returns[~listed] = 1.0
    return gross_returns, listed


def tensors(gross_returns, listed):
    return torch.as_tensor(gross_returns, dtype=torch.float32), torch.as_tensor(listed)


def policy_on(paths, sees_held, bold=True):
    codec = PathCodec(paths[0].shape[-1], sees_held)
    torch.manual_seed(0)
    policy = Policy(codec, WeightSpace(0.0, 1.0, (codec.assets,)), (8, 8))
    if bold:
        with torch.no_grad():
            policy.network.allocation.output.bias.zero_()
            if sees_held:
                policy.network.allocation.from_held.weight.normal_()
    codec.replay(*tensors(*paths))
    return codec, policy


@pytest.mark.parametrize("fee", [0.0, 0.01])
@pytest.mark.parametrize("delisting", [False, True])
def test_all_episodes_at_once_are_the_environments_step_by_step(fee, delisting):
    gross_returns, listed = random_paths(delisting=delisting)
    codec, policy = policy_on((gross_returns, listed), sees_held=fee > 0)
    rollout = act_on_paths(policy, codec, 7, fee, torch.Generator().manual_seed(1))
    env = PortfolioVectorEnv.from_paths(Paths(gross_returns, listed), 7, fee=fee, execution="same-close")
    env.reset(seed=0, options={"path": np.arange(7) % 3})
    weights = policy.head.to_executable(rollout.action).view(7, 6, 4).numpy()
    signals = {name: values.view(7, 6).numpy() for name, values in rollout.signals.items()}
    for t in range(6):
        _, reward, _, truncated, info = env.step(weights[:, t])
        assert signals["reward"][:, t] == pytest.approx(reward, abs=1e-6)
        assert signals["turnover"][:, t] == pytest.approx(info["turnover"], abs=1e-6)
        assert signals["drawdown"][:, t] == pytest.approx(info["drawdown"], abs=1e-6)
        assert truncated.all() == (t == 5)


@pytest.mark.parametrize("sees_held", [False, True])
def test_the_log_probabilities_are_the_policys(sees_held):
    codec, policy = policy_on(random_paths(), sees_held)
    rollout = act_on_paths(policy, codec, 5, 0.01 * sees_held, torch.Generator().manual_seed(1))
    again = policy.head.log_prob(policy(rollout.observation), rollout.action)
    assert again.detach().numpy() == pytest.approx(rollout.log_prob.numpy(), abs=1e-5)
    assert rollout.episodes == 5 and len(rollout) == 30
    assert torch.equal(rollout.ends, rollout.ended.nonzero().squeeze(-1))


def test_the_reward_of_the_mode_is_what_an_undecided_policy_would_have_earned():
    codec, policy = policy_on(random_paths(), sees_held=False)
    with torch.no_grad():
        policy.log_std.fill_(-20.0)
    rollout = act_on_paths(policy, codec, 3, 0.0, torch.Generator().manual_seed(1))
    assert rollout.signals["reward"].numpy() == pytest.approx(rollout.signals["reward_of_mode"].numpy(), abs=1e-6)


def test_at_least_one_episode_replays_every_path():
    codec, policy = policy_on(random_paths(paths=6), sees_held=False)
    rollout = act_on_paths(policy, codec, 2, 0.0, torch.Generator())
    assert rollout.observation[rollout.starts, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_start_is_all_in_cash():
    codec, policy = policy_on(random_paths(), sees_held=False, bold=False)
    parameters = policy(torch.tensor([[0.0, 2.0]]))
    assert policy.head.to_executable(policy.head.mode(parameters))[0, 0] >= 0.999
    rollout = act_on_paths(policy, codec, 50, 0.0, torch.Generator().manual_seed(0))
    assert policy.head.to_executable(rollout.action)[:, 0].min() > 0.99


@pytest.mark.parametrize("bound", [None, 3.0])
def test_what_is_not_listed_is_not_bought_whatever_is_held(bound: float | None):
    gross_returns, listed = random_paths(delisting=True)
    codec = PathCodec(4, sees_held=True)
    torch.manual_seed(0)
    policy = Policy(codec, WeightSpace(0.0, 1.0, (4,)), (8, 8), logit_bound=bound)
    with torch.no_grad():
        policy.network.allocation.output.bias.zero_()
        policy.network.allocation.from_held.weight.fill_(3.0)
    codec.replay(*tensors(gross_returns, listed))
    rollout = act_on_paths(policy, codec, 3, 0.01, torch.Generator().manual_seed(1))
    weights = policy.head.to_executable(rollout.action)
    assert weights[rollout.step >= 3, 2].max() < 1e-9


def test_what_is_not_listed_is_not_bought():
    gross_returns, listed = random_paths(delisting=True)
    codec, policy = policy_on((gross_returns, listed), sees_held=False)
    rollout = act_on_paths(policy, codec, 3, 0.0, torch.Generator().manual_seed(1))
    weights = policy.head.to_executable(rollout.action)
    assert weights[rollout.step >= 3, 2].max() < 1e-9
    learner = ActingLearner(PpoSettings(actor=ACTOR, critic=MEAN), CVAR, 4)
    held = torch.tensor([1.0, 0.0, 0.0, 0.0])
    assert learner.weights(*(part[0] for part in tensors(gross_returns, listed)), held)[2] == 0.0


@pytest.mark.parametrize(
    "settings",
    [
        PpoSettings(actor=ACTOR, critic=MEAN),
        SdpoSettings(actor=ACTOR, critic=QUANTILE),
        SdpoSettings(actor=ACTOR, critic=QUANTILE, estimator="pathwise"),
        SdpoSettings(actor=ACTOR, estimator="counterfactual"),
        PdCvarSettings(actor=ACTOR),
    ],
    ids=["ppo", "score", "pathwise", "counterfactual", "pd-cvar"],
)
def test_every_algorithm_trains_and_reports_its_constraint(settings):
    learner = ActingLearner(settings, CVAR, 4, episodes=12)
    generator = torch.Generator().manual_seed(0)
    for number in range(3):
        row = learner.update(*tensors(*random_paths(seed=number)), generator)
    assert np.isfinite([row["objective"], row["risk_0"], row["slack_0"]]).all()
    assert row["regime_0"] == "none" or settings.kind == "sdpo"
    assert int(learner.updates) == 3


def test_an_algorithm_for_expectations_takes_one():
    problem = Problem(constraints=(Constraint.from_spec("expectation of turnover <= 2 eta=100"),))
    learner = ActingLearner(CpoSettings(actor=ACTOR, critic=MEAN), problem, 4, fee=0.001, episodes=12)
    row = learner.update(*tensors(*random_paths()), torch.Generator().manual_seed(0))
    assert row["slack_0"] > 0


def test_fitting_critics_leaves_the_policy_where_it_is():
    learner = ActingLearner(SdpoSettings(actor=ACTOR, critic=QUANTILE), CVAR, 4, episodes=12)
    learner.codec.replay(*tensors(*random_paths()))
    critics = {id(parameter) for parameter in learner.algorithm.critics.parameters()}
    assert not critics & {id(parameter) for parameter in learner.algorithm.policy.parameters()}
    # The averaged critics are a copy, and see the paths of the day all the same.
    assert learner.algorithm.critics.averaged[0].trunk._codec is learner.codec


def test_a_saved_state_resumes_as_if_nothing_had_happened():
    settings = SdpoSettings(actor=ACTOR, critic=QUANTILE)
    learner = ActingLearner(settings, CVAR, 4, episodes=12)
    paths = tensors(*random_paths())
    learner.update(*paths, torch.Generator().manual_seed(0))
    other = ActingLearner(settings, CVAR, 4, episodes=12)
    other.load_state_dict(learner.state_dict())
    for ours, theirs in zip(other.optimisers(), learner.optimisers(), strict=True):
        ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    rows = [each.update(*paths, torch.Generator().manual_seed(1)) for each in (learner, other)]
    assert rows[0] == rows[1]
    now = [part[0] for part in paths]
    assert torch.equal(learner.weights(*now, torch.eye(4)[0]), other.weights(*now, torch.eye(4)[0]))


def test_another_days_paths_renew_the_running_risk():
    """What the barrier acts on is then the new day's estimate alone, and before it was not."""
    learner = ActingLearner(SdpoSettings(actor=ACTOR, critic=QUANTILE, smoothing=0.1), CVAR, 4, episodes=12)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        row = learner.update(*tensors(*random_paths(seed=0)), generator)
    assert learner.algorithm.risk.item() != pytest.approx(row["risk_0"], rel=1e-6)
    learner.restart_estimates()
    row = learner.update(*tensors(*random_paths(seed=1)), generator)
    assert learner.algorithm.risk.item() == pytest.approx(row["risk_0"], rel=1e-6)
    assert row["slack_0"] == pytest.approx(row["risk_0"] + 0.05, rel=1e-5)


def test_counterfactuals_are_refused_where_they_would_be_wrong():
    settings = SdpoSettings(actor=ACTOR, estimator="counterfactual")
    with pytest.raises(SettingsError, match="trading is free"):
        ActingLearner(settings, CVAR, 4, fee=0.001)
    with pytest.raises(SettingsError, match="only the reward"):
        ActingLearner(settings, Problem(constraints=(Constraint.from_spec("expectation of turnover <= 2 eta=9"),)), 4)


def one_stock(move, paths=1, length=5):
    gross_returns = torch.ones(paths, length + 1, 2)
    gross_returns[..., 1] += move
    return gross_returns, torch.ones_like(gross_returns, dtype=torch.bool)


@pytest.mark.parametrize("estimator", ["score", "counterfactual"])
@pytest.mark.parametrize(("move", "invested"), [(0.01, True), (-0.01, False)])
def test_a_rising_stock_is_bought_and_a_falling_one_is_not(move, invested, estimator):
    critic = {"critic": QUANTILE} if estimator == "score" else {}
    settings = SdpoSettings(actor=ActorSettings(hidden=(8, 8), learning_rate=3e-2), estimator=estimator, **critic)
    torch.manual_seed(0)
    learner = ActingLearner(settings, CVAR, 2, episodes=64)
    generator = torch.Generator().manual_seed(0)
    paths = one_stock(move)
    for _ in range(80):
        learner.update(*paths, generator)
    weights = learner.weights(paths[0][0], paths[1][0], torch.eye(2)[0])
    assert weights[1] > 0.9 if invested else weights[0] > 0.999


def test_ppo_finds_what_today_says_about_tomorrow():
    """The next day's return is shown: nearly all of the gain of a clairvoyant is there to be had."""
    settings = PpoSettings(actor=ActorSettings(hidden=(16, 16), learning_rate=1e-2), critic=MEAN, clip=0.2)
    torch.manual_seed(0)
    learner = ActingLearner(settings, Problem(discount=1.0), 2, episodes=128)
    generator = torch.Generator().manual_seed(0)
    for _ in range(150):
        # Both days move alike, so that the first tells of the second.
        move = torch.where(torch.rand(128, generator=generator) < 0.5, 0.02, -0.02)
        gross_returns = torch.ones(128, 2, 2)
        gross_returns[..., 1] += move.unsqueeze(-1)
        row = learner.update(gross_returns, torch.ones_like(gross_returns, dtype=torch.bool), generator)
    assert row["objective"] > 0.9 * 0.5 * np.log(1.02)


def test_with_bounded_logits_a_policy_leaves_yesterday_s_leader_for_today_s():
    """The first stock leads for eighty updates, then the second for sixty; no weight is ever out of reach."""
    actor = ActorSettings(hidden=(8, 8), learning_rate=1e-2, logit_bound=3.0)
    torch.manual_seed(0)
    learner = ActingLearner(PpoSettings(actor=actor, critic=MEAN, clip=0.2), Problem(), 4, episodes=32)
    generator = torch.Generator().manual_seed(0)
    listed = torch.ones(1, 7, 4, dtype=torch.bool)
    for leader, updates in ((1, 80), (2, 60)):
        gross_returns = torch.full((1, 7, 4), 0.99)
        gross_returns[..., 0], gross_returns[..., leader] = 1.0, 1.02
        for _ in range(updates):
            learner.update(gross_returns, listed, generator)
        weights = learner.weights(gross_returns[0, -6:], listed[0, -6:], torch.eye(4)[0])
        assert weights[leader] > 0.7
        assert weights.min() > 0.999 * np.exp(-6.0) * weights.max()
