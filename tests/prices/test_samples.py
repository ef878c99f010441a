"""The bundled sample against its hashes, the NYSE's calendar, dividends that were paid, the Treasury and skfolio."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.errors import SettingsError, SourceError
from portfolio_sdpo.prices import samples
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.samples import SAMPLES, load_cash_rate, load_sample

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data"

# Ex-date and amount of every dividend in the sample's range but CSCO's on its second day. Found by undoing one after
# the other, newest first: with a wrong date or amount the three months before it are not in whole cents.
DIVIDENDS = {
    "JPM": """2016-04-04 .44 2016-07-01 .48 2016-10-04 .48 2017-01-04 .48 2017-04-04 .50 2017-07-03 .50 2017-10-05 .56
        2018-01-04 .56 2018-04-05 .56 2018-07-05 .56 2018-10-04 .80 2019-01-03 .80 2019-04-04 .80 2019-07-03 .80
        2019-10-03 .90 2020-01-03 .90 2020-04-03 .90 2020-07-02 .90 2020-10-05 .90 2021-01-05 .90 2021-04-05 .90
        2021-07-02 .90 2021-10-05 1.00""",
    "CSCO": """2016-04-04 .26 2016-07-05 .26 2016-10-03 .26 2017-01-04 .26 2017-04-04 .29 2017-07-05 .29 2017-10-04 .29
        2018-01-04 .29 2018-04-04 .33 2018-07-05 .33 2018-10-04 .33 2019-01-03 .33 2019-04-04 .35 2019-07-03 .35
        2019-10-03 .35 2020-01-02 .35 2020-04-02 .36 2020-07-02 .36 2020-10-01 .36 2021-01-04 .36 2021-04-05 .37
        2021-07-02 .37 2021-10-04 .37""",
    "DOW": """2019-05-30 .70 2019-08-29 .70 2019-11-27 .70 2020-02-27 .70 2020-05-28 .70 2020-08-28 .70 2020-11-27 .70
        2021-02-25 .70 2021-05-27 .70 2021-08-30 .70""",
    "GS": """2016-02-29 .65 2016-05-27 .65 2016-08-30 .65 2016-11-29 .65 2017-02-28 .65 2017-05-30 .75 2017-08-29 .75
        2017-11-29 .75 2018-02-28 .75 2018-05-30 .80 2018-08-29 .80 2018-11-29 .80 2019-02-28 .80 2019-05-29 .85
        2019-08-29 1.25 2019-11-29 1.25 2020-02-28 1.25 2020-05-29 1.25 2020-08-31 1.25 2020-12-01 1.25 2021-03-01 1.25
        2021-05-28 1.25 2021-08-31 2.00""",
    "MMM": """2016-02-10 1.11 2016-05-18 1.11 2016-08-17 1.11 2016-11-16 1.11 2017-02-15 1.175 2017-05-17 1.175
        2017-08-23 1.175 2017-11-22 1.175 2018-02-15 1.36 2018-05-17 1.36 2018-08-23 1.36 2018-11-21 1.36
        2019-02-14 1.44 2019-05-23 1.44 2019-08-15 1.44 2019-11-21 1.44 2020-02-13 1.47 2020-05-21 1.47 2020-08-21 1.47
        2020-11-19 1.47 2021-02-11 1.48 2021-05-20 1.48 2021-08-20 1.48""",
}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return load_sample("sample").frame


def test_the_files_match_their_hashes_and_their_provenance() -> None:
    lines = dict(reversed(line.split("  ")) for line in (DATA / "SHA256SUMS").read_text().splitlines())
    for name, digest in lines.items():
        assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == digest, name
    provenance = json.loads((DATA / "provenance.json").read_text())
    for name, described in provenance["files"].items():
        table = pd.read_parquet(DATA / name)
        assert [*table.columns] == ["date", *described["columns"]] and len(table) == described["rows"]
        assert [str(table["date"].iloc[at]) for at in (0, -1)] == [described["start"], described["end"]]
    assert provenance["source"]["copyright"] in (DATA / "LICENSE.portfolio-backtester.txt").read_text()
    assert sum(file.stat().st_size for file in DATA.iterdir() if file.is_file()) < 300_000


def test_nine_stocks_on_every_session_and_dow_from_its_listing(frame: pd.DataFrame) -> None:
    assert [*frame] == ["AAPL", "CSCO", "DOW", "GE", "GS", "JNJ", "JPM", "MMM", "MSFT"]
    assert frame.drop(columns="DOW").notna().all(axis=None)
    assert frame["DOW"].isna().equals(pd.Series(frame.index < "2019-03-20", frame.index))
    cleaned = clean(load_sample("sample"))  # compares the dates with the NYSE's sessions
    assert len(cleaned.frame) == 1457
    assert cleaned.report.sentences() == ["DOW has no price before 2019-03-20 and stays empty until then."]
    pd.testing.assert_frame_equal(cleaned.frame, frame)


def test_the_last_day_shows_the_closes_of_that_day(frame: pd.DataFrame) -> None:
    last = frame.loc["2021-10-14"].round(4).to_dict()
    assert last.items() >= {"AAPL": 143.76, "CSCO": 55.65, "MMM": 180.32, "MSFT": 302.75}.items()


@pytest.mark.parametrize("ticker", DIVIDENDS)
def test_without_its_dividends_every_close_is_in_whole_cents(frame: pd.DataFrame, ticker: str) -> None:
    """A dividend that is missing, of the wrong size or counted twice leaves fractions of a cent on all earlier days."""
    closes = frame[ticker].dropna().copy()
    words = DIVIDENDS[ticker].split()
    for ex_date, amount in zip(words[-2::-2], words[::-2], strict=True):
        before = closes.index[closes.index < ex_date][-1]
        close = round(closes[before] + float(amount), 2)
        closes[:before] *= close / (close - float(amount))
    closes = closes["2016-01-05":]  # type: ignore[misc]  # CSCO went ex dividend on that day
    cents = closes * 100
    assert (cents - cents.round()).abs().max() < 0.02


def test_both_dividends_that_the_source_counts_wrongly(frame: pd.DataFrame) -> None:
    """An adjusted return is close / (close before − dividend) − 1; the closes are those in whole cents."""
    returns = frame.pct_change(fill_method=None)
    assert returns.loc["2017-04-04", "JPM"] == pytest.approx(87.31 / (87.52 - 0.50) - 1, abs=1e-6)
    assert returns.loc["2017-04-05", "JPM"] == pytest.approx(86.19 / 87.31 - 1, abs=1e-6)
    assert returns.loc["2021-08-06", "AAPL"] == pytest.approx(146.14 / (147.06 - 0.22) - 1, abs=1e-6)
    notes = load_sample("sample").notes
    assert len(notes) == 2 and "JPM" in notes[0] and "AAPL" in notes[1]


def test_returns_agree_with_an_independent_source(frame: pd.DataFrame) -> None:
    other = load_sample("sample-skfolio").frame
    shared = ["AAPL", "GE", "JNJ", "JPM", "MSFT"]
    theirs = other.loc[frame.index, shared].pct_change()
    rounding = 0.001 / other.loc[frame.index, shared]  # half a unit of the third decimal, on both days
    assert ((frame[shared].pct_change() - theirs).abs() <= rounding + 1e-6).iloc[1:].all(axis=None)


def test_the_cash_rate_is_the_coupon_equivalent_of_the_13_week_bill() -> None:
    rate = load_cash_rate()
    assert (len(rate), rate.index[0], rate.index[-1]) == (1449, pd.Timestamp("2016-01-04"), pd.Timestamp("2021-10-14"))
    assert rate.index.is_unique and rate.index.is_monotonic_increasing and rate.notna().all()
    # The Treasury's figures of November 2018; the bank discount rates of the same days are 2.27, 2.28, 2.32, 2.31, ...
    published = [
        2.31,
        2.32,
        2.37,
        2.36,
        2.37,
        2.35,
        2.36,
        2.39,
        2.38,
        2.37,
        2.36,
        2.39,
        2.39,
        2.41,
        2.41,
        2.42,
        2.41,
        2.40,
    ]
    published += [2.37, 2.37]
    november = rate.loc["2018-11"]
    assert november.tolist() == [round(percent / 100, 4) for percent in published]
    assert pd.Timestamp("2018-11-12") not in november.index  # Veterans Day was kept on Monday: only stocks traded
    assert rate.min() == -0.0005 and rate.idxmin() == pd.Timestamp("2020-03-26")


def test_skfolios_prices_are_those_of_its_own_loader() -> None:
    from skfolio.datasets import load_sp500_dataset

    given = load_sample("sample-skfolio")
    assert given.frame.shape == (8313, 20) and given.adjustment == "total-return"
    np.testing.assert_array_equal(given.frame.to_numpy(), load_sp500_dataset().to_numpy())
    kinds = {found.kind for found in clean(given).report.findings}
    assert kinds == {"large-move", "stale-run"}  # and no session of 33 years is missing or extra


def test_without_skfolio_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skfolio", None)
    with pytest.raises(SourceError, match=r"pip install 'portfolio_sdpo\[samples\]'"):
        load_sample("sample-skfolio")


def test_an_unknown_sample_is_answered_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="sample and sample-skfolio"):
        load_sample("simple")
    assert [*SAMPLES] == ["sample", "sample-skfolio"]


# --- The script that made it ---


@pytest.fixture
def rebuild(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("rebuild", DATA / "rebuild.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "rebuild", module)
    spec.loader.exec_module(module)
    return module


def test_the_script_makes_the_sample_from_a_wheel_of_that_form(
    rebuild: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel is too large to keep here: this one holds the same stocks, uncorrected, with holidays and more."""
    prices = pd.read_parquet(DATA / "prices.parquet").set_index("date")
    prices.index = pd.DatetimeIndex(prices.index)
    raw = prices.copy()
    for fix in rebuild.CORRECTIONS:
        raw.loc[raw.index < fix.date, fix.ticker] /= fix.factor
    raw = raw.reindex(raw.index.union(pd.to_datetime(["2016-01-18", "2018-12-05", "2015-12-31", "2021-10-15"])))
    raw.iloc[[0, -1]] = 1.0  # outside the sample's range
    raw = raw.assign(XYZ=1.0)
    bills = pd.read_parquet(DATA / "tbill13w.parquet").set_index("date")
    rates = pd.DataFrame({"4 weeks": 9.0, "13 weeks": (bills["rate"] * 100).round(2)})
    rates.index = pd.DatetimeIndex(rates.index).strftime("%-d/%-m/%Y")
    wheel = tmp_path / "small.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(rebuild.PRICES, raw.to_csv(index_label="Date", date_format="%Y-%m-%d %H:%M:%S"))
        archive.writestr(rebuild.BILLS, rates.to_csv(index_label="Date"))
        archive.writestr(rebuild.LICENSE, "MIT License\r\n")
    with pytest.raises(SystemExit, match="its sha256 differs"):
        rebuild.rebuild(wheel, tmp_path)
    monkeypatch.setattr(rebuild, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())

    first, second = tmp_path / "first", tmp_path / "second"
    for out in (first, second):
        rebuild.rebuild(wheel, out)
    for name in ("prices.parquet", "tbill13w.parquet"):
        pd.testing.assert_frame_equal(pd.read_parquet(first / name), pd.read_parquet(DATA / name), rtol=1e-15)
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes()


# --- Installed, without the repository ---


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a wheel built from the repository unpacks to."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("portfolio_sdpo", "data"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out)
    return out


def load_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """What an installation in the folder answers, in a Python that sees it before the repository."""
    code = (
        "import sys; from portfolio_sdpo.prices import samples; "
        f"assert samples.__file__.startswith({str(folder)!r}), samples.__file__; "
        "prices = samples.load_sample('sample'); samples.load_cash_rate(); "
        "assert 'skfolio' not in sys.modules and 'torch' not in sys.modules; "
        "prices.frame.to_parquet(sys.argv[1])"
    )
    target = folder / "loaded.parquet"
    monkeypatch.setenv("PYTHONPATH", str(folder))
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SourceError(done.stderr.splitlines()[-1])
    return pd.read_parquet(target)


def test_an_installed_package_holds_the_sample_and_refuses_a_damaged_one(
    installed: Path, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    pd.testing.assert_frame_equal(load_from(installed, monkeypatch), frame)

    file = installed / "portfolio_sdpo" / "bundled" / "prices.parquet"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(SourceError, match=r"prices\.parquet is damaged"):
        load_from(installed, monkeypatch)
    file.unlink()
    with pytest.raises(SourceError, match=r"cannot be read .* install portfolio_sdpo again"):
        load_from(installed, monkeypatch)


def test_the_repository_reads_its_own_data() -> None:
    assert samples._bundled_folder() == DATA
