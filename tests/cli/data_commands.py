"""`portfolio-sdpo data ...` in this process and in one of its own, and prices for it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from portfolio_sdpo.cli import build_app

DATES = pd.bdate_range("2020-03-02", periods=40)


def prices(rows: int, tickers: str = "ABC", seed: int = 0) -> pd.DataFrame:
    values = np.random.default_rng(seed).uniform(50, 60, (len(DATES), len(tickers))).round(2)
    return pd.DataFrame(values, index=DATES, columns=[*tickers]).iloc[:rows]


def run(*arguments: object, code: int = 0):
    """In this process, with stdout and stderr apart."""
    result = CliRunner().invoke(build_app(), ["data", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def record(*arguments: object, code: int = 0) -> dict:
    return json.loads(run(*arguments, "--json", code=code).stdout)


def start(*arguments: object) -> subprocess.Popen:
    """As a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "portfolio_sdpo", "data", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
