import numpy as np
import pytest
import torch

from portfolio_sdpo.errors import HistoryError, SettingsError
from portfolio_sdpo.portfolio.accounting import hold, trade
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.sequences import DECISIONS, EVERY, LAG, Sequences, normal_exposure
from portfolio_sdpo.portfolio.shared_network import SharedNetwork, mix
from portfolio_sdpo.portfolio.shared_training import FINE, SharedSettings, train_policy
from tests.portfolio.shared_markets import draw_noise

MARKET = draw_noise(700, 6, seed=4)
QUICK = SharedSettings(members=2, updates=4, windows=4, universes=3, memory=1)


def test_the_growth_of_a_window_is_that_of_the_accounts():
    torch.manual_seed(0)
    sequences, network = Sequences.of(MARKET, universes=1), SharedNetwork()
    limit, fee, start = CvarLimit(), 0.002, 7
    with torch.no_grad():
        found = sequences.log_growth(network, torch.tensor([0]), torch.tensor([start]), fee, limit)[0].numpy()
        decisions = torch.arange(start, start + DECISIONS + 1)
        seen = sequences.seen.at(decisions)
        logits, share = network(seen)
        shares = mix(logits, seen.listed)
        exposure = (share * sequences.exposure(shares, decisions, limit)).clamp_max(1.0)
    targets = np.concatenate([1.0 - exposure[:, None], exposure[:, None] * shares], axis=1).astype(float)

    expected, held = [], targets[0]
    for number, target in enumerate(targets):
        first = sequences.rows[start + number] + LAG + 1
        kept = trade(held, target, fee)
        held = target
        for session in range(first, first + EVERY):
            growth, held = hold(held, MARKET.gross_returns[session])
            expected.append(np.log(kept * growth))
            kept = 1.0
    assert found == pytest.approx(np.array(expected[EVERY:]), abs=1e-5)
    assert len(found) == DECISIONS * EVERY


def test_a_decision_is_not_paid_before_the_next_close():
    sequences = Sequences.of(MARKET, universes=1)
    row = sequences.rows[3]
    assert sequences.growth[3, 0].numpy() == pytest.approx(MARKET.gross_returns[row + 2], abs=1e-6)
    assert sequences.rows[-1] + LAG + EVERY < len(MARKET)


def test_the_same_seed_gives_the_same_bytes_and_another_one_others():
    first = train_policy(MARKET, QUICK).to_bytes()
    assert train_policy(MARKET, QUICK).to_bytes() == first
    assert train_policy(MARKET, QUICK, seed=1).to_bytes() != first


def test_training_up_to_a_day_knows_nothing_later():
    end = MARKET.dates[599]
    assert train_policy(MARKET, QUICK, ends=[end]).to_bytes() == train_policy(MARKET.until(599), QUICK).to_bytes()


def test_fine_tuning_adds_a_vintage_near_its_parent():
    parent = train_policy(MARKET, QUICK, ends=[MARKET.dates[450]])
    tuned = train_policy(MARKET, FINE.model_copy(update={"updates": 3, "windows": 4}), parent=parent)
    assert [vintage.until for vintage in tuned.vintages] == [MARKET.dates[450], MARKET.dates[-1]]
    assert tuned.vintages[0] is parent.vintages[0]
    old, new = (vintage.members[0].asset.weight for vintage in tuned.vintages)
    assert 0.0 < (new - old).abs().max() < 0.1


def test_nothing_is_sold_short_where_cash_alone_breaks_the_limit():
    excess = np.random.default_rng(0).normal(0.0, 0.01, 300)
    assert normal_exposure(excess, -0.0001, CvarLimit(bound=0.0)) == 0.0
    assert 0.0 < normal_exposure(excess, -0.0001, CvarLimit()) < 1.0


def test_a_horizon_beyond_a_window_is_refused():
    assert SharedSettings(limit=CvarLimit(horizon=60)).limit.horizon == 60
    with pytest.raises(SettingsError, match=r"limit: its horizon must be at most 60 sessions"):
        SharedSettings(limit=CvarLimit(horizon=61))


def test_a_history_that_is_too_short_is_refused():
    with pytest.raises(HistoryError, match="import more"):
        train_policy(MARKET.until(300), QUICK)
