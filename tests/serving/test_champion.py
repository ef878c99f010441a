"""What the champion decides: once per model and prices, on the newest prices, or with a reason why not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from portfolio_sdpo.portfolio.market import all_cash, load_latest
from portfolio_sdpo.portfolio.store import today
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.serving import ChampionDecisions, Decision, NotServableError, champion, decide
from portfolio_sdpo.serving import decision as decision_module

from .conftest import save_snapshot


def count_decisions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each decision that is computed."""
    calls: list[Any] = []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return decide(*arguments)

    monkeypatch.setattr(decision_module, "decide", counted)
    return calls


def decide_now(decisions: ChampionDecisions) -> Decision:
    state = decisions.read_state()
    assert state.model is not None and state.prices is not None
    return decisions.decide(state.model)


def test_no_champion(registry: Registry):
    decisions = ChampionDecisions(registry)
    state = decisions.read_state()
    assert (state.promotion, state.model, state.prices) == (None, None, None)
    assert state.error is not None and state.error.kind == "no-champion"
    assert decisions.decide_previous_session(state) is None


def test_a_decision_is_that_of_the_agent_behind_the_shield(registry: Registry, promote: Callable[[str], str]):
    model = promote("sample")
    decision = decide_now(ChampionDecisions(registry))
    agent, (market, data) = registry.load_agent(model), load_latest(None, "zero")
    weights = agent.decide(market, all_cash(len(market.assets)))
    assert decision.today == today(agent, market, weights)
    assert (decision.assets, decision.as_of, decision.data) == (market.assets, date(2021, 10, 14), data)


def test_the_same_prices_are_decided_once(registry: Registry, promote: Any, monkeypatch: pytest.MonkeyPatch):
    calls = count_decisions(monkeypatch)
    decisions = ChampionDecisions(registry)
    promote("sample")
    first = decide_now(decisions)
    assert decide_now(decisions) is first and len(calls) == 1
    promote("other")
    assert decide_now(decisions) is not first and len(calls) == 2
    promote("sample")
    assert decide_now(decisions) is first and len(calls) == 2


def test_a_full_cache_drops_the_oldest_decision(registry: Registry, promote: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(champion, "CACHE_SIZE", 1)
    calls = count_decisions(monkeypatch)
    decisions = ChampionDecisions(registry)
    for name in ("sample", "other", "sample"):
        promote(name)
        decide_now(decisions)
    assert len(calls) == 3


def test_new_prices_are_decided_again(registry: Registry, promote: Any):
    save_snapshot("2021-06-30")
    promote("snapshot")
    decisions = ChampionDecisions(registry)
    before = decisions.read_state().prices
    assert decide_now(decisions).as_of == date(2021, 6, 30)
    save_snapshot("2021-07-02")
    assert decisions.read_state().prices != before
    assert decide_now(decisions).as_of == date(2021, 7, 2)


def test_the_previous_session_is_known_where_the_model_is_old_enough(registry: Registry, promote: Any):
    save_snapshot("2021-07-01")
    model = promote("snapshot")  # trained up to 2021-06-30
    decisions = ChampionDecisions(registry)
    decision = decisions.decide_previous_session(decisions.read_state())
    assert decision is not None and decision.as_of == date(2021, 6, 30)
    agent, (market, _) = registry.load_agent(model), load_latest("mine", "zero")
    known = market.until(len(market) - 2)
    assert decision.today == today(agent, known, agent.decide(known, all_cash(len(known.assets))))


def test_the_previous_session_is_not_known_to_a_model_of_the_last_close(registry: Registry, promote: Any):
    """It has learned from the last close, and no earlier champion could have decided."""
    promote("sample")
    decisions = ChampionDecisions(registry)
    assert decisions.decide_previous_session(decisions.read_state()) is None


def test_prices_that_cannot_be_read(registry: Registry, promote: Any, home: Path):
    save_snapshot("2021-06-30")
    promote("snapshot")
    decisions = ChampionDecisions(registry)
    state = decisions.read_state()
    for pointer in (home / "snapshots" / "names").iterdir():
        pointer.unlink()
    broken = decisions.read_state()
    assert broken.error is not None and broken.error.kind == "data-unavailable"
    assert broken.error.detail == champion.UNREADABLE_PRICES and broken.model is not None
    with pytest.raises(NotServableError, match="cannot be read") as error:
        decisions.decide(state.model)
    assert error.value.kind == "data-unavailable"


def test_a_damaged_model_is_not_served(registry: Registry, promote: Any):
    model = promote("sample")
    with registry.database.engine.connect().execution_options(writes=True) as connection, connection.begin():
        connection.exec_driver_sql(
            "UPDATE model_parts SET content = zeroblob(10) WHERE model_id = ? AND name = 'policy.safetensors'", (model,)
        )
    with pytest.raises(NotServableError, match=model) as error:
        decide_now(ChampionDecisions(registry))
    assert error.value.kind == "model-corrupt"


def test_prices_that_arrive_amid_a_decision_are_trained_on_once(
    registry: Registry, promote: Any, monkeypatch: pytest.MonkeyPatch
):
    save_snapshot("2021-06-30")
    promote("snapshot")
    calls = count_decisions(monkeypatch)
    decisions = ChampionDecisions(registry)
    state = decisions.read_state()  # before the new prices
    save_snapshot("2021-07-02")
    assert state.model is not None
    first = decisions.decide(state.model)
    assert first.as_of == date(2021, 7, 2)
    assert decide_now(decisions) is not None and len(calls) == 1
