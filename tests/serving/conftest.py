"""A registry in SQLite with small champions, trained once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.portfolio.store import read_parts, train_agent
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices
from portfolio_sdpo.prices.samples import load_sample
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import Registry

QUICK = AgentSettings(
    history=60, paths=8, first=2, further=1, learner={"kind": "analytic", "hidden": (4, 4), "learning_rate": 0.1}
)


def save_snapshot(until: str) -> None:
    """The bundled prices up to a day, as a version of the snapshot `mine`."""
    prices = load_sample("sample")
    cut = Prices(prices.frame.loc[:until], prices.column, prices.adjustment)
    Store().save("mine", clean(cut), cut, Request(source="file"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(folder))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
    return folder


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The files of trained agents: on the bundled sample, on a snapshot, and with cash that loses 40 % a year."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path_factory.mktemp("home")))
        save_snapshot("2021-06-30")
        agents = {
            "sample": train_agent(QUICK, seed=3, label="sample"),
            "other": train_agent(QUICK, seed=4, label="other"),
            "snapshot": train_agent(QUICK, snapshot="mine", seed=3, label="snapshot"),
            "unmet": train_agent(
                QUICK.model_copy(update={"limit": QUICK.limit.model_copy(update={"bound": -0.00003})}),
                cash=-0.4,
                seed=3,
                label="unmet",
            ),
        }
        return {name: read_parts(agent.folder) for name, agent in agents.items()}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry.open(timeout=2.0) as opened:
        yield opened


@pytest.fixture
def promote(registry: Registry, models: dict[str, dict[str, bytes]]) -> Callable[[str], str]:
    """Register an agent and make it the champion; its model's id."""

    def run(name: str) -> str:
        model = registry.add_parts(models[name])
        registry.promote(model.id, "for the test", by="test")
        return model.id

    return run
