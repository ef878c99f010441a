"""A home in a temporary folder with a file of prices, for the tests of `portfolio-sdpo data`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.data_commands import prices


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def csv(home: Path) -> Path:
    prices(30).to_csv(home / "prices.csv", index_label="date")
    return home / "prices.csv"
