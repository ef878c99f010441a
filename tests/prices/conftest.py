"""A folder of snapshots that is empty."""

from pathlib import Path

import pytest

from portfolio_sdpo.prices.snapshots import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "snapshots")
