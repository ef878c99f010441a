"""Registries with small champions, and services on them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from portfolio_sdpo.portfolio.store import read_parts, train_agent
from portfolio_sdpo.registry import Registry

from .helpers import CAPPED, QUICK, Running, save_snapshot, serving


@pytest.fixture(scope="session")
def _session_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def models(_session_home: Path) -> dict[str, dict[str, bytes]]:
    """Agents of several kinds, by name: the content of their files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PORTFOLIO_SDPO_HOME", str(_session_home))
        save_snapshot("until-june", "2021-06-30")
        made = {
            "june": train_agent(QUICK, snapshot="until-june", seed=1, label="june"),
            "a": train_agent(QUICK, seed=3, label="a"),
            "b": train_agent(QUICK, seed=4, label="b"),
            "capped": train_agent(CAPPED, snapshot="until-june", seed=1, label="capped"),
            # Cash itself loses more than the limit allows, so the shield cannot meet it.
            "unmet": train_agent(QUICK, cash=-0.5, seed=3, label="unmet"),
        }
        return {name: read_parts(trained.folder) for name, trained in made.items()}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(folder))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
    return folder


@pytest.fixture
def registry(home: Path) -> Iterator[Registry]:
    with Registry.open(timeout=2.0) as opened:
        yield opened


@pytest.fixture
def champion(registry: Registry, models: dict[str, dict[str, bytes]]) -> Callable[..., str]:
    """Register an agent and promote it."""

    def promote(name: str = "a", **changes: Any) -> str:
        parts = dict(models[name])
        if changes:
            parts["config.json"] = json.dumps(json.loads(parts["config.json"]) | changes).encode()
        model = registry.add_parts(parts)
        registry.promote(model.id, "for the test", by="test")
        return model.id

    return promote


@pytest.fixture
def serve(registry: Registry) -> Iterator[Callable[..., Running]]:
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(serving(registry, **settings))
