"""The answer that is served: known answers, the age of prices, and every reason to refuse."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pandas as pd
import pytest

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices
from portfolio_sdpo.prices.samples import load_sample
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.serving import (
    Answer,
    AnswerSettings,
    ChampionDecisions,
    Decision,
    NotServableError,
    Refusal,
    answer_all_cash,
    answer_decision,
    make_answer,
)
from portfolio_sdpo.serving.answer import CASH_INSTEAD, PROBLEM_PREFIX

LAST = date(2021, 10, 14)
"""The last close of the bundled sample, a Thursday."""
DATA = {"sha256": "ab" * 32, "snapshot": None, "source": "sample"}
ASSETS = ("CASH", "A", "B")


def at(day: int, hour: int = 8) -> Callable[[], datetime]:
    """A clock that stands still in October 2021."""
    return lambda: datetime(2021, 10, day, hour, tzinfo=UTC)


def make_decision(waiting: str | None = None, **changes: Any) -> Decision:
    """A decision by hand: the policy holds 60 % A and 20 % B, and the shield keeps half of that."""
    today = {
        "shielded": {"CASH": 0.6, "A": 0.3, "B": 0.1},
        "promised": -0.04,
        "past_shielded": -0.05,
        "kappa": 0.5,
        "removed": [],
        "remarks": [],
        "meets": True,
        "findings": [],
    }
    return Decision(ASSETS, LAST, today | changes, DATA, waiting)


@pytest.fixture
def ask(registry: Registry) -> Callable[..., Answer | Refusal]:
    """The answer at a time, on the morning after the last close unless told otherwise."""

    def run(now: Callable[[], datetime] | None = None, **settings: Any) -> Answer | Refusal:
        decisions = ChampionDecisions(registry, now or at(15))
        return make_answer(decisions, decisions.read_state(), AnswerSettings(**settings))

    return run


def test_a_decision_becomes_the_answer(registry: Registry, promote: Callable[[str], str]):
    model = registry.model(promote("sample"))
    promotion = registry.champion()
    assert promotion is not None
    answer = answer_decision(make_decision(), promotion, model, age=0)
    limit = model.settings["limit"]
    assert json.loads(answer.body) == {
        "as_of": "2021-10-14",
        "execution": "next-close",
        "trade_day": "2021-10-15",
        "weights": {"CASH": 0.6, "A": 0.3, "B": 0.1},
        "model": {"id": model.id, "label": "sample", "trained_up_to": "2021-10-14", "promotion": promotion.seq},
        "data": DATA | {"age_sessions": 0},
        "limit": {name: limit[name] for name in ("bound", "alpha", "horizon")},
        "promised_cvar": -0.04,
        "past_cvar": -0.05,
        "shield_factor": 0.5,
        "removed": [],
        "remarks": [],
        "deviation": None,
        "fail_safe": None,
        "warnings": [],
    }
    assert answer.sha256 == hashlib.sha256(answer.body).hexdigest() and answer.etag == f'"{answer.sha256}"'
    entry = answer.to_audit_entry("request", at(15)())
    assert (entry.model_id, entry.data_hash, entry.as_of) == (model.id, DATA["sha256"], LAST)
    assert (entry.weights, entry.response_hash) == (answer.content.weights, answer.sha256)
    assert (entry.shield_factor, entry.promised_cvar, entry.limit) == (0.5, -0.04, limit["bound"])


@pytest.mark.parametrize(
    ("decision", "age", "warning"),
    [
        (make_decision(), 1, "The last prices are of 2021-10-14, 1 session ago."),
        (make_decision(), 2, "The last prices are of 2021-10-14, 2 sessions ago."),
        (make_decision(promised=-0.3), 0, "beyond the limit of"),
        (make_decision(removed=["A", "B"]), 0, "The shield moved A, B to cash: insufficient price history."),
        (make_decision(findings=["The shield has 36 of 1,260 sessions."]), 0, "The shield has 36 of 1,260 sessions."),
        (make_decision(waiting="20 sessions are too few"), 0, "The model waits in cash: 20 sessions are too few."),
    ],
)
def test_warnings(registry: Registry, promote: Callable[[str], str], decision: Decision, age: int, warning: str):
    model = registry.model(promote("sample"))
    promotion = registry.champion()
    assert promotion is not None
    content = answer_decision(decision, promotion, model, age).content
    (found,) = content.warnings
    assert warning in found
    # A model that waits has not trained on these prices, so it promises nothing about them.
    assert (content.promised_cvar is None) == (decision.waiting is not None)


def test_the_champion_answers(promote: Callable[[str], str], ask: Callable[..., Answer | Refusal]):
    model = promote("sample")
    answer = ask()
    assert isinstance(answer, Answer)
    content = answer.content
    assert content.model is not None and content.model.id == model and content.as_of == LAST
    assert next(iter(content.weights)) == "CASH" and min(content.weights.values()) >= 0.0
    assert math.isclose(sum(content.weights.values()), 1.0, abs_tol=1e-9)
    assert content.limit is not None and content.past_cvar is not None
    assert content.past_cvar >= content.limit.bound - 1e-12
    again = ask()
    assert isinstance(again, Answer) and again.body == answer.body


@pytest.mark.parametrize(
    ("now", "age"),
    [
        (at(14, 23), 0),  # the day of the last close
        (at(15), 0),  # Friday's session is not over
        (at(16), 1),  # Saturday
        (at(18), 1),  # Monday: the weekend has no sessions
        (at(19), 2),
    ],
)
def test_prices_are_fresh_for_two_sessions(promote: Callable[[str], str], ask: Any, now: Any, age: int):
    promote("sample")
    answer = ask(now)
    assert isinstance(answer, Answer) and answer.content.data is not None
    assert answer.content.data.age_sessions == age
    assert any("ago" in warning for warning in answer.content.warnings) == (age > 0)


def test_prices_that_are_too_old_are_refused(promote: Callable[[str], str], ask: Any):
    promote("sample")
    detail = "The last prices are of 2021-10-14, 3 sessions ago, and 2 are allowed: update them."
    assert ask(at(20)) == Refusal("stale-data", detail)
    assert isinstance(ask(at(20), max_age_sessions=3), Answer)
    assert isinstance(ask(at(18), max_age_sessions=0), Refusal)
    answer = ask(at(20), fail_to_cash=True)
    # The prices are known, although they are too old.
    assert answer.content.as_of == LAST and answer.content.data.age_sessions == 3
    assert answer.content.weights["CASH"] == 1.0 and sum(answer.content.weights.values()) == 1.0
    assert answer.content.fail_safe == f"{PROBLEM_PREFIX}stale-data"
    assert answer.content.warnings == [f"All cash is served instead of a decision. {detail}"]


def test_without_a_champion(ask: Any, promote: Callable[[str], str], registry: Registry):
    for settings in ({}, {"fail_to_cash": True}):  # a registry that is merely empty is no reason to sell
        assert ask(**settings) == Refusal("no-champion", "No model is champion yet: promote one.")
    model_id = promote("sample")
    registry.withdraw("prices in doubt", by="test")
    expected = f"The champion {model_id} was withdrawn (prices in doubt): promote a model."
    assert ask() == Refusal("champion-withdrawn", expected)
    content = ask(fail_to_cash=True).content
    assert content.weights == {"CASH": 1.0} and content.shield_factor == 0.0
    assert (content.model, content.data, content.limit, content.as_of) == (None, None, None, None)


def test_a_limit_that_not_even_cash_meets(promote: Callable[[str], str], ask: Any):
    promote("unmet")
    refusal = ask()
    assert isinstance(refusal, Refusal) and refusal.kind == "limit-not-met"
    assert refusal.detail.startswith("Not even all cash meets the limit of −0.003\xa0%: cash loses more;")
    content = ask(fail_to_cash=True).content
    assert content.weights["CASH"] == 1.0 and content.fail_safe.endswith("limit-not-met")


@pytest.mark.parametrize("kind", ["warming-up", *sorted(CASH_INSTEAD)])
def test_all_cash_replaces_only_what_waiting_does_not_cure(kind: str, registry: Registry, promote: Any):
    """A service that is starting refuses for a moment, and nobody sells everything because of that."""
    promote("sample")

    class Broken(ChampionDecisions):
        def decide(self, *_: Any) -> Decision:
            raise NotServableError(kind, "It is so.")

    decisions = Broken(registry, at(15))
    answer = make_answer(decisions, decisions.read_state(), AnswerSettings(fail_to_cash=True))
    assert isinstance(answer, Answer) == (kind in CASH_INSTEAD)
    if isinstance(answer, Refusal):
        assert answer == Refusal(kind, "It is so.")


def test_all_cash_names_every_stock_of_the_model(registry: Registry, promote: Callable[[str], str]):
    model = registry.model(promote("sample"))
    answer = answer_all_cash(NotServableError("cannot-decide", "It is so."), registry.champion(), model, None, 0)
    assert tuple(answer.content.weights) == model.assets
    assert answer.content.data is None and answer.content.model is not None


def test_settings_come_from_the_environment_of_the_service(monkeypatch: pytest.MonkeyPatch):
    assert AnswerSettings.from_environment() == AnswerSettings(max_age_sessions=2, fail_to_cash=False)
    monkeypatch.setenv("PORTFOLIO_SDPO_SERVE_MAX_AGE_SESSIONS", "5")
    monkeypatch.setenv("PORTFOLIO_SDPO_SERVE_FAIL_TO_CASH", "true")
    assert AnswerSettings.from_environment() == AnswerSettings(max_age_sessions=5, fail_to_cash=True)
    monkeypatch.setenv("PORTFOLIO_SDPO_SERVE_MAX_AGE_SESSIONS", "-1")
    with pytest.raises(SettingsError, match="max_age_sessions"):
        AnswerSettings.from_environment()


def save_rows(*rows: tuple[str, float]) -> None:
    """The bundled prices up to June 30th, 2021 and further rows, in which every price is multiplied by a factor.

    As they may lie in a store since before such rows were refused on import.
    """
    frame = load_sample("sample").frame.loc[:"2021-06-30"]
    last = frame.iloc[-1]
    more = pd.DataFrame([last * factor for _, factor in rows], index=pd.DatetimeIndex([day for day, _ in rows]))
    whole = pd.concat([frame, more]).rename_axis("date")
    prices = Prices(whole, "adjusted", "total-return")
    with pytest.MonkeyPatch.context() as patch:
        module = importlib.import_module("portfolio_sdpo.prices.cleaning.clean")
        patch.setattr(module, "_find_future_dates", lambda table: ())
        cleaned = clean(prices)
    Store().save("mine", cleaned, prices, Request(source="file"))


def july(day: int) -> Callable[[], datetime]:
    return lambda: datetime(2021, 7, day, 12, tzinfo=UTC)


@pytest.mark.parametrize("rows", [[("2031-01-02", 1.01)], [("2021-07-01", 100.0)]], ids=["future", "move"])
def test_suspicious_last_prices_are_held_or_refused(promote: Callable[[str], str], ask: Any, rows: Any):
    save_rows()
    promote("snapshot")
    before = ask(july(1)).content
    save_rows(*rows)
    held = ask(july(2)).content
    assert (held.weights, held.as_of) == (before.weights, date(2021, 6, 30))
    assert held.remarks[0].startswith("These are the weights of the close 2021-06-30.")
    assert held.data is not None and held.data.age_sessions == 1  # the row with the date makes nothing younger
    refused = ask(july(2), suspicious="refuse")
    assert isinstance(refused, Refusal) and refused.kind == "suspicious-prices"
    assert ask(july(2), suspicious="refuse", fail_to_cash=True) == refused
    stale = ask(july(9))
    assert isinstance(stale, Refusal) and stale.kind == "stale-data"
    served = ask(july(2), suspicious="serve")
    if rows[0][0].startswith("2031"):
        assert served.content == held
    else:
        assert served.content.as_of == date(2021, 7, 1) and "check the prices" in served.content.remarks[0]


def test_a_clock_behind_the_last_price(promote: Callable[[str], str], ask: Any):
    promote("sample")
    refused = ask(lambda: datetime(2020, 1, 1, tzinfo=UTC), fail_to_cash=True)
    assert isinstance(refused, Refusal) and refused.kind == "suspicious-prices"
    assert "correct the dates or the clock" in refused.detail


def test_what_is_wrong_with_the_last_sessions_is_said(promote: Callable[[str], str], ask: Any):
    save_rows()
    promote("snapshot")
    save_rows(("2021-07-01", 1.5), ("2021-07-06", 1.5))  # Friday is missing, Monday was a holiday
    remarks = ask(july(7)).content.remarks
    assert any("moved by more than 35\xa0%" in each and "2021-07-01" in each for each in remarks)
    assert any("session of XNYS without a price" in each for each in remarks)


def test_days_end_where_the_exchange_is(promote: Callable[[str], str], ask: Any):
    promote("sample")  # up to Thursday, October 14th
    assert ask(at(16, 3)).content.data.age_sessions == 0  # Friday evening in New York
    assert ask(at(16, 5)).content.data.age_sessions == 1
