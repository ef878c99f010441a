import numpy as np
import pytest
import torch

from portfolio_sdpo.errors import CheckpointError
from portfolio_sdpo.portfolio.features import REACH, compute_features
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.shared_network import SharedNetwork
from portfolio_sdpo.portfolio.shared_policy import SHIPPED, SharedPolicy, Vintage, load_shipped_policy
from tests.portfolio.shared_markets import draw_noise, make_market


def random_policy(until="1990-06-01", members=2, seed=0) -> SharedPolicy:
    torch.manual_seed(seed)
    networks = [SharedNetwork(memory=2).requires_grad_(False) for _ in range(members)]
    for network in networks:
        network.score.weight.mul_(10.0)  # far from its base, so that a mistake shows
    return SharedPolicy((Vintage(np.datetime64(until), tuple(networks)),))


MARKET = draw_noise(1500, 7, seed=1)
POLICY = random_policy()


def columns(market: Market, order) -> Market:
    picked = np.concatenate([[0], 1 + np.asarray(order)])
    names = tuple(market.tickers[i] for i in order)
    return Market(market.dates, names, market.gross_returns[:, picked], market.listed[:, picked])


def test_permuting_the_assets_permutes_the_weights_exactly():
    order = np.random.default_rng(0).permutation(7)
    weights = POLICY.allocate(MARKET)
    assert np.array_equal(POLICY.allocate(columns(MARKET, order))[1:], weights[1:][order])
    assert np.ptp(weights[1:]) > 0.01


def test_an_asset_that_is_never_listed_changes_nothing():
    gross_returns = np.insert(MARKET.gross_returns, 3, 1.0, axis=1)
    listed = np.insert(MARKET.listed, 3, False, axis=1)
    names = (*MARKET.tickers[:2], "GHOST", *MARKET.tickers[2:])
    weights = POLICY.allocate(Market(MARKET.dates, names, gross_returns, listed))
    assert weights[3] == 0.0
    assert np.array_equal(np.delete(weights, 3), POLICY.allocate(MARKET))


def test_what_comes_after_a_close_changes_no_feature_and_no_proposal():
    rows = np.arange(300, 1000, 7)
    other = MARKET.gross_returns.copy()
    other[1000:] = np.random.default_rng(5).uniform(0.5, 2.0, other[1000:].shape)
    changed = Market(MARKET.dates, MARKET.tickers, other, MARKET.listed)
    for market in (changed, MARKET.until(999)):
        then, now = compute_features(market, rows), compute_features(MARKET, rows)
        for name in ("assets", "market", "months", "log_volatility", "listed"):
            assert np.array_equal(getattr(then, name), getattr(now, name)), name
        assert np.array_equal(POLICY.propose(market, rows), POLICY.propose(MARKET, rows))


def test_a_decision_equals_the_row_of_a_run_over_the_whole_past():
    row = 1499
    weights = POLICY.allocate(MARKET)
    assert weights[1:] == pytest.approx(POLICY.propose(MARKET, np.array([row]))[0], abs=1e-6)
    assert weights[0] == 0.0 and weights.sum() == pytest.approx(1.0)


def test_nothing_before_its_reach_counts():
    cut = MARKET.between(MARKET.dates[-REACH])
    assert np.array_equal(POLICY.allocate(cut), POLICY.allocate(MARKET))


def test_at_no_deviation_weights_are_equal_and_fully_invested():
    assert POLICY.allocate(MARKET, 0.0) == pytest.approx(np.r_[0.0, np.full(7, 1 / 7)])


def test_the_weights_move_continuously_with_the_deviation():
    near, far = POLICY.allocate(MARKET, 0.01), POLICY.allocate(MARKET, 1.0)
    assert np.abs(near[1:] - 1 / 7).max() < 0.05 * np.abs(far[1:] - 1 / 7).max()


def test_a_vintage_decides_nothing_before_it_was_trained():
    policy = random_policy(until=str(MARKET.dates[-1]))
    assert policy.vintage_at(MARKET.dates[-1]) is None
    assert policy.allocate(MARKET) == pytest.approx(np.r_[0.0, np.full(7, 1 / 7)])


def test_the_latest_vintage_from_before_the_day_decides():
    early, late = random_policy("1991-01-01", seed=1), random_policy("1993-01-01", seed=2)
    policy = SharedPolicy((*early.vintages, *late.vintages))
    rows = np.array([400, 1400])
    assert MARKET.dates[400] < np.datetime64("1993-01-01") < MARKET.dates[1400]
    expected = [early.propose(MARKET, rows)[0], late.propose(MARKET, rows)[1]]
    assert policy.propose(MARKET, rows) == pytest.approx(np.array(expected), abs=1e-6)


def test_young_unlisted_and_single_assets_are_served():
    listed = MARKET.listed.copy()
    listed[:1490, 1] = False  # ten sessions old
    listed[-1, 2] = False  # gone
    weights = POLICY.allocate(Market(MARKET.dates, MARKET.tickers, MARKET.gross_returns, listed))
    assert weights[1] > 0.0 and weights[2] == 0.0 and weights.sum() == pytest.approx(1.0)
    one = POLICY.allocate(columns(MARKET, [0]))
    assert one.shape == (2,) and one.sum() == pytest.approx(1.0)
    flat = make_market(np.ones((400, 4)))
    assert POLICY.allocate(flat) == pytest.approx([0.0, 1 / 3, 1 / 3, 1 / 3])
    gone = Market(MARKET.dates, MARKET.tickers, MARKET.gross_returns, np.zeros_like(listed) | (np.arange(8) == 0))
    assert POLICY.allocate(gone).tolist() == [1.0, *[0.0] * 7]


def test_a_saved_policy_is_the_same(tmp_path):
    policy = SharedPolicy(POLICY.vintages, {"data": "noise"})
    policy.save(tmp_path / "policy.safetensors")
    loaded = SharedPolicy.load(tmp_path / "policy.safetensors")
    assert loaded.card == {"data": "noise"} and loaded.to_bytes() == policy.to_bytes()
    assert np.array_equal(loaded.allocate(MARKET), policy.allocate(MARKET))


def test_a_damaged_file_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "policy.safetensors"
    path.write_bytes(POLICY.to_bytes()[:-40])
    with pytest.raises(CheckpointError, match="damaged"):
        SharedPolicy.load(path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        SharedPolicy.load(tmp_path / "missing")


def test_the_shipped_policy_says_where_it_comes_from_and_decides_at_once():
    policy = load_shipped_policy()
    assert SHIPPED.stat().st_size < 200_000
    assert {"data", "data_sha256", "first", "last", "command", "settings", "version", "results", "limits"} <= set(
        policy.card
    )
    assert policy.card["vintages"] == [str(vintage.until) for vintage in policy.vintages]
    assert str(policy.vintages[0].until) < "1936" and str(policy.vintages[-1].until) == policy.card["last"]
    weights = policy.allocate(draw_noise(600, 500, seed=0))
    assert weights.sum() == pytest.approx(1.0) and np.ptp(weights[1:]) > 0.0
