"""The alarms for Prometheus look at metrics that the service reports, with labels that these have."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portfolio_sdpo.registry import Registry

yaml = pytest.importorskip("yaml")

RULES = Path(__file__).parents[3] / "deploy" / "prometheus-rules.yaml"


def parse(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of each metric."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels or ""))
            found.setdefault(name, []).append((pairs, float(value)))
    return found


def test_alarms_are_about_what_there_is(serve: Callable[..., Any], champion: Callable[..., str], registry: Registry):
    chosen = champion()
    registry.end_run(registry.start_run("retrain").id, outcome="kept")
    registry.end_run(registry.start_run("retrain").id, "failed", reason="No prices came.")
    running = serve(shadow=chosen)
    running.settle()
    while (answer := running.http.get("/shadow")).status_code != 200:
        assert answer.json()["type"].endswith(":starting")
    metrics = parse(running.http.get("/metrics").text)
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 8
    for rule in rules:
        names = re.findall(r"\bportfolio_sdpo_\w+", rule["expr"])
        assert names and set(names) <= metrics.keys(), rule["alert"]
        for name, labels in re.findall(r"(portfolio_sdpo_\w+)\{([^}]*)\}", rule["expr"]):
            for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
                assert value in {each[0][label] for each in metrics[name]}, (name, label)
        assert rule["annotations"]["summary"].endswith(".") and rule["labels"]["severity"]
    told = {name: samples[0][1] for name, samples in metrics.items()}
    assert told["portfolio_sdpo_ready"] == 1 and told["portfolio_sdpo_all_cash"] == 0
    assert 0.0 <= told["portfolio_sdpo_shield_factor"] <= 1.0
    assert told["portfolio_sdpo_retrain_failed"] == 1
    (done,) = registry.runs(kind="retrain", status="done")
    assert done.ended_at is not None
    assert told["portfolio_sdpo_retrain_timestamp_seconds"] == pytest.approx(done.ended_at.timestamp(), abs=1e-3)
    assert told["portfolio_sdpo_shadow_distance"] == 0.0
