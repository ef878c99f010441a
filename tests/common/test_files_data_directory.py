"""Where files go: to the user's data directory, or where PORTFOLIO_SDPO_HOME says."""

from pathlib import Path

import platformdirs
import pytest

from portfolio_sdpo.common import files
from portfolio_sdpo.common.files import data_directory


def test_default_is_the_platforms_data_directory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PORTFOLIO_SDPO_HOME", raising=False)
    assert data_directory() == Path(platformdirs.user_data_dir("portfolio_sdpo", appauthor=False))


def test_default_lies_outside_the_repository(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PORTFOLIO_SDPO_HOME", raising=False)
    assert Path(files.__file__).parents[1] not in data_directory().parents


def test_variable_overrides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "elsewhere"))
    assert data_directory() == tmp_path / "elsewhere"


def test_variable_may_use_a_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", "~/runs")
    assert data_directory() == tmp_path / "runs"


def test_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PORTFOLIO_SDPO_HOME", raising=False)
    default = data_directory()
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", "")
    assert data_directory() == default


def test_asking_creates_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "elsewhere"))
    data_directory()
    assert list(tmp_path.iterdir()) == []
