import numpy as np
import pytest

from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.deviation import earn_deviation, judge
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.shared_agent import SharedAgent
from portfolio_sdpo.portfolio.shared_policy import SharedPolicy
from portfolio_sdpo.portfolio.shared_training import SharedSettings, train_policy
from tests.portfolio.shared_markets import draw_noise, plant_momentum
from tests.portfolio.test_shared_policy import random_policy

LIMIT = CvarLimit()


def draws(seed: int, edge: float, sessions: int = 2520) -> tuple[np.ndarray, np.ndarray]:
    """Daily returns of a policy and of its base: common noise, own noise, and an edge a year."""
    rng = np.random.default_rng(seed)
    base = rng.normal(0.0003, 0.005, sessions)
    return base + rng.normal(edge / 252, 0.0015, sessions), base


def test_without_skill_at_most_a_tenth_of_universes_earn_more_than_a_tenth():
    found = [judge(*draws(seed, 0.0), np.zeros(2520), LIMIT).value for seed in range(400)]
    assert np.mean(np.array(found) <= 0.1) >= 0.9


def test_skill_earns_a_full_deviation_and_a_loss_none():
    assert judge(*draws(0, 0.08), np.zeros(2520), LIMIT).value == 1.0
    assert judge(*draws(0, -0.08), np.zeros(2520), LIMIT).value == 0.0


def test_risk_alone_earns_nothing():
    _, base = draws(1, 0.0)
    assert judge(1.5 * base, base, np.zeros(2520), LIMIT).value == 0.0


def test_less_than_three_years_earn_nothing():
    found = judge(*draws(0, 0.5, 755), np.zeros(755), LIMIT)
    assert found.value == 0.0 and "too few" in str(found)


def test_evidence_at_a_close_depends_on_nothing_later_and_can_be_resumed():
    market, policy = draw_noise(1800, 5, seed=3), random_policy()
    other = market.gross_returns.copy()
    other[1500:] = 1.3
    changed = Market(market.dates, market.tickers, other, market.listed)
    decisions = {}
    then = earn_deviation(policy, market.until(1499), decisions=decisions)
    assert then == earn_deviation(policy, changed.until(1499))
    assert earn_deviation(policy, market, decisions=decisions) == earn_deviation(policy, market)
    assert then.years == pytest.approx((1499 - 252) / 252, abs=0.05)


def test_an_agent_without_evidence_holds_equal_weights_and_says_so():
    market = draw_noise(900, 4, seed=2)
    agent = SharedAgent(random_policy())
    assert agent.decide(market, np.r_[1.0, np.zeros(4)]) == pytest.approx(np.r_[0.0, np.full(4, 0.25)])
    assert agent.trace[0]["deviation"] == 0.0 and "too few" in str(agent.deviation)


@pytest.fixture(scope="module")
def planted():
    """A policy trained on 2,200 sessions of planted momentum, and the market that goes on for 2,300 more."""
    market = plant_momentum(4500, 12, seed=0)
    settings = SharedSettings(members=1, updates=150, windows=16, universes=2)
    return market, train_policy(market, settings, ends=[market.dates[2199]])


def test_planted_momentum_is_found_and_exploited(planted):
    market, policy = planted
    found = earn_deviation(policy, market)
    assert found.value == 1.0

    class Clairvoyant(SharedPolicy):
        """Knows by which rule the market is made."""

        def propose(self, market, rows, deviation=1.0):
            if deviation == 0.0:
                return super().propose(market, rows, deviation)
            past = np.stack([market.gross_returns[row - 256 : row - 4, 1:].prod(axis=0) for row in rows])
            chosen = past > np.median(past, axis=1, keepdims=True)
            return chosen / chosen.sum(axis=1, keepdims=True)

    known = earn_deviation(Clairvoyant(policy.vintages), market)
    assert known.growth > 0.03
    assert found.growth >= 0.8 * known.growth
