"""`orders`, as a user types it: refusals name the command that mends. Its figures are tested beside the service's."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo import cli


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
    (tmp_path / "bad.csv").write_text("ticker,shares\nAAPL,x\n")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "give its value with --account, its holdings with --holdings, or both"),
        ("--account 1000", "No model is champion yet: promote one (`portfolio-sdpo retrain`)."),
        ("--holdings none.csv", "There is no file none.csv"),
        ("--holdings .", "is a folder"),
        ("--holdings bad.csv", "row 1 (AAPL): 'x' is not a number"),
        ("--holdings binary.csv", "is not text in UTF-8"),
    ],
)
def test_mistakes_are_one_sentence(line: str, message: str):
    result = CliRunner().invoke(cli.build_app(), ["orders", *line.split()])
    assert result.exit_code == (1 if line else 2) and result.stdout == ""
    assert message in result.stderr and result.stderr.count("\n") == 1
