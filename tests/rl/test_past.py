"""What came before a state: the backward critic against known pasts, and gradients where the state remembers."""

from __future__ import annotations

import copy
from itertools import product

import numpy as np
import pytest
import torch
from gymnasium import spaces

from portfolio_sdpo.envs.hedging import HedgingVectorEnv, observe
from portfolio_sdpo.errors import InfeasibleConstraintError
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.risk import Constraint, Custom, CVaR, Entropic, Variance
from portfolio_sdpo.rl.algorithms import CpoSettings, PcpoSettings, PdSdpoSettings, Problem, SdpoSettings, build
from portfolio_sdpo.rl.critics import CriticSettings, Valuation
from portfolio_sdpo.rl.estimators.base import ShadowPrices
from portfolio_sdpo.rl.estimators.score import estimate_risk
from portfolio_sdpo.rl.past import BackwardCritics, batch_past, own_past
from portfolio_sdpo.rl.rollout import Collector, Rollout

LOSS = ("loss", 1.0)
SETTINGS = CriticSettings(kind="quantile", hidden=(32, 32), learning_rate=3e-3, warm_up=1)


def upper_deviation(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """A user's own measure: the root of the mean squared loss."""
    return ((weights * values.clamp_min(0).square()).sum(-1) + 1e-12).sqrt()


MEASURES = [Variance(), CVaR(alpha=0.25, tail="upper"), Entropic(beta=1.0), Custom(function=upper_deviation)]
EACH = pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.label)


def enumerate_hedging(dtype=torch.float64) -> tuple[Rollout, Valuation]:
    """Every path of one round under the uniform policy once, and the exact distributions of the loss to come."""
    paths = [(shock, action) for shock, action, _ in product((-1.0, 1.0), range(3), range(3))]
    losses = torch.tensor([[shock, (action - 1) * shock] for shock, action in paths], dtype=dtype)
    count = len(paths)
    seen = np.stack(
        [observe(k / 2, np.array([k * s for s, _ in paths]), np.array([k * s for s, _ in paths])) for k in (0, 1)], 1
    )
    seen = torch.from_numpy(seen.reshape(2 * count, 3))
    # The same number of atoms at both steps: two shocks and three answers make six equally likely sums.
    start = torch.tensor([a * s + s for s in (-1.0, 1.0) for a in (-1, 0, 1)], dtype=dtype)
    answer = torch.tensor([-1.0, -1.0, 0.0, 0.0, 1.0, 1.0], dtype=dtype)
    here = torch.stack([start.expand(count, -1), answer.expand(count, -1)], 1).reshape(2 * count, -1)
    ahead = torch.stack([answer.expand(count, -1), torch.zeros(count, 6, dtype=dtype)], 1).reshape(2 * count, -1)
    last = torch.arange(2 * count) % 2 == 1
    rollout = Rollout(
        observation=seen,
        action=torch.tensor([[act, a] for (_, a), act in zip(paths, [0, 1, 2] * 6, strict=True)]).flatten(),
        log_prob=torch.full((2 * count,), -np.log(3), dtype=dtype),
        signals={"loss": losses.flatten()},
        next_observation=seen.roll(-1, 0),
        terminated=last,
        ended=last,
        last=last,
        episode=torch.arange(count).repeat_interleave(2),
        step=torch.arange(2).repeat(count),
    )
    increments = losses.flatten() + ahead.mean(-1) - here.mean(-1)
    return rollout, Valuation(here, ahead, increments)


def true_gradient(measure, step=1e-5) -> torch.Tensor:
    """∂ρ/∂logits [2 shocks, 3 actions] at the uniform policy, by differences of the exact risk."""

    def risk(logits: torch.Tensor) -> torch.Tensor:
        table = torch.softmax(logits, -1)
        shock = torch.tensor([-1.0, 1.0], dtype=torch.float64).unsqueeze(-1)
        outcome = shock * torch.arange(3, dtype=torch.float64)
        return measure(outcome.flatten(), table.flatten() / 2)

    gradient = torch.zeros(2, 3, dtype=torch.float64)
    for index in np.ndindex(2, 3):
        shift = torch.zeros(2, 3, dtype=torch.float64)
        shift[index] = step
        gradient[index] = (risk(shift) - risk(-shift)) / (2 * step)
    return gradient


def score_gradient(rollout: Rollout, advantage: torch.Tensor) -> torch.Tensor:
    """Mean over episodes of A ∇ ln π of the answer to the shock, [2, 3]."""
    logits = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    answers = rollout.step == 1
    shock = (rollout.observation[answers, 2] > 0).long()
    chosen = torch.log_softmax(logits, -1)[shock, rollout.action[answers]]
    return torch.autograd.grad((advantage[answers] * chosen).sum() / rollout.episodes, logits)[0]


@pytest.fixture(scope="module")
def learnt() -> BackwardCritics:
    """A backward critic that has seen a thousand episodes of the uniform policy."""
    env = HedgingVectorEnv(64)
    codec = ObservationCodec(env.single_observation_space)
    torch.manual_seed(0)
    policy = Policy(codec, env.single_action_space, hidden=())
    critics = BackwardCritics(codec, [LOSS], SETTINGS)
    collector = Collector(env, ["reward", "loss"], 2, seed=0)
    for iteration in range(60):
        rollout = collector.collect(policy, iteration)
        critics.fit_to_past(rollout, [torch.zeros(64)], torch.Generator().manual_seed(iteration))
    return critics


def as_single(rollout: Rollout) -> Rollout:
    columns = {name: getattr(rollout, name) for name in ("observation", "action", "next_observation", "terminated")}
    columns |= {name: getattr(rollout, name) for name in ("ended", "last", "episode", "step")}
    signals = {name: values.float() for name, values in rollout.signals.items()}
    return Rollout(**columns, log_prob=rollout.log_prob.float(), signals=signals)


@EACH
def test_the_gradient_sees_what_is_hedged(measure, learnt):
    """With the learnt past it is that of the exact risk; the batch's pasts, taken as they are, see half of nothing."""
    rollout, valuation = enumerate_hedging()
    truth = true_gradient(measure)
    signal = rollout.signals["loss"]
    exact = estimate_risk(measure, LOSS, rollout, valuation, 1.0, own_past(signal, 1.0, rollout))
    torch.testing.assert_close(score_gradient(rollout, exact.advantage), truth, rtol=0, atol=1e-7)
    past = learnt.describe(LOSS, rollout, torch.zeros(rollout.episodes, dtype=torch.float64), partners=18)
    found = estimate_risk(measure, LOSS, rollout, valuation, 1.0, past)
    torch.testing.assert_close(
        score_gradient(rollout, found.advantage), truth, rtol=0.1, atol=0.1 * truth.abs().max().item()
    )
    blind = estimate_risk(measure, LOSS, rollout, valuation, 1.0, batch_past(signal, 1.0, rollout, 18))
    assert (score_gradient(rollout, blind.advantage) - truth).abs().max() > 0.3 * truth.abs().max()


def test_the_risk_advantages_of_the_hedge_are_known(learnt):
    """Against the mean of the two: −2 for cancelling a shock, +2 for doubling it, 0 / 0 for whoever cannot see it."""
    rollout, valuation = enumerate_hedging()
    past = learnt.describe(LOSS, rollout, torch.zeros(rollout.episodes, dtype=torch.float64), partners=18)
    answers = rollout.step == 1
    for how, expected in ((past, 2.0), (batch_past(rollout.signals["loss"], 1.0, rollout, 18), 0.0)):
        advantage = estimate_risk(Variance(), LOSS, rollout, valuation, 1.0, how).advantage[answers]
        action = rollout.action[answers]
        hedge, amplify = advantage[action == 0].mean(), advantage[action == 2].mean()
        assert (amplify - hedge).item() / 2 == pytest.approx(expected, abs=0.15)


def test_a_state_that_says_nothing_leaves_the_pasts_as_they_are(by_hand):
    """Observations of pure noise: what the critic may say of them is weighed by what it explains, which is nothing."""
    generator = torch.Generator().manual_seed(1)

    def draw() -> Rollout:
        rollout = by_hand(torch.randn(40, 6, generator=generator).tolist(), [True] * 40)
        object.__setattr__(rollout, "observation", torch.randn(240, 3, generator=generator))
        return rollout

    torch.manual_seed(0)
    critics = BackwardCritics(ObservationCodec(spaces.Box(-9, 9, (3,))), [("reward", 1.0)], SETTINGS)
    worst = []
    for _ in range(40):
        rollout = draw()
        found = critics.describe(("reward", 1.0), rollout, torch.zeros(40), partners=32)
        plain = batch_past(rollout.signals["reward"], 1.0, rollout, partners=32)
        worst.append((found.cumulated - plain.cumulated).square().mean().sqrt().item() / plain.cumulated.std().item())
        torch.testing.assert_close(found.share, plain.share)
        critics.fit_to_past(rollout, [torch.zeros(40)], generator)
    assert np.mean(worst[20:]) < 0.05


def test_to_know_where_episodes_start_is_not_to_know_what_came_before(by_hand):
    """The first observation tells what is expected of an episode, and with it all of x_0; later ones tell nothing."""
    generator = torch.Generator().manual_seed(1)
    critics = None
    moved = []
    for _ in range(30):
        rollout = by_hand(torch.randn(40, 4, generator=generator).tolist(), [True] * 40)
        expected = torch.randn(40, generator=generator)
        told = torch.where(rollout.step == 0, expected[rollout.episode], torch.randn(160, generator=generator))
        object.__setattr__(rollout, "observation", torch.stack([told, (rollout.step == 0).float()], -1))
        if critics is None:
            torch.manual_seed(0)
            critics = BackwardCritics(ObservationCodec(spaces.Box(-9, 9, (2,))), [("reward", 1.0)], SETTINGS)
        found = critics.describe(("reward", 1.0), rollout, expected, partners=40).cumulated
        plain = batch_past(rollout.signals["reward"], 1.0, rollout, partners=40).cumulated - expected.unsqueeze(-1)
        later = rollout.step > 0
        difference = (found - expected[rollout.episode] - plain)[:, later]
        moved.append((difference.square().mean().sqrt() / plain[:, later].std()).item())
        critics.fit_to_past(rollout, [expected], generator)
    assert np.mean(moved[15:]) < 0.05


def test_nothing_is_cumulated_before_the_first_step(by_hand):
    rollout = by_hand([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]], [True] * 3)
    torch.manual_seed(0)
    critics = BackwardCritics(ObservationCodec(spaces.Box(-9, 9, (1,))), [("reward", 0.9)], SETTINGS)
    past = critics.describe(("reward", 0.9), rollout, torch.tensor([5.0, -2.0, 1.0]), partners=2)
    torch.testing.assert_close(past.cumulated[:, rollout.step == 0], torch.zeros(2, 3))
    assert past.cumulated.shape == past.share.shape == (2, 6) and past.episode.shape == (1, 6)


def test_without_a_partner_the_own_past_is_left(by_hand):
    """Episode 1 outlives both partners, 0 and 2."""
    rollout = by_hand([[1.0], [2.0, 3.0, 4.0], [5.0]], [True] * 3)
    torch.manual_seed(0)
    critics = BackwardCritics(ObservationCodec(spaces.Box(-9, 9, (1,))), [("reward", 1.0)], SETTINGS)
    past = critics.describe(("reward", 1.0), rollout, torch.zeros(3), partners=2)
    late = (rollout.episode == 1) & (rollout.step > 0)
    torch.testing.assert_close(past.cumulated[:, late], torch.tensor([[2.0, 5.0], [2.0, 5.0]]))


TAIL = Problem(constraints=(Constraint.from_spec("cvar(0.1) of reward >= -9"),))
QUANTILE = CriticSettings(kind="quantile", atoms=8)


def learner(settings, problem=TAIL):
    torch.manual_seed(0)
    return build(settings, problem, ObservationCodec(spaces.Discrete(2)), spaces.Discrete(2))


@pytest.mark.parametrize("kind", [SdpoSettings, PdSdpoSettings, CpoSettings, PcpoSettings])
def test_it_is_the_default_wherever_a_distribution_counts(kind):
    assert learner(kind(critic=QUANTILE)).backward_critics is not None
    assert learner(kind(critic=QUANTILE, pooled=True)).backward_critics is None
    mean = Problem(constraints=(Constraint.from_spec("expectation of reward >= -9"),))
    assert learner(kind(critic=QUANTILE), mean).backward_critics is None


def test_action_critics_keep_no_past_rollouts():
    """They learn from the newest one; checkpoints in which they had a memory, which nothing read, still open."""
    keeping = QUANTILE.model_copy(update={"memory": 2, "transitions": 8})
    current = learner(SdpoSettings(critic=keeping, estimator="pathwise"))
    assert current.critics.memory is not None and current.pathwise["critics"].memory is None
    memory = {f"pathwise.critics.memory.{name}": buffer for name, buffer in current.critics.memory.named_buffers()}
    current.load_state_dict(current.state_dict() | memory)
    with pytest.raises(RuntimeError, match="unheard_of"):
        current.load_state_dict(current.state_dict() | {"pathwise.critics.unheard_of": torch.zeros(1)})


def test_records_of_earlier_versions_keep_their_meaning():
    """They hold `pooled`, and their checkpoints no backward critic."""
    record = SdpoSettings(critic=QUANTILE).model_dump() | {"pooled": True}
    old = learner(SdpoSettings.model_validate(record))
    old.load_state_dict(learner(SdpoSettings(critic=QUANTILE, pooled=True)).state_dict())
    assert old.estimator.pooled is True and len(old.optimisers()) == 2
    assert len(learner(SdpoSettings(critic=QUANTILE)).optimisers()) == 3


def test_checkpoints_of_trust_region_methods_without_one_still_open():
    current = learner(PcpoSettings(critic=QUANTILE))
    before = {name: tensor for name, tensor in current.state_dict().items() if not name.startswith("backward_critics")}
    fresh = copy.deepcopy(current.backward_critics.state_dict())
    current.load_state_dict(before)
    torch.testing.assert_close(current.backward_critics.state_dict(), fresh)
    with pytest.raises(RuntimeError, match="critics"):
        current.load_state_dict({name: t for name, t in before.items() if not name.startswith("critics")})


def test_the_pathwise_form_uses_pasts_that_were_read_before_the_critics_learnt_from_them(monkeypatch):
    env = HedgingVectorEnv(16)
    problem = Problem(discount=1.0, constraints=(Constraint.from_spec("variance of loss <= 0.5 discount=1"),))
    settings = SdpoSettings(critic=QUANTILE, estimator="pathwise")
    torch.manual_seed(0)
    sdpo = build(settings, problem, ObservationCodec(env.single_observation_space), env.single_action_space)
    rollout, generator = (
        Collector(env, ["reward", "loss"], env.horizon, seed=0).collect(sdpo.policy, 0),
        torch.Generator(),
    )
    valuations, _ = sdpo.estimator.fit_critics(rollout, generator)
    assessment = sdpo.estimator.assess(rollout, valuations)

    def refuse(*_):
        raise AssertionError("read again")

    monkeypatch.setattr(BackwardCritics, "describe", refuse)
    direction = sdpo.estimator.combine(rollout, assessment, ShadowPrices([1.0]), generator)
    value = direction.term(torch.arange(len(rollout)), sdpo.policy(rollout.observation))
    assert torch.autograd.grad(value, list(sdpo.policy.parameters()))[-1].abs().sum() > 0


SMALL = {
    "actor": {"hidden": (32,), "learning_rate": 3e-3},
    "critic": {"kind": "quantile", "hidden": (32,), "atoms": 16, "dimension": 16, "learning_rate": 3e-3},
    "risk_atoms": 16,
    "phase_one": 40,
}


def find_hedge(settings: SdpoSettings) -> int:
    """The iteration in which phase I of SDPO has brought the variance of the loss of one round below a half."""
    env = HedgingVectorEnv(64)
    constraint = Constraint.from_spec("variance of loss <= 0.5 discount=1")
    torch.manual_seed(0)
    codec = ObservationCodec(env.single_observation_space)
    sdpo = build(settings, Problem(discount=1.0, constraints=(constraint,)), codec, env.single_action_space)
    collector = Collector(env, ["reward", "loss"], env.horizon, seed=0)
    for iteration in range(41):
        rollout = collector.collect(sdpo.policy, iteration)
        if sdpo.update(rollout, iteration, torch.Generator().manual_seed(iteration))["phase"] == 2.0:
            return iteration
    raise AssertionError("phase I neither succeeded nor failed")


@pytest.mark.parametrize("estimator", ["score", "pathwise"])
def test_phase_one_finds_the_hedge_by_default(estimator):
    assert find_hedge(SdpoSettings.model_validate(SMALL | {"estimator": estimator})) < 40


def test_phase_one_does_not_find_it_by_pasts_that_belong_to_other_states():
    """Variance 0 exists, and the advice would be to relax the bound."""
    with pytest.raises(InfeasibleConstraintError, match="relax the bound"):
        find_hedge(SdpoSettings.model_validate(SMALL | {"pooled": True}))
