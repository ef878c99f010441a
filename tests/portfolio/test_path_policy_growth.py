"""Growth on price paths: by hand, and as the simulation and the environment account for the same decisions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo.envs.portfolio import PortfolioEnv
from portfolio_sdpo.portfolio.accounting import hold, rebalance
from portfolio_sdpo.portfolio.acting_learner import WeightSpace, act_as_deployed, act_on_paths
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.path_codec import PathCodec
from portfolio_sdpo.portfolio.path_policy import Allocation, Deployment, draw_start, grow_as_deployed, grow_from_cash
from portfolio_sdpo.portfolio.scenarios import Paths
from portfolio_sdpo.rl.algorithms import ActorSettings
from portfolio_sdpo.rl.algorithms.base import build_policy
from portfolio_sdpo.rl.rollout import torch_generator

EXECUTIONS = ("next-close", "same-close")


def constant(weights: list[float], sees_held: bool = True) -> Allocation:
    """The policy that always asks for these weights."""
    policy = Allocation(len(weights), (4, 4), sees_held=sees_held)
    with torch.no_grad():
        policy.output.weight.zero_()
        policy.output.bias.copy_(torch.tensor(weights).log())
    return policy


def opinionated(assets: int, sees_held: bool = True) -> Allocation:
    """A policy whose weights depend on prices and on what is held."""
    torch.manual_seed(0)
    policy = Allocation(assets, (4, 4), sees_held=sees_held)
    with torch.no_grad():
        policy.output.weight.normal_()
        policy.output.bias.normal_()
        if policy.from_held is not None:
            policy.from_held.weight.normal_()
    return policy.double()


class Deployed:
    """The policy as a strategy: on the sessions seen last, with what is held then."""

    name = "deployed"

    def __init__(self, policy: Allocation, seen: int | None, every: int) -> None:
        self.policy, self.seen, self.every = policy, seen, every

    @torch.no_grad()
    def decide(self, history, held):
        rows = slice(-self.seen if self.seen else 0, None)
        gross_returns, listed = (torch.tensor(table[rows]) for table in (history.gross_returns, history.listed))
        logits = self.policy.logits(gross_returns.unsqueeze(0), listed.unsqueeze(0))[0, -1]
        return self.policy.weights(logits, torch.tensor(held)).numpy()


def random_market(seed: int, sessions: int, stocks: int = 3, gaps: bool = True) -> Market:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        100 * np.exp(np.cumsum(rng.normal(0, 0.03, (sessions, stocks)), axis=0)),
        index=pd.bdate_range("2019-01-02", periods=sessions),
        columns=[f"S{stock}" for stock in range(stocks)],
    )
    if gaps:
        frame.iloc[sessions // 2 : sessions // 2 + 3, 1] = np.nan
        frame.iloc[: sessions // 3, 2] = np.nan
    return Market.from_prices(frame, 0.02)


def tensors(market: Market) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole market as one path."""
    return torch.tensor(market.gross_returns).unsqueeze(0), torch.tensor(market.listed).unsqueeze(0)


def test_by_hand_at_the_next_close():
    """Half is bought a session after it is asked for; it drifts to 0.6, of which 0.1 is sold."""
    gross_returns = torch.tensor([[[1.0, 1.0], [1.0, 7.0], [1.0, 1.5], [1.0, 1.0]]])
    listed = torch.ones_like(gross_returns, dtype=torch.bool)
    growth = grow_from_cash(constant([0.5, 0.5]), gross_returns, listed, 0.01, "next-close").exp()
    assert growth.detach().numpy() == pytest.approx(np.array([[1.0, (1 - 0.005) * 1.25, 1 - 0.001]]))


def test_by_hand_as_deployed():
    """Two sessions seen, decisions every two, periods of two: from 0.2 held, at the next close."""
    moves = [1.0, 1.0, 2.0, 1.5, 1.0, 0.5]
    gross_returns = torch.tensor([[[1.0, move] for move in moves]])
    listed = torch.ones_like(gross_returns, dtype=torch.bool)
    deployment = Deployment(seen=2, horizon=2, every=2, execution="next-close")
    assert (deployment.rows, deployment.decisions, deployment.sessions) == (6, 2, 3)
    start = torch.tensor([[0.8, 0.2]])
    growth = grow_as_deployed(constant([0.5, 0.5]), gross_returns, listed, start, deployment, 0.01).exp()
    # Decided at row 1; at row 2 0.2 has become a third, and a sixth is bought. Decided at row 3 with 0.6; that is still
    # held at row 4, where 0.1 is sold.
    first, second, third = (1 - 0.01 / 6) * 1.25, 1.0, (1 - 0.001) * 0.75
    assert growth.detach().numpy() == pytest.approx(np.array([[first, second], [second, third]]))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(EXECUTIONS), st.sampled_from([0.0, 0.001]), st.booleans())
def test_environment_simulation_and_torch_agree(seed, execution, fee, gaps):
    """The same policy from cash, every session: three kinds of accounting, and the episodes of acting learners."""
    market = random_market(seed, 12, gaps=gaps)
    policy = opinionated(4, sees_held=fee > 0)
    track = simulate(market, Deployed(policy, None, 1), fee=fee, execution=execution)
    with torch.no_grad():
        growth = grow_from_cash(policy, *tensors(market), fee, execution)[0].exp().numpy()
    # The gradient's fee is exact up to its square.
    np.testing.assert_allclose(growth, 1 + track.returns, atol=10 * fee**2 + 1e-12)
    env = PortfolioEnv.from_paths(Paths(market.gross_returns[None], market.listed[None]), fee, execution=execution)
    env.reset(seed=0)
    for day, asked in enumerate(list(track.decisions.values())[:-1]):
        _, reward, *_, info = env.step(asked)
        assert np.exp(reward) == pytest.approx(1 + track.returns[day], abs=1e-12)
        np.testing.assert_allclose(info["weights"], track.weights[day], atol=1e-12)
        assert info["turnover"] == pytest.approx(track.turnover[day], abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 1000), st.sampled_from(EXECUTIONS), st.sampled_from([0.0, 0.001]), st.integers(1, 6), st.booleans()
)
def test_a_path_as_deployed_is_a_backtest_that_is_invested_already(seed, execution, fee, every, gaps):
    """After some decisions the path holds what the simulation holds, and from there on every period is the same."""
    deployment = Deployment(seen=4, horizon=5, every=every, execution=execution)
    before = 3 * every
    market = random_market(seed, before + deployment.rows, gaps=gaps)
    policy = opinionated(4)
    begin = before + deployment.seen - 1
    track = simulate(
        market, Deployed(policy, 4, every), start=market.dates[deployment.seen - 1], fee=fee, execution=execution
    )
    place = list(track.dates).index(market.dates[begin])
    start = track.weights[place] if deployment.lag else track.held[place]
    path = Market(market.dates[before:], market.tickers, market.gross_returns[before:], market.listed[before:])
    with torch.no_grad():
        growth = grow_as_deployed(policy, *tensors(path), torch.tensor(start[None]), deployment, fee)
    wealth = track.wealth[place + deployment.lag :]
    expected = [np.log(wealth[first + 5] / wealth[first]) for first in range(every)]
    np.testing.assert_allclose(growth.sum(1).numpy(), expected, atol=60 * fee**2 + 1e-12)


def test_random_starts_are_weights_of_what_is_listed():
    listed = torch.tensor([[True, True, False, True]]).repeat(2000, 1)
    listed[0, 1:] = False
    start = draw_start(listed, torch.Generator().manual_seed(0))
    assert (start >= 0).all() and start.sum(1) == pytest.approx(1.0, abs=1e-6)
    assert (start[:, 2] == 0).all() and start[0].tolist() == [1, 0, 0, 0]
    assert start[:, 0].mean().item() == pytest.approx(0.5, abs=0.02)
    assert start[1:, 1].mean().item() == pytest.approx(start[1:, 3].mean().item(), abs=0.02)


def acting(assets: int, fee: float) -> tuple[object, PathCodec]:
    torch.manual_seed(0)
    codec = PathCodec(assets, sees_held=fee > 0)
    policy = build_policy(ActorSettings(hidden=(4, 4)), codec, WeightSpace(0.0, 1.0, (assets,), np.float64))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return policy, codec


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("fee", [0.0, 0.001])
def test_acting_episodes_are_those_of_the_environment(execution, fee):
    market = random_market(3, 12)
    policy, codec = acting(4, fee)
    paths = tuple(part.float() if part.is_floating_point() else part for part in tensors(market))
    codec.replay(*paths)
    rollout = act_on_paths(policy, codec, 2, fee, torch_generator(np.random.SeedSequence(0)), execution)
    weights = policy.head.to_executable(rollout.action).double().numpy().reshape(2, 11, 4)
    for episode in range(2):
        env = PortfolioEnv.from_paths(Paths(market.gross_returns[None], market.listed[None]), fee, execution=execution)
        env.reset(seed=0)
        steps = [env.step(asked / asked.sum()) for asked in weights[episode]]
        total = sum(step[1] for step in steps)
        assert rollout.returns("reward", 1.0)[episode].item() == pytest.approx(total, abs=1e-5)
        turnover = sum(step[-1]["turnover"] for step in steps)
        assert rollout.returns("turnover", 1.0)[episode].item() == pytest.approx(turnover, abs=1e-5)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("fee", [0.0, 0.001])
@pytest.mark.parametrize("every", [1, 2, 5])
def test_acting_as_deployed_earns_what_a_simulation_of_its_actions_earns(execution, fee, every):
    """The actions of each episode, replayed from its start by the simulation's own trade and drift."""
    deployment = Deployment(seen=4, horizon=5, every=every, execution=execution)
    market = random_market(5, deployment.rows)
    policy, codec = acting(4, fee)
    paths = tuple(part.float() if part.is_floating_point() else part for part in tensors(market))
    codec.replay(*paths, deployment)
    seed = np.random.SeedSequence(0)
    rollout = act_as_deployed(policy, codec, 6, fee, torch_generator(seed), deployment)
    starts = draw_start(paths[1][:, 3].repeat(6, 1), torch_generator(seed)).double().numpy()
    asked = policy.head.to_executable(rollout.action).double().numpy().reshape(6, deployment.decisions, 4)
    for episode in range(6):
        held, total, order, shown = starts[episode], 0.0, None, []
        for session in range(deployment.lag + deployment.sessions):
            row, kept = deployment.seen - 1 + session, 1.0
            decision, waits = divmod(session, every)
            due = not waits and decision < deployment.decisions
            for step in ("trade", "decide") if deployment.lag else ("decide", "trade"):
                if step == "decide" and due:
                    shown.append(held)
                    order = asked[episode, decision] / asked[episode, decision].sum()
                elif step == "trade" and order is not None:
                    target = Limits().apply(order, held, market.listed[row])
                    kept, held, order = float(rebalance(held, target, fee)[0]), target, None
            growth, held = hold(held, market.gross_returns[row + 1], market.listed[row + 1])
            counted = session - deployment.lag
            if episode % every <= counted < episode % every + 5:
                total += np.log(kept * growth)
        assert rollout.returns("reward", 1.0)[episode].item() == pytest.approx(total, abs=1e-5)
        if fee:
            seen = rollout.observation.reshape(6, deployment.decisions, -1)[episode, :, 2:].numpy()
            np.testing.assert_allclose(seen, shown, atol=1e-5)
