"""Numbers as files write them."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.numbers import NULLS, parse_number, parse_numbers


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("179.66", 179.66),
        ("$179.66", 179.66),
        ("$1,179.66", 1179.66),
        ("73,563,080", 73563080.0),
        ("-$3.5", -3.5),
        ("$-3.5", -3.5),
        ("(12.5)", -12.5),
        ("($12.5)", -12.5),
        ("€ 3", 3.0),
        ("1e-7", 1e-7),
        (" 5. ", 5.0),
        (".5", 0.5),
        ("inf", math.inf),
    ],
)
def test_number(text, number):
    assert parse_number(text) == number


@pytest.mark.parametrize("text", NULLS)
def test_null(text):
    assert math.isnan(parse_number(text))


@pytest.mark.parametrize("text", ["abc", "-$-3", "1_000", "12,5", "1,23,45", "(5", "1.2.3", "$", "0x10", "5%", "1 2"])
def test_no_number(text):
    assert parse_number(text) is None


@given(st.floats(allow_nan=False))
def test_every_float_comes_back_bit_by_bit(number):
    for text in (repr(number), f"{number:,}", f"${abs(number):,}"):
        expected = abs(number) if "$" in text else number
        assert np.float64(parse_number(text)).tobytes() == np.float64(expected).tobytes()


def test_the_bad_cell_is_named():
    with pytest.raises(LayoutError, match="'abc' in column 'MSFT', row 2 of the data"):
        parse_numbers([pd.Series([1.0, 2.0]), pd.Series(["1", "abc"])], ["AAPL", "MSFT"])


def test_decimal_commas_hold_for_all_cells():
    values = parse_numbers([pd.Series(["1.234,5", "1.234", "0,5"])], ["A"], decimal_comma=True)
    assert values[:, 0].tolist() == [1234.5, 1234.0, 0.5]
