"""Real prices that need no network: the bundled sample and the one that comes with skfolio."""

from __future__ import annotations

import hashlib
import json
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from portfolio_sdpo.errors import SettingsError, SourceError
from portfolio_sdpo.prices.prices import DATE_UNIT, Prices, to_wide

SAMPLES = {
    "sample": "AAPL, CSCO, DOW, GE, GS, JNJ, JPM, MMM and MSFT, 2016-01-04 to 2021-10-14, bundled.",
    "sample-skfolio": "20 stocks of the S&P 500, 1990-01-02 to 2022-12-28, from the installed package skfolio.",
}
"""The names of the samples and what they are."""

COLUMN = "adjusted close"
"""What the prices of both samples are."""


def load_sample(name: str) -> Prices:
    """The prices of a sample, adjusted for dividends and splits.

    >>> load_sample("sample").frame.loc["2021-10-14", "MSFT"]
    np.float64(302.75)
    """
    if name == "sample":
        corrections = json.loads(_bundled("provenance.json"))["corrections"]
        notes = tuple(fix["sentence"] for fix in corrections)
        return Prices(to_wide(_bundled_table("prices.parquet")), COLUMN, "total-return", notes=notes)
    if name == "sample-skfolio":
        note = (
            "skfolio's prices have three decimals, so returns are coarse where a price is small (AAPL in 1990: 0.4 %)."
        )
        return Prices(to_wide(_skfolio_table()), COLUMN, "total-return", notes=(note,))
    raise SettingsError(f"name: there is no sample {name!r}; there are {' and '.join(SAMPLES)}.")


def load_cash_rate() -> pd.Series[Any]:
    """The yield of the 13-week US Treasury bill per year, as a decimal (0.0245 = 2.45 %), by date.

    It is the Treasury's coupon-equivalent yield (simple interest on the price paid, over 365 days), not the bank
    discount rate. It covers the days of the bond market from 2016-01-04 to 2021-10-14: on a few sessions of the stock
    market there is none (Columbus Day, Veterans Day), and on Good Friday there may be one.
    """
    rate = _bundled_table("tbill13w.parquet")["rate"]
    rate.index = pd.DatetimeIndex(rate.index).as_unit(DATE_UNIT)
    return rate


def _bundled_table(name: str) -> pd.DataFrame:
    """A bundled table with its dates as index."""
    frame = pd.read_parquet(BytesIO(_bundled(name)))
    return frame.set_index(pd.DatetimeIndex(frame.pop("date"), name="date"))


def _bundled(name: str) -> bytes:
    """A bundled file, compared with its hash."""
    folder = _bundled_folder()
    try:
        content = (folder / name).read_bytes()
        lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SourceError(f"The bundled sample cannot be read ({error}); install portfolio_sdpo again.") from None
    hashes = {file: digest for digest, file in (line.split("  ") for line in lines)}
    if hashlib.sha256(content).hexdigest() != hashes.get(name):
        raise SourceError(f"The bundled file {name} is damaged: its hash differs; install portfolio_sdpo again.")
    return content


def _bundled_folder() -> Path:
    """`data/` of the repository, which an installed package holds as `bundled/` (see setup.py)."""
    package = Path(__file__).parents[1]
    installed = package / "bundled"
    return installed if installed.is_dir() else package.parent / "data"


def _skfolio_table() -> pd.DataFrame:
    """skfolio's prices, read without importing it, which takes seconds."""
    spec = find_spec("skfolio")
    if spec is None or not spec.submodule_search_locations:
        raise SourceError("sample-skfolio needs the package skfolio: pip install 'portfolio_sdpo[samples]'.")
    path = Path(spec.submodule_search_locations[0], "datasets", "data", "sp500_dataset.csv.gz")
    if path.exists():
        return pd.read_csv(path, index_col=0, parse_dates=True)
    from skfolio.datasets import load_sp500_dataset  # a version that keeps its data elsewhere

    return load_sp500_dataset()
