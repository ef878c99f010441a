"""The audit log over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_audit_in_pages(serve: Callable[..., Any], champion: Callable[..., str]):
    model_id = champion()
    running = serve()
    running.settle()
    for number in range(9):
        running.http.get("/weights", headers={"X-Request-ID": f"r{number}"})
    total = len(running.audited(10))
    seen, before = [], None
    while True:
        page = running.http.get("/audit", params={"limit": 4} | ({"before": before} if before else {})).json()
        seen += [row["seq"] for row in page["rows"]]
        before = page["next_before"]
        if before is None:
            break
    assert seen == list(range(total, 0, -1))
    (row,) = running.http.get("/audit", params={"request_id": "r3"}).json()["rows"]
    assert row["model_id"] == model_id and sum(row["weights"].values()) == pytest.approx(1.0)
    assert running.http.get("/audit", params={"model_id": "other"}).json() == {"rows": [], "next_before": None}
