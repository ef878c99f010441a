"""What the critics' calibration makes of their distributions: unbiased variances on a noisy CMDP."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from portfolio_sdpo.envs.exact import evaluate, uniform_policy
from portfolio_sdpo.envs.exact.evaluation import transition_rows
from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.risk import Variance
from portfolio_sdpo.rl.critics import CriticBank, compute_variance
from portfolio_sdpo.rl.estimators.score import estimate_risk
from portfolio_sdpo.rl.past import batch_past
from portfolio_sdpo.rl.rollout import Collector, Rollout

REWARD = ("reward", 0.9)


class Told(CriticBank):
    """A bank that reads its distributions from a function instead of a network."""

    def __init__(self, critic: nn.Module) -> None:
        nn.Module.__init__(self)
        self._critic_told = critic
        self.tails = {REWARD: ()}

    def __getitem__(self, key):
        return self._critic_told


class Biased(nn.Module):
    """The exact means V_t(s) of the uniform policy, off by an amount that depends on time only, with a wrong spread."""

    def __init__(self, cmdp, discount, bias, spread):
        super().__init__()
        values = np.zeros((cmdp.horizon + 1, cmdp.states))
        for t in reversed(range(cmdp.horizon)):
            ahead = cmdp.reward + discount * (transition_rows(cmdp) @ values[t + 1]).reshape(cmdp.reward.shape)
            values[t] = ahead.mean(-1)
        self.horizon, self.spread = cmdp.horizon, spread
        self.values = torch.tensor(values + bias * np.linspace(1, -0.5, cmdp.horizon + 1)[:, None]).float()
        self.trunk = nn.Identity()

    def forward(self, observation, levels):
        return self.predict(observation, levels)

    def predict(self, observation, levels):
        means = self.values[(observation[:, 1] * self.horizon).round().long(), observation[:, 0].long()]
        return means.unsqueeze(-1) + self.spread * (levels - 0.5)


def groups(big, size):
    """A large rollout of equally long episodes as many small ones."""
    length = int(big.step.max()) + 1
    for start in range(0, big.episodes, size):
        part = slice(start * length, (start + size) * length)
        yield Rollout(
            observation=big.observation[part],
            action=big.action[part],
            log_prob=big.log_prob[part],
            signals={name: values[part] for name, values in big.signals.items()},
            next_observation=big.next_observation[part],
            terminated=big.terminated[part],
            ended=big.ended[part],
            last=big.last[part],
            episode=big.episode[part] - start,
            step=big.step[part],
        )


@pytest.fixture(scope="module")
def noisy():
    """A noisy CMDP and 500 batches of 8 episodes of its uniform policy."""
    cmdp = random_cmdp(5, 2, seed=1, noise_scale=1.0, horizon=4)
    env = RandomCmdpVectorEnv(cmdp, 500 * 8)
    policy = Policy(ObservationCodec(env.single_observation_space), env.single_action_space, hidden=())
    return cmdp, Collector(env, [], 4, seed=0).collect(policy, 0)


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("bias, spread", [(0.0, 1.0), (3.0, 5.0)])
def test_the_variance_is_estimated_without_bias(noisy, bias, spread, pooled):
    """A critic that lags behind says nothing of the variance: batches of 8 episodes agree with the truth on average.

    Without the stretch for the lost degree of freedom, an eighth would be missing.
    """
    cmdp, big = noisy
    critics = Told(Biased(cmdp, 0.9, bias, spread))
    estimates = []
    for rollout in groups(big, 8):
        valuation = critics.value(REWARD, rollout, atoms=8)
        past = batch_past(rollout.signals["reward"], 0.9, rollout, partners=32) if pooled else None
        estimates.append(estimate_risk(Variance(), REWARD, rollout, valuation, 0.9, past).estimate)
    truth = evaluate(cmdp, uniform_policy(cmdp), 0.9).variance
    error = np.std(estimates) / len(estimates) ** 0.5
    assert error < 0.03 * truth
    assert np.mean(estimates) == pytest.approx(truth, abs=3 * error)


def test_distributions_get_the_spread_that_td_errors_have(noisy):
    """However wide the critic's distributions are, Var(Y(s0)) = E[Σ γ^2t δ_t²]; beyond a cut they stay the critic's."""
    cmdp, big = noisy
    rollout = next(groups(big, 200))
    narrow, wide = (Told(Biased(cmdp, 0.9, 0.0, spread)).value(REWARD, rollout, atoms=8) for spread in (0.1, 9.0))
    torch.testing.assert_close(narrow.here, wide.here, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(narrow.ahead, wide.ahead, atol=1e-4, rtol=1e-4)
    td = rollout.per_episode(0.9 ** (2 * rollout.step) * narrow.increments.square()).mean()
    assert narrow.here[rollout.starts].var(-1, unbiased=False).mean() == pytest.approx(td.item(), rel=1e-4)
    assert td == pytest.approx(evaluate(cmdp, uniform_policy(cmdp), 0.9).variance, rel=0.15)


def test_the_variance_of_equally_likely_atoms_is_that_of_torch_to_the_bit():
    """Runs of the same seed end with the same bytes whether or not a critic could have levels of its own."""
    generator = torch.Generator().manual_seed(0)
    atoms = torch.randn(500, 32, generator=generator) + torch.randn(500, 1, generator=generator)
    assert torch.equal(compute_variance(atoms, None), atoms.var(-1, unbiased=False))
    equal = torch.full((32,), 1 / 32, dtype=torch.float64)
    torch.testing.assert_close(compute_variance(atoms, equal), atoms.var(-1, unbiased=False))
