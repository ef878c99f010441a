"""POST /orders: the orders of the command, to the cent, with proof of what was said."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.errors import SnapshotError
from portfolio_sdpo.portfolio.market import all_cash, load_latest
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.serving import decide, orders

from ..helpers import ANY_AGE, problem, save_snapshot

HELD = [{"ticker": "AAPL", "shares": 40}, {"ticker": "MSFT", "shares": 7}]
BODY: dict[str, Any] = {"account": 50_000, "holdings": HELD, "threshold": 0.001, "fee_bps": 7}


def call(*arguments: str, code: int = 0):
    result = CliRunner().invoke(cli.build_app(), ["orders", *arguments, "--max-age-sessions", str(ANY_AGE)])
    assert result.exit_code == code, result.output
    return result


def test_service_command_and_file_agree_to_the_cent(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry, tmp_path: Path
):
    model_id = champion()
    running = serve()
    answer = running.http.post("/orders", json=BODY)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    holdings, file = tmp_path / "h.csv", tmp_path / "out.csv"
    holdings.write_text("ticker,shares\nAAPL,40\nMSFT,7\n")
    options = ["--account", "50000", "--holdings", str(holdings), "--threshold", "0.001", "--fee-bps", "7"]
    assert json.loads(call(*options, "--json").stdout) == told
    page = call(*options, "--csv", str(file)).stdout
    assert " ".join(told["explanation"].split()) in " ".join(page.split()) and f"fees {told['fees']:,.2f}" in page
    as_csv = running.http.post("/orders", json=BODY, headers={"Accept": "text/csv"})
    assert as_csv.headers["content-type"].startswith("text/csv") and as_csv.text == file.read_text()
    rows = list(csv.DictReader(io.StringIO(as_csv.text)))
    assert [(row["ticker"], float(row["money"])) for row in rows] == [
        (order["ticker"], order["money"]) for order in told["orders"]
    ]
    assert rows and told["cash_after"] >= 0.0 and not told["raw_closes"]
    assert told["cash_after"] == pytest.approx(
        told["cash_before"] - sum(order["money"] + order["fee"] for order in told["orders"]), abs=0.005
    )
    entries = [row.entry for row in running.audited(2)]
    for sent in (answer, as_csv):
        (entry,) = [each for each in entries if each.request_id == sent.headers["x-request-id"]]
        assert entry.response_hash == hashlib.sha256(sent.content).hexdigest()
        assert entry.model_id == model_id and dict(entry.weights) == told["answer"]["weights"]


def test_the_champion_decides_from_what_is_held(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry
):
    """New prices are trained on from the account's weights, and an account in cash gets the published answer."""
    save_snapshot("until-june", "2021-07-01")
    model_id = champion("june")
    running = serve()
    published = running.settle().json()
    assert running.http.post("/orders", json={"account": 1e6}).json()["answer"] == published
    closes = Store().open("until-june").frame.iloc[-1]
    told = running.http.post("/orders", json={"holdings": [{"ticker": "AAPL", "shares": 1000}]}).json()
    market, data = load_latest("until-june", "zero")
    held = all_cash(len(market.assets))
    held[0], held[market.assets.index("AAPL")] = 0.0, 1.0
    alone = decide(registry.load_agent(model_id), market, data, held)
    assert told["answer"]["weights"] == {name: alone.today["shielded"].get(name, 0.0) for name in market.assets}
    assert told["answer"]["weights"] != published["weights"]
    assert told["value"] == round(1000 * closes["AAPL"], 2)


def test_raw_closes_price_the_orders(serve: Callable[..., Any], champion: Callable[..., str], monkeypatch: Any):
    save_snapshot("until-june", "2021-06-30")
    champion("june")
    frame = Store().open("until-june").frame
    monkeypatch.setattr(Store, "open_raw_closes", lambda *_: 2.0 * frame)
    told = serve().http.post("/orders", json={"holdings": [{"ticker": "AAPL", "shares": 10}]}).json()
    assert told["raw_closes"] and told["remarks"] == []
    assert told["value"] == round(20.0 * frame["AAPL"].iloc[-1], 2)


def test_damaged_closes_are_no_fault_of_the_caller(
    serve: Callable[..., Any], champion: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    """And what the error names stays in the log."""
    champion()

    def fail(*_: object) -> None:
        raise SnapshotError("/srv/prices/close.parquet is damaged.")

    monkeypatch.setattr(orders, "_load_closes", fail)
    answer = serve().http.post("/orders", json=BODY)
    problem(answer, 503, "data-unavailable")
    assert "/srv" not in answer.text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, "bad-account"),
        ({"holdings": [{"ticker": "NOPE", "shares": 1}]}, "bad-account"),
        ({"holdings": [{"ticker": "AAPL", "shares": -1}]}, "bad-account"),
        ({"account": 100, "holdings": HELD}, "bad-account"),
        ({"holdings": [{"ticker": "CASH", "money": 1e17}]}, "bad-account"),
        ({"holdings": [{"ticker": "CASH", "money": 1e-300}]}, "bad-account"),
        ({"account": 0.004}, "bad-account"),
        ({"account": -1}, "invalid"),
        ({"account": 1, "lots": 2}, "invalid"),
    ],
)
def test_a_wrong_account_is_refused(
    serve: Callable[..., Any], champion: Callable[..., str], body: dict[str, Any], kind: str
):
    champion()
    problem(serve().http.post("/orders", json=body), 422, kind)


def test_what_is_not_served_is_not_ordered(serve: Callable[..., Any], champion: Callable[..., str]):
    running = serve(max_age_sessions=2, fail_to_cash=False)
    problem(running.http.post("/orders", json=BODY), 503, "no-champion")
    champion()
    problem(running.http.post("/orders", json=BODY), 503, "stale-data")
    problem(
        running.http.post("/orders", content=b"x", headers={"Content-Type": "text/csv"}), 415, "unsupported-media-type"
    )
    safe = serve(max_age_sessions=2, fail_to_cash=True).http.post("/orders", json=BODY).json()
    assert {(order["ticker"], order["shares"]) for order in safe["orders"]} == {("AAPL", -40.0), ("MSFT", -7.0)}
    assert safe["explanation"] == "All cash is served instead of a decision."
