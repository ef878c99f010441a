"""*Data* in a browser: snapshots as they are stored, and a file from the browser as a new one."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.errors import LayoutError, PortfolioSdpoError, SnapshotError
from portfolio_sdpo.prices.samples import load_sample
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo_app.dashboard.data import uploads

from ..conftest import at_home

TICKERS = ["AAPL", "GE", "JPM"]


def prices() -> pd.DataFrame:
    return load_sample("sample").frame[TICKERS].iloc[:300]


def offer(page: Any, file: Path) -> None:
    """Give the page a file; where there are snapshots already, the place for it is folded."""
    place = page.locator("details", has_text="Upload a price file")
    place.wait_for()
    if place.get_attribute("open") is None:
        place.locator("summary").click()
    page.locator("[data-testid=stFileUploaderDropzone]").wait_for()
    page.locator("[data-testid=stFileUploader] input[type=file]").set_input_files(file)


def test_figures_are_those_of_the_snapshot(visit: Callable, filled: str, filled_home: Path):
    with at_home(filled_home):
        snapshot = Store().open("prices")
    manifest = snapshot.manifest
    visitor = visit()
    page = visitor.open(filled, "data")
    page.locator(".st-key-prices .main-svg").first.wait_for()
    row = page.locator("tbody tr", has=page.get_by_role("rowheader", name="prices", exact=True)).first.inner_text()
    for told in (f"{manifest.start} to {manifest.end}", f"{manifest.rows:,}", manifest.sha256[:12]):
        assert told in row
    large = page.locator(".cards .figure").all_inner_texts()
    assert large[:2] == [f"{manifest.rows:,}", str(len(manifest.tickers))]
    drawn = page.locator(".st-key-prices .js-plotly-plot").evaluate(
        "plot => plot.data.map(each => [each.name, each.x.at(-1), each.y.at(-1)])"
    )
    for name, day, last in drawn:
        column = snapshot.frame[name].dropna()
        assert day == str(manifest.end) and last == pytest.approx(100 * column.iloc[-1] / column.iloc[0], abs=1e-3)
    findings = page.locator("table", has=page.locator("th", has_text="Kind"))
    assert findings.locator("tbody tr").count() == len(manifest.report)
    visitor.keep("data-laptop-light")


@pytest.mark.parametrize(("width", "scheme"), [("phone", "light"), ("laptop", "dark")])
def test_it_fits(visit: Callable, filled: str, width: str, scheme: str):
    visitor = visit(width, scheme)
    visitor.open(filled, "data").locator(".st-key-prices .main-svg").first.wait_for()
    visitor.no_sideways()
    visitor.keep(f"data-{width}-{scheme}")


def test_an_uploaded_file_becomes_a_snapshot(visit: Callable, work: str, work_home: Path, tmp_path: Path):
    file = tmp_path / "My prices.csv.gz"
    prices().to_csv(file)
    visitor = visit()
    page = visitor.open(work, "data")
    offer(page, file)
    name = page.get_by_label("Name of the snapshot")
    name.wait_for()
    assert name.input_value() == "My-prices"
    name.fill("from-the-browser")
    name.press("Enter")
    page.get_by_role("button", name="Create the snapshot").click()
    visitor.wait_for_text("[data-testid=stAlert]", "from-the-browser was created: 3 tickers")
    page.locator(".st-key-prices .main-svg").first.wait_for()
    visitor.settle()
    assert page.url.endswith("snapshot=from-the-browser")
    with at_home(work_home):
        snapshot = Store().open("from-the-browser")
    assert np.array_equal(snapshot.frame.to_numpy(), prices().to_numpy())
    assert list(snapshot.frame.columns) == TICKERS and snapshot.manifest.rows == 300
    visitor.keep("data-uploaded")


def test_what_is_wrong_with_a_file_is_one_sentence(visit: Callable, work: str, work_home: Path, tmp_path: Path):
    file = tmp_path / "notes.csv"
    file.write_text("to be,or not\nto be,that\n")
    visitor = visit()
    page = visitor.open(work, "data")
    offer(page, file)
    page.get_by_role("button", name="Create the snapshot").click()
    error = page.locator("[data-testid=stAlert]", has_text="notes.csv")
    error.first.wait_for()
    visitor.settle()
    assert error.first.inner_text().strip().endswith(".") and str(work_home) not in error.first.inner_text()
    with at_home(work_home):
        assert "notes" not in Store().list()
    assert list(work_home.glob("uploads/*/notes.csv")) == []


@pytest.mark.parametrize("name", ["../up.csv", "..\\up.csv", "/etc/up.csv"])
def test_a_name_never_leaves_its_folder(tmp_path: Path, name: str):
    with at_home(tmp_path):
        uploads.import_upload(name, prices().to_csv().encode(), "safe")
    assert [path.name for path in tmp_path.glob("uploads/*/*")] == ["up.csv"]


def test_what_cannot_be_taken_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    content = prices().to_csv().encode()
    monkeypatch.setattr(uploads, "MAX_UNPACKED_MEGABYTES", 1)
    with at_home(tmp_path):
        with pytest.raises(LayoutError, match="unpacks to more than 1 MB"):
            uploads.import_upload("bomb.csv.gz", gzip.compress(bytes(3 << 20)), "bomb")
        with pytest.raises(LayoutError, match="files of this type cannot be read"):
            uploads.import_upload("prices.exe", content, "bad")
        with pytest.raises(PortfolioSdpoError):
            uploads.import_upload("torn.csv.gz", gzip.compress(content)[:200], "torn")
        with pytest.raises(SnapshotError):
            uploads.import_upload("fine.csv", content, "no/such name")
        assert Store().list() == ()
    assert list(tmp_path.glob("uploads/*/*")) == []
