"""Files of many vendors: each is read exactly, or refused with the sentence that helps."""

import itertools
import re
import shlex

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts import read_prices
from portfolio_sdpo.prices.layouts.column_names import HIGH, LOW, OPEN, RAW, VOLUME
from tests.prices.layouts import corpus, corpus_doubtful, corpus_exchanges, corpus_reshaped, corpus_terminals
from tests.prices.layouts.corpus import BARS, DAYS, Case

CASES = [
    *corpus.CASES,
    *corpus_terminals.CASES,
    *corpus_exchanges.CASES,
    *corpus_doubtful.CASES,
    *corpus_reshaped.CASES,
]


def test_the_corpus_is_large():
    assert len(CASES) >= 300 and len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(tmp_path, case: Case):
    path = tmp_path / case.file
    path.write_bytes(case.content if isinstance(case.content, bytes) else case.content.encode())
    if case.refusal:
        with pytest.raises(LayoutError) as caught:
            read_prices(path, **case.options)
        message = str(caught.value)
        assert re.search(case.refusal, message) and message.endswith(".") and "\n" not in message
        return
    prices = read_prices(path, **case.options)
    assert sorted(prices.frame.columns) == sorted(case.expected), prices.notes
    assert f"{prices.frame.index[0]:%Y-%m-%d}" == case.first
    for ticker, expected in case.expected.items():
        found = prices.frame[ticker].dropna().to_numpy()
        assert len(found) == len(expected)
        np.testing.assert_allclose(found, expected, rtol=0 if "returns" not in case.options else 1e-12)


OPTION = re.compile(r"--layout|--returns|--to-daily|--dayfirst")


@pytest.mark.parametrize("case", [case for case in CASES if case.refusal], ids=lambda case: case.name)
def test_what_a_refusal_advises_works(tmp_path, case: Case):
    """Every option that the sentence names is obeyed, and gives the values that the sentence promises."""
    path = tmp_path / case.file
    path.write_bytes(case.content if isinstance(case.content, bytes) else case.content.encode())
    with pytest.raises(LayoutError) as caught:
        read_prices(path, **case.options)
    message = str(caught.value)
    assert len(OPTION.findall(message)) == len(case.ways), message
    for way, expected in case.ways.items():
        assert way in message
        option, *value = shlex.split(way)
        frame = read_prices(path, **{option.removeprefix("--").replace("-", "_"): value[0] if value else True}).frame
        assert sorted(frame.columns) == sorted(expected)
        for ticker, values in expected.items():
            np.testing.assert_allclose(frame[ticker].dropna(), values, rtol=1e-12)


WORDS = {"open": OPEN, "high": HIGH, "low": LOW, "close": RAW, "volume": VOLUME}
PLACES = {"open": corpus.OPEN, "high": corpus.HIGH, "low": corpus.LOW, "close": corpus.CLOSE, "volume": corpus.VOLUME}
LANGUAGES = [
    ("Open", "High", "Low", "Close", "Volume"),
    ("open", "high", "low", "close", "volume"),
    ("Eröffnung", "Hoch", "Tief", "Schlusskurs", "Umsatz"),
    ("Apertura", "Máximo", "Mínimo", "Cierre", "Volumen"),
    ("Abertura", "Máxima", "Mínima", "Último", "Vol."),
    ("Ouverture", "Plus haut", "Plus bas", "Clôture", "Volume"),
    ("Apertura", "Massimo", "Minimo", "Chiusura", "Volume"),
    ("Otwarcie", "Najwyższy", "Najniższy", "Zamknięcie", "Wolumen"),
    ("PX_OPEN", "PX_HIGH", "PX_LOW", "PX_LAST", "PX_VOLUME"),
]
SPELLINGS = [
    "{t}.{f}",
    "{t}_{f}",
    "{f}_{t}",
    "{f}.{t}",
    "{t} {f}",
    "{f} {t}",
    "{t}-{f}",
    "{t}: {f}",
    "{f} ({t})",
    "{t}|{f}",
]
TICKERS = [
    "AAPL",
    "MSFT",
    "BRK.B",
    "BF-B",
    "^GSPC",
    "0700.HK",
    "SAP.DE",
    "T",
    "LOW",
    "OPEN",
    "US0378331005",
    "EURUSD=X",
]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(LANGUAGES),
    st.sampled_from(SPELLINGS),
    st.lists(st.sampled_from(TICKERS), min_size=1, max_size=4, unique=True),
    st.sets(st.sampled_from(["open", "high", "low", "volume"])),
    st.randoms(use_true_random=False),
)
def test_only_closes_become_tickers_whatever_the_order_language_and_separator(
    tmp_path_factory, language, spelling, tickers, others, random
):
    """Several securities with several fields in one header."""
    fields = dict(zip(PLACES, language, strict=True))
    columns = [(ticker, field) for ticker in tickers for field in ("close", *sorted(others))]
    random.shuffle(columns)
    separator = "," if "|" in spelling else random.choice([",", ";", "\t", "|"])
    names = [spelling.format(t=ticker, f=fields[field]) for ticker, field in columns]
    lines = [separator.join(["Date", *names])]
    for row, day in enumerate(DAYS):
        scale = {ticker: 1 + number for number, ticker in enumerate(tickers)}
        cells = [BARS["AAPL"][row][PLACES[field]] * scale[ticker] for ticker, field in columns]
        lines.append(separator.join([str(day), *(f"{cell:.2f}" for cell in cells)]))
    path = tmp_path_factory.getbasetemp() / "fields.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    frame = read_prices(path).frame
    assert sorted(frame.columns) == sorted(tickers)
    for number, ticker in enumerate(tickers):
        np.testing.assert_allclose(frame[ticker], [round(bar[corpus.CLOSE] * (1 + number), 2) for bar in BARS["AAPL"]])


@settings(max_examples=100, deadline=None)
@given(
    st.fixed_dictionaries({field: st.sampled_from(words) for field, words in WORDS.items()}),
    st.permutations(list(WORDS)),
    st.sampled_from([str.lower, str.title]),
    st.sampled_from(",;\t|"),
)
def test_no_field_of_one_security_becomes_a_ticker(tmp_path_factory, names, order, spell, separator):
    """Any words of any languages together: the file's ticker has the close, or the file is refused."""
    lines = [separator.join(["Date", *(spell(names[field]) for field in order)])]
    for row, day in enumerate(DAYS):
        lines.append(separator.join([str(day), *(str(BARS["AAPL"][row][PLACES[field]]) for field in order)]))
    path = tmp_path_factory.getbasetemp() / "AAPL.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    frame = read_prices(path).frame
    assert list(frame.columns) == ["AAPL"]
    np.testing.assert_array_equal(frame["AAPL"], corpus.closes())


def test_every_pair_of_words_means_one_thing():
    tables = {"open": OPEN, "high": HIGH, "low": LOW, "close": RAW, "volume": VOLUME}
    for one, other in itertools.combinations(tables, 2):
        assert not set(tables[one]) & set(tables[other])
