"""Two small tables of prices, and how they are saved, for the tests of snapshots."""

from hashlib import sha256
from pathlib import Path

import pandas as pd

from portfolio_sdpo.prices.cleaning import CleanPrices, Report
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import SaveResult, Store

NAN = float("nan")
REQUEST = Request(source="file", settings={"path": "prices.csv"}, calendar=None)


def table(*rows: list[float], first: str = "2020-01-02") -> pd.DataFrame:
    """Rows of prices of A, B, … on consecutive business days."""
    dates = pd.bdate_range(first, periods=len(rows))
    return to_wide(pd.DataFrame(rows, index=dates, columns=[*"ABCDEFGH"[: len(rows[0])]]))


OLD = table([1.0, NAN], [2.0, 5.0], [3.0, 6.0])
NEW = table([1.0, NAN], [2.0, 5.0], [3.0, 6.0], [4.0, 7.0])


def save(store: Store, name: str, frame: pd.DataFrame, **options) -> SaveResult:
    return store.save(name, CleanPrices(frame, Report(), {}), Prices(frame, "close", "unknown"), REQUEST, **options)


def files(store: Store, suffix: str) -> list[Path]:
    return sorted(store.root.glob(f"objects/*/*.{suffix}"))


def put(store: Store, manifest: bytes) -> str:
    """Add a manifest of the test's own to the objects of the store; returns its hash."""
    digest = sha256(manifest).hexdigest()
    path = store.root / "objects" / digest[:2] / f"{digest}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(manifest)
    return digest
