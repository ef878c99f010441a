"""The shield on training paths: the accounting of a backtest behind it, and gradients that are those of differences."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.backtest.shielded import shield_track
from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.portfolio.calibrated_shield import LEAST, WINDOW, forecast_volatility
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.path_policy import Deployment
from portfolio_sdpo.portfolio.path_shield import PastVolatility, PathShield

LIMIT = CvarLimit(bound=-0.02, alpha=0.1, horizon=6)


def make_market(seed: int, sessions: int, jump: bool = False) -> Market:
    """Three stocks in calm and in storms, cash that earns 2 %; with a rise of 60 % that nobody can believe."""
    rng = np.random.default_rng(seed)
    size = 0.01 * np.exp(np.cumsum(rng.normal(0, 0.05, sessions)))
    moves = size[:, None] * rng.standard_t(5, (sessions, 3))
    if jump:
        moves[-8, 1] = np.log(1.6)
    days = pd.bdate_range("2015-01-02", periods=sessions)
    return Market.from_prices(pd.DataFrame(100 * np.exp(np.cumsum(moves, axis=0)), days, list("ABC")), 0.02)


class Drifter:
    """Other weights at every decision."""

    name = "drifter"

    def __init__(self, every: int) -> None:
        self.every = every

    def decide(self, history, held):
        return np.random.default_rng(len(history)).dirichlet([0.3, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("execution", ["next-close", "same-close"])
@pytest.mark.parametrize(
    ("every", "fee", "seed", "jump"),
    [(1, 0.0, 0, False), (3, 0.001, 1, False), (5, 0.001, 2, True), (20, 0.0, 3, False)],
)
def test_paths_behind_the_shield_are_backtests_behind_it(execution, every, fee, seed, jump):
    """Paths that begin at decisions amid a backtest, with what it held and had gone through by then."""
    deployment = Deployment(seen=6, horizon=6, every=every, execution=execution)
    market = make_market(seed, 400, jump)
    first = 40
    common = {"start": market.dates[first], "fee": fee, "execution": execution}
    bare = simulate(market, Drifter(every), **common)
    track = simulate(market, shield_track(bare, every, LIMIT), **common)
    last = len(track.returns) - deployment.lag - deployment.sessions
    # A path leaves out the fee of what is traded at its first decision because of the one before.
    places = [
        place
        for place in range(last - last % every, 150, -every)
        if not (deployment.lag and fee and track.turnover[place])
    ][:4]
    assert len(places) == 4
    held = track.weights if deployment.lag else track.held
    sized = []
    for place in places:
        begin = first + place - deployment.seen + 1
        rows = slice(begin, begin + deployment.rows)
        asked = [bare.decisions[track.dates[place + every * number]] for number in range(deployment.decisions)]
        growth = PathShield(torch.tensor(market.gross_returns[1:begin]), LIMIT, lengths=begin).follow(
            [torch.tensor(weights[None]) for weights in asked],
            torch.tensor(market.gross_returns[None, rows]),
            torch.tensor(market.listed[None, rows]),
            torch.tensor(held[None, place]),
            deployment,
            fee,
            record=torch.tensor(track.returns[None, :place]),
        )
        earned = slice(place + deployment.lag, place + deployment.lag + deployment.sessions)
        # The gradient's fee is exact up to its square.
        np.testing.assert_allclose(growth[0].numpy(), 1.0 + track.returns[earned], atol=20 * fee**2 + 1e-12)
        sized.append(track.weights[earned, 1:].sum(axis=1).min() < 0.9 * (1.0 - asked[0][0]))
    assert any(sized)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 4, 30, 600]), st.sampled_from([1, 20, 35]))
def test_volatility_is_that_of_the_rule(seed, sessions, new):
    """Of all lengths of the past exactly, of fewer never below it; one past for all paths, or each its own."""
    rng = np.random.default_rng(seed)
    moves = rng.standard_t(4, (2, sessions + new, 3)) * np.exp(rng.normal(-4.5, 0.5, (2, 1, 3)))
    mixes = rng.normal(size=(2, 3))
    returns = (moves @ mixes[..., None])[..., 0]
    expected = forecast_volatility(returns)

    def forecast(past: np.ndarray, count: int) -> np.ndarray:
        known = PastVolatility.of(torch.from_numpy(past), WINDOW - new, count)
        return known.forecast(torch.from_numpy(mixes), torch.from_numpy(returns[:, sessions:])).numpy()

    fewer, all_of_them = forecast(moves[:, :sessions], 80), forecast(moves[:, :sessions], WINDOW)
    assert (fewer >= all_of_them * (1 - 1e-9)).all() and (all_of_them >= expected * (1 - 1e-9)).all()
    if new <= LEAST:
        np.testing.assert_allclose(all_of_them, expected, rtol=1e-9)
        assert (fewer <= 1.05 * expected).all()
    np.testing.assert_allclose(forecast(moves[0, :sessions], WINDOW)[0], all_of_them[0], rtol=1e-9)


def test_gradients_are_finite_differences():
    """Of what is earned behind the shield, with respect to all that is asked for."""
    market = make_market(4, 250)
    deployment = Deployment(seen=6, horizon=6, every=3, execution="next-close")
    shield = PathShield(torch.tensor(market.gross_returns[1:150]), LIMIT)
    rows = np.arange(150, 150 + deployment.rows) + np.array([[0], [40]])
    paths = torch.tensor(market.gross_returns[rows]), torch.tensor(market.listed[rows])
    generator = torch.Generator().manual_seed(0)
    start = torch.softmax(torch.randn(2, 4, generator=generator, dtype=torch.float64), -1)

    def earn(*logits: torch.Tensor) -> torch.Tensor:
        asked = [torch.softmax(each, -1) for each in logits]
        return shield.follow(asked, *paths, start, deployment, 0.001).log()

    logits = [
        torch.randn(2, 4, generator=generator, dtype=torch.float64).requires_grad_()
        for _ in range(deployment.decisions)
    ]
    unshielded = [torch.softmax(each, -1)[:, 1:].sum(-1) for each in logits]
    assert torch.autograd.gradcheck(earn, logits, eps=1e-7, atol=1e-5, fast_mode=True)
    gradient = torch.autograd.grad(earn(*logits).sum(), logits)
    assert all(each.abs().max() > 1e-4 for each in gradient) and min(each.min() for each in unshielded) > 0.3


def test_the_past_is_that_which_all_assets_have():
    market = make_market(5, 1500)
    whole = np.array([True, True, True, True])
    assert PathShield.of(market, whole, LIMIT).past.shape == (1261, 4)
    listed = market.listed.copy()
    listed[:1400, 3] = False
    young = Market(market.dates, market.tickers, market.gross_returns, listed)
    assert PathShield.of(young, whole, LIMIT).past.shape == (99, 4)
    old = PathShield.of(young, np.array([True, True, True, False]), LIMIT)
    assert old.past.shape == (1261, 4) and (old.past[:, 3] == 1.0).all()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"learner": {"kind": "ppo"}}, "learner"),
        ({"scenarios": "window"}, "scenarios"),
        ({"shield_form": "filtered"}, "shield_form"),
    ],
)
def test_what_cannot_be_trained_through_it_is_refused(changes, field):
    with pytest.raises(SettingsError, match=f"{field}: training through-shield needs"):
        AgentSettings.model_validate({"training": "through-shield", **changes})
