"""Growth at the same risk: by hand, against a search of another kind, and with tests whose answers are known."""

import json
import math

import numpy as np
import pytest
from scipy.optimize import brentq

from portfolio_sdpo.backtest import Bootstrap, CvarLimit
from portfolio_sdpo.backtest.same_risk import compare_at_same_risk, find_shares, judge_superiority, scale_with_cash
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns

LIMIT = CvarLimit(horizon=5, alpha=0.1)
CASH = np.full(600, 0.0001)


def draw_market(seed=0, sessions=600):
    return np.random.default_rng(seed).normal(0.0005, 0.01, sessions)


def realised(returns):
    return float(conditional_value_at_risk(window_returns(returns, LIMIT.horizon), LIMIT.alpha))


def test_by_hand():
    """Twice the risk for twice the gain over cash is no better: half of it and half in cash is the same track."""
    calm = draw_market()
    double = CASH + 2 * (calm - CASH)
    found = compare_at_same_risk(double, calm, CASH, LIMIT)
    assert (found.share, found.reference_share) == (pytest.approx(0.5, abs=1e-6), 1.0)
    assert found.growth == pytest.approx(0.0, abs=1e-6)
    assert found.cvar == pytest.approx(realised(calm))
    other_way = compare_at_same_risk(calm, double, CASH, LIMIT)
    assert (other_way.share, other_way.reference_share) == (1.0, pytest.approx(0.5, abs=1e-6))


def test_the_share_is_the_root_that_a_search_finds():
    track, reference = 2.5 * draw_market(1), draw_market(2)
    found = compare_at_same_risk(track, reference, CASH, LIMIT)
    share = brentq(lambda part: realised(CASH + part * (track - CASH)) - realised(reference), 0.01, 1.0, xtol=1e-12)
    assert found.share == pytest.approx(share, rel=1e-6)
    grown = np.log1p(CASH + share * (track - CASH)) - np.log1p(reference)
    assert found.growth == pytest.approx(grown.mean() * 252, abs=1e-6)
    assert found.span == "year"


def test_nothing_is_ever_scaled_up():
    tracks = np.stack([draw_market(seed) * (1 + seed) for seed in range(4)])
    shares, level = find_shares(tracks, CASH, LIMIT)
    assert shares.max() == 1.0 and (shares > 0).all()
    for track, share in zip(tracks, shares, strict=True):
        assert realised(scale_with_cash(track, CASH, share)) == pytest.approx(float(level), abs=1e-9)


def test_the_interval_covers_an_advantage_that_is_there():
    """An advantage at equal risk is found, and the interval holds it; three times the same is no advantage."""
    market = draw_market(3)
    rng = np.random.default_rng(4)
    better = market + rng.normal(0.0008, 0.002, 600)
    found = compare_at_same_risk(better, market, CASH, LIMIT, Bootstrap(draws=200))
    assert 0 < found.interval[0] < found.growth < found.interval[1]
    same = compare_at_same_risk(CASH + 3 * (market - CASH), market, CASH, LIMIT, Bootstrap(draws=200))
    assert same.interval == pytest.approx((0.0, 0.0), abs=1e-4)


def test_cash_and_tracks_without_a_loss_have_no_risk_to_match():
    market = draw_market()
    for track in (CASH, CASH + 1e-6 * market, np.abs(market)):
        found = compare_at_same_risk(track, market, CASH, LIMIT, Bootstrap(draws=10))
        assert math.isnan(found.growth) and math.isnan(found.interval[0])
        assert json.loads(json.dumps(found.to_json(), allow_nan=False))["growth"] is None


def test_below_a_year_it_is_the_whole_difference():
    track, reference = draw_market(1)[:100], draw_market(2)[:100]
    short = compare_at_same_risk(track, reference, CASH[:100], LIMIT)
    assert short.span == "track"
    yearly = compare_at_same_risk(track, reference, CASH[:100], LIMIT, per_year=52)
    assert yearly.span == "year" and short.growth == pytest.approx(yearly.growth * 100 / 52)


def test_superiority_finds_the_one_that_is_better_and_only_that():
    market, rng = draw_market(5), np.random.default_rng(6)
    noise = rng.normal(0.0, 0.002, (4, 600))
    worthless = {f"w{number}": market + each - each.mean() for number, each in enumerate(noise)}
    better = market + rng.normal(0.0008, 0.002, 600)
    bootstrap = Bootstrap(draws=300)
    found = judge_superiority({"m": market, **worthless, "b": better}, "m", CASH, LIMIT, bootstrap)
    assert found.best == "b" and found.spa < 0.05
    assert found.confidence_set == ("b",)
    assert found == judge_superiority({"m": market, **worthless, "b": better}, "m", CASH, LIMIT, bootstrap)
    none_better = judge_superiority({"m": market, **worthless}, "m", CASH, LIMIT, bootstrap)
    assert none_better.spa > 0.05
    assert {"m", *worthless} >= set(none_better.confidence_set) > {none_better.best}


def test_more_risk_alone_is_not_superior():
    market, rng = np.abs(draw_market(7)) * np.sign(draw_market(8)) + 0.001, np.random.default_rng(9)
    levered = CASH + 3 * (market - CASH) + rng.normal(0.0, 0.0005, 600)
    found = judge_superiority({"m": market, "levered": levered}, "m", CASH, LIMIT, Bootstrap(draws=300))
    assert levered.mean() > 2 * market.mean() and found.spa > 0.05


def test_cash_and_copies_are_left_out_and_short_tracks_are_not_tested():
    market = draw_market(5)
    other = market + np.random.default_rng(1).normal(0.0, 0.003, 600)
    tracks = {"cash": CASH, "copy": market.copy(), "m": market, "o": other}
    found = judge_superiority(tracks, "m", CASH, LIMIT, Bootstrap(draws=50))
    assert found.left_out == ("cash", "copy") and set(found.p_values) == {"m", "o"}
    assert json.loads(json.dumps(found.to_json()))["reference"] == "m"
    assert judge_superiority({"m": market, "cash": CASH}, "m", CASH, LIMIT, Bootstrap(draws=50)) is None
    short = {name: track[:99] for name, track in tracks.items()}
    assert judge_superiority(short, "m", CASH[:99], LIMIT, Bootstrap(draws=50)) is None
