"""Registered models over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from portfolio_sdpo.registry import Registry


def test_models(serve: Callable[..., Any], champion: Callable[..., str], registry: Registry):
    first, second = champion("a"), champion("b")
    http = serve().http
    listed = http.get("/models").json()
    assert (listed["champion"], listed["total"]) == (second, 2)
    assert {model["id"]: model["champion"] for model in listed["models"]} == {first: False, second: True}
    assert len(http.get("/models", params={"limit": 1, "offset": 1}).json()["models"]) == 1
    shown = http.get(f"/models/{first}").json()
    assert shown["config"] == registry.model(first).config
    assert [entry["model_id"] for entry in shown["promotions"]] == [second, first]
    assert not shown["champion"]
