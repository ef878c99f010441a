"""GET and POST /weights: what a backtest would hold, to the last digit, with proof of what was said."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from portfolio_sdpo.backtest.shielded import shield_strategy
from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import load_market
from portfolio_sdpo.portfolio.presets import plan
from portfolio_sdpo.portfolio.shield import shield, shield_within
from portfolio_sdpo.portfolio.store import train_agent
from portfolio_sdpo.prices.snapshots import Store, content_hash
from portfolio_sdpo.registry import Registry

from ..helpers import problem, save_snapshot


def backtest_weights(registry: Registry, model_id: str, day: str) -> dict[str, float]:
    """What a backtest of the whole bundled prices decides on the day, behind the shield without an account's record."""
    agent = registry.load_agent(model_id)
    market, _, _ = load_market(None, "zero", None, None)
    bare = simulate(market, agent, start=day, end="2021-07-30", fee=0.0005, limits=Limits())
    known = market.until(market.index_of(day))
    weights = shield(bare.decisions[known.dates[-1]], known, agent.settings.limit).weights
    return dict(zip(market.assets, weights.tolist(), strict=True))


@pytest.mark.parametrize("day", ["2021-06-30", "2021-07-14"], ids=["as trained", "trained on"])
def test_served_weights_are_those_of_the_backtest_to_the_last_digit(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry, day: str
):
    frame = save_snapshot("until-june", day)
    model_id = champion("june")
    served = serve().settle().json()
    assert served["as_of"] == day
    assert served["model"]["id"] == model_id and served["model"]["trained_up_to"] == "2021-06-30"
    assert served["data"]["sha256"] == content_hash(frame) and served["data"]["snapshot"] == "until-june"
    assert 0.0 < served["shield_factor"] < 1.0
    assert served["limit"] == {"bound": -0.00003, "alpha": 0.05, "horizon": 15}
    assert served["past_cvar"] >= -0.00003
    assert served["weights"] == backtest_weights(registry, model_id, day)
    assert next(iter(served["weights"])) == "CASH"
    assert sum(served["weights"].values()) == pytest.approx(1.0, abs=1e-12)


def test_a_capped_champion_is_served_as_it_was_tested(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry
):
    """The weights of a backtest with the same caps, to the last digit; for an account, within its limit on turnover."""
    save_snapshot("until-june", "2021-07-14")
    model_id = champion("capped")
    running = serve()
    served = running.settle().json()["weights"]
    agent = registry.load_agent(model_id)
    caps, market = agent.settings.limits, load_market(None, "zero", None, None)[0]
    track = simulate(market, agent, start="2021-07-14", end="2021-07-30", fee=0.0005, limits=caps)
    known = market.until(market.index_of("2021-07-14"))
    expected = shield_within(track.decisions[known.dates[-1]], known, agent.settings.limit, caps)
    assert served == dict(zip(market.assets, expected.weights.tolist(), strict=True))
    stocks = [weight for name, weight in served.items() if name != "CASH"]
    assert max(stocks) <= 0.08 and sum(stocks) > 0.15
    assert sum(served[name] for name in ("AAPL", "CSCO", "MSFT")) <= 0.15
    told = running.http.post("/orders", json={"account": 1e6}).json()
    assert 0.09 < sum(abs(order["money"]) for order in told["orders"]) / 1e6 <= 0.1
    assert "The limit of 10\xa0% on turnover" in told["answer"]["warnings"][-1]
    assert "its limit on turnover leaves" in told["explanation"]
    shielded = shield_strategy(registry.load_agent(model_id), agent.settings.limit, limits=caps)
    traded = simulate(market, shielded, start="2021-07-14", end="2021-07-15", execution="same-close")
    weights = dict(zip(market.assets, traded.weights[0].tolist(), strict=True))
    assert told["answer"]["weights"] == pytest.approx(weights, abs=1e-12)


def test_new_prices_and_a_new_champion_are_served_at_once(serve: Callable[..., Any], champion: Callable[..., str]):
    save_snapshot("until-june", "2021-06-30")
    first = champion("june")
    running = serve()
    assert running.settle().json()["as_of"] == "2021-06-30"
    save_snapshot("until-june", "2021-07-01")
    while (answer := running.http.get("/weights").json())["as_of"] == "2021-06-30":
        assert answer["model"]["id"] == first
    assert answer["as_of"] == "2021-07-01"
    second = champion("a")
    while (answer := running.http.get("/weights").json())["model"]["id"] == first:
        pass
    assert answer["model"]["id"] == second and answer["as_of"] == "2021-10-14"


def test_etag(serve: Callable[..., Any], champion: Callable[..., str]):
    champion()
    running = serve()
    first = running.settle()
    etag = first.headers["etag"]
    assert etag == f'"{hashlib.sha256(first.content).hexdigest()}"'
    assert first.headers["cache-control"] == "private, no-cache"
    for header in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = running.http.get("/weights", headers={"If-None-Match": header})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert running.http.get("/weights", headers={"If-None-Match": '"other"'}).content == first.content
    champion("b")
    while (other := running.http.get("/weights", headers={"If-None-Match": etag})).status_code == 304:
        pass
    assert other.status_code == 200 and other.headers["etag"] != etag


@pytest.mark.parametrize("audit", ["batched", "strict"])
def test_every_answer_is_in_the_audit(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry, audit: str
):
    model_id = champion()
    running = serve(audit=audit)
    running.settle()
    answer = running.http.get("/weights", headers={"X-Request-ID": "mine.1"})
    running.http.get("/weights", headers={"X-Request-ID": "mine.2", "If-None-Match": answer.headers["etag"]})
    if audit == "batched":
        running.audited(3)
    rows = {row.entry.request_id: row.entry for row in registry.audit()}
    assert {"mine.1", "mine.2"} <= rows.keys()
    for request_id in ("mine.1", "mine.2"):
        entry, content = rows[request_id], answer.json()
        assert entry.response_hash == hashlib.sha256(answer.content).hexdigest()
        assert dict(entry.weights) == content["weights"]
        assert (entry.model_id, entry.data_hash) == (model_id, content["data"]["sha256"])
        assert (entry.shield_factor, entry.promised_cvar) == (content["shield_factor"], content["promised_cvar"])
        assert str(entry.as_of) == content["as_of"] and entry.limit == content["limit"]["bound"]
        assert list(entry.warnings) == content["warnings"]
    assert registry.verify_audit().sound


def body_of(frame: Any) -> dict[str, Any]:
    return {
        "dates": [str(day.date()) for day in frame.index],
        "tickers": list(frame.columns),
        "closes": [[None if np.isnan(value) else value for value in row] for row in frame.to_numpy()],
    }


def test_given_prices_get_the_weights_that_the_same_prices_of_ours_get(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry
):
    save_snapshot("until-june", "2021-07-01")
    champion("june")
    running = serve()
    ours = running.settle().json()
    frame = Store().open("until-june").frame
    answer = running.http.post("/weights", json=body_of(frame))
    assert answer.status_code == 200, answer.text
    given = answer.json()
    for field in ("weights", "as_of", "model", "limit", "promised_cvar", "past_cvar", "shield_factor"):
        assert given[field] == ours[field]
    assert given["data"]["sha256"] == ours["data"]["sha256"] and given["data"]["source"] == "given"
    turned = frame[frame.columns[::-1]]
    assert running.http.post("/weights", json=body_of(turned)).content == answer.content
    as_csv = turned.to_csv()
    for content in (as_csv, "\ufeff" + as_csv.replace("\n", "\r\n")):
        told = running.http.post("/weights", content=content.encode(), headers={"Content-Type": "text/csv; charset=x"})
        assert told.content == answer.content
    in_cash = running.http.post("/weights", json=body_of(frame) | {"held": {"CASH": 1.0}})
    assert in_cash.content == answer.content
    invested = running.http.post("/weights", json=body_of(frame) | {"held": {"AAPL": 1.0}})
    assert invested.status_code == 200 and invested.json()["weights"] != given["weights"]
    running.audited(7)
    assert registry.verify_audit().sound


def test_prices_that_cannot_be_used_are_refused(serve: Callable[..., Any], champion: Callable[..., str]):
    frame = save_snapshot("until-june", "2021-06-30")
    champion("june")
    running = serve()
    running.settle()
    good = body_of(frame)
    last = good["closes"][-1]
    for changes, kind in (
        ({"tickers": [*good["tickers"][:-1], "XYZ"]}, "bad-prices"),
        ({"tickers": [*good["tickers"][:-1], good["tickers"][0]]}, "bad-prices"),
        ({"closes": good["closes"][:-1]}, "bad-prices"),
        ({"closes": [*good["closes"][:-1], last[:-1]]}, "bad-prices"),
        ({"closes": [*good["closes"][:-1], [-1.0, *last[1:]]]}, "bad-prices"),
        ({"closes": [*good["closes"][:-1], [1e308, *last[1:]]], "x": 1}, "invalid"),
        ({"dates": good["dates"][::-1]}, "bad-prices"),
        ({"dates": [*good["dates"][:-1], "2999-01-01"]}, "bad-prices"),
        ({"dates": ["0001-01-01", *good["dates"][1:]]}, "bad-prices"),
        ({"dates": good["dates"][:-1], "closes": good["closes"][:-1]}, "bad-prices"),  # before it was trained
        ({"held": {"CASH": 0.5}}, "bad-prices"),
        ({"held": {"GOLD": 1.0}}, "bad-prices"),
        ({"dates": []}, "invalid"),
    ):
        problem(running.http.post("/weights", json=good | changes), 422, kind)
    wild = [*good["closes"][:-5], [1e300 * value for value in good["closes"][-5]], *good["closes"][-4:]]
    told = problem(running.http.post("/weights", json=good | {"closes": wild}), 422, "bad-prices")
    assert told["detail"].startswith("The champion cannot decide on these prices")
    few = {"dates": good["dates"][-2:], "closes": good["closes"][-2:]}
    assert "more prices" in problem(running.http.post("/weights", json=good | few), 422, "bad-prices")["detail"]
    for content, kind in ((b"", "invalid"), (b"{", "invalid"), (b'{"closes": [[NaN]]}', "invalid")):
        problem(running.http.post("/weights", content=content, headers={"Content-Type": "application/json"}), 422, kind)
    for content in (b"", b"date,AAPL", b"\xff\xfe,\n1,2", b'date,"AAPL\n2021-01-01,"1', b"date,AAPL\nyesterday,1\n"):
        problem(running.http.post("/weights", content=content, headers={"Content-Type": "text/csv"}), 422, "invalid")
    for header in ({"Content-Type": "text/plain"}, {}):
        problem(running.http.post("/weights", content=b"x", headers=header), 415, "unsupported-media-type")


def test_an_empty_last_row_sells_nothing(serve: Callable[..., Any], registry: Registry):
    """The shared policy, which the package serves by default, needs no training and would decide on it."""
    frame = save_snapshot("until-june", "2021-06-30")
    settings = plan("default", ["sdpo"]).agents["sdpo"]
    registry.promote(
        registry.add_model(train_agent(settings, snapshot="until-june", label="shared").folder).id, "first"
    )
    body = body_of(frame)
    running = serve(fail_to_cash=True)
    assert running.http.post("/weights", json=body).json()["weights"]["CASH"] < 1.0
    body["closes"][-1] = [None] * len(body["tickers"])
    refused = problem(running.http.post("/weights", json=body), 422, "bad-prices")
    assert "no stock has a close on 2021-06-30" in refused["detail"]


def test_suspicious_prices_that_are_sent_are_held_or_refused(serve: Callable[..., Any], champion: Callable[..., str]):
    frame = save_snapshot("until-june", "2021-07-01")
    champion("june")
    body = body_of(frame)
    known = body | {"dates": body["dates"][:-1], "closes": body["closes"][:-1]}
    slip = body | {"closes": [*body["closes"][:-1], [100 * value for value in body["closes"][-1]]]}
    running = serve()
    running.settle()
    before = running.http.post("/weights", json=known).json()
    held = running.http.post("/weights", json=slip).json()
    assert held["weights"] == before["weights"] and held["as_of"] == "2021-06-30"
    assert "moved by +9," in held["remarks"][0] and before["remarks"] == []
    refused = serve(suspicious="refuse").http.post("/weights", json=slip)
    assert "check the prices" in problem(refused, 422, "bad-prices")["detail"]
