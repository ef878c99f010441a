"""Prices of several currencies become one at the rates of a file, and nothing is converted by a guess."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.errors import DataQualityError, LayoutError, SettingsError
from portfolio_sdpo.prices.ingest import import_snapshot
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.prices.update import update_snapshot

DAYS = pd.bdate_range("2023-01-03", periods=8)
CLOSES = {"AAPL": (100.0, "USD"), "SAP": (50.0, "EUR"), "VOD": (80.0, "GBX")}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.csv"
    lines = [
        f"{day:%Y-%m-%d},{ticker},{price + row},{(price + row) / 2},{0.5 * (row == 3)},{currency}"
        for row, day in enumerate(DAYS)
        for ticker, (price, currency) in CLOSES.items()
    ]
    path.write_text("date,ticker,close,adj close,dividends,currency\n" + "\n".join(lines) + "\n")
    return path


def write_rates(folder: Path, text: str) -> Path:
    path = folder / "rates.csv"
    path.write_text(text)
    return path


def rates(folder: Path, first: int = 0) -> Path:
    """How many USD a EUR and how many GBP a USD cost; the latter is missing on the fourth day."""
    rows = [f"{day:%Y-%m-%d},{1.1 + row / 100:.2f},{'' if row == 3 else 0.8}\n" for row, day in enumerate(DAYS)]
    return write_rates(folder, "Date,EURUSD=X,USD/GBP\n" + "".join(rows[first:]))


def convert(path: Path, currency: str | None, by: Path | None, store: Store):
    return import_snapshot(path, "mine", currency=currency, rates=by, store=store, calendar=None).snapshot


def test_prices_raw_closes_and_dividends_are_in_one_currency(tmp_path, prices, store):
    snapshot = convert(prices, "USD", rates(tmp_path), store)
    steps = np.arange(8)
    euro = 1.1 + steps / 100
    assert snapshot.manifest.currency == "USD"
    np.testing.assert_allclose(snapshot.frame["AAPL"], (100 + steps) / 2)
    np.testing.assert_allclose(snapshot.frame["SAP"], (50 + steps) / 2 * euro)
    np.testing.assert_allclose(
        snapshot.frame["VOD"], (80 + steps) / 2 / 100 / 0.8
    )  # the fourth day at the third's rate
    np.testing.assert_allclose(store.open_raw_closes(snapshot.manifest)["SAP"], (50 + steps) * euro)
    np.testing.assert_allclose(store.open_companion(snapshot.manifest, "dividends")["SAP"], 0.5 * (steps == 3) * euro)
    assert any("Turned from EUR, GBX into USD" in note for note in snapshot.manifest.notes)


def test_pence_become_pounds_without_a_rate(tmp_path, store):
    path = tmp_path / "pence.csv"
    lines = [
        f"{day:%Y-%m-%d},{ticker},{price + row},{currency}"
        for row, day in enumerate(DAYS)
        for ticker, (price, currency) in {"VOD": (80.0, "GBX"), "BP": (5.0, "GBP")}.items()
    ]
    path.write_text("date,ticker,close,currency\n" + "\n".join(lines) + "\n")
    snapshot = convert(path, "GBP", None, store)
    np.testing.assert_allclose(snapshot.frame["VOD"], (80 + np.arange(8)) / 100)
    assert "Turned from GBX into GBP." in snapshot.manifest.notes
    with pytest.raises(SettingsError, match="--currency: GBX are hundredths of GBP; give that currency"):
        convert(path, "GBX", None, store)


def test_an_update_converts_again(tmp_path, prices, store):
    rates(tmp_path)
    before = convert(prices, "USD", tmp_path / "rates.csv", store)
    assert not update_snapshot("mine", store=store).new
    assert store.open("mine").manifest.sha256 == before.manifest.sha256


def test_the_refusal_of_several_currencies_says_how_to_convert(prices, store):
    with pytest.raises(DataQualityError, match=r"several currencies .* --currency USD --rates FILE.*EURUSD"):
        convert(prices, None, None, store)
    with pytest.raises(
        SettingsError, match=r"--currency: EUR, GBX can only be turned into USD with exchange rates.*EURUSD"
    ):
        convert(prices, "USD", None, store)
    with pytest.raises(SettingsError, match="--currency: must be a code of three letters"):
        convert(prices, "dollar", None, store)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Date,USD,GBP\n2023-01-03,1.1,0.8\n", "no column that is called after a pair.*how many USD one EUR costs"),
        ("Date,EURUSD\n2023-01-03,1.1\n", "no column GBPUSD or USDGBP .there are EURUSD"),
        ("Date,EURUSD,USDEUR,GBPUSD\n2023-01-03,0,1.1,1.2\n", "not positive"),
    ],
)
def test_rates_that_do_not_do(tmp_path, prices, store, text, sentence):
    with pytest.raises(SettingsError, match=sentence):
        convert(prices, "USD", write_rates(tmp_path, text), store)


def test_no_price_is_converted_at_a_later_rate_or_lost(tmp_path, prices, store):
    with pytest.raises(LayoutError, match=r"no rate from EUR to USD in the week up to 2023-01-03 \(1 such day\)"):
        convert(prices, "USD", rates(tmp_path, first=1), store)


def test_prices_without_a_currency_are_not_converted(tmp_path, store):
    path = tmp_path / "wide.csv"
    path.write_text("Date,AAPL\n2023-01-03,1.5\n2023-01-04,1.6\n")
    with pytest.raises(SettingsError, match="nothing says which currency AAPL is in"):
        convert(path, "EUR", rates(tmp_path), store)


def test_rates_need_not_look_like_prices(tmp_path, store):
    """A rupiah is worth 0.00006 dollars, rounded so for weeks, and a pegged rate never changes."""
    days = pd.bdate_range("2023-01-03", periods=40).strftime("%Y-%m-%d")
    banks, homes = 9000 + 50.0 * (np.arange(40) % 7), 30 + np.arange(40) / 10
    rupiah = 0.000064 + 0.000001 * (np.arange(40) // 15)
    path = tmp_path / "prices.csv"
    both = zip(days, banks, homes, strict=True)
    lines = [f"{day},BBCA,{bank},IDR\n{day},EMAAR,{home},AED\n" for day, bank, home in both]
    path.write_text("date,ticker,close,currency\n" + "".join(lines))
    rates = "".join(f"{day},{rate:.6f},3.6725\n" for day, rate in zip(days, rupiah, strict=True))
    snapshot = convert(path, "USD", write_rates(tmp_path, f"Date,IDRUSD=X,USDAED=X\n{rates}"), store)
    np.testing.assert_allclose(snapshot.frame["BBCA"], banks * rupiah)
    np.testing.assert_allclose(snapshot.frame["EMAAR"], homes / 3.6725)
