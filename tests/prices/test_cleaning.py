"""Cleaning on one example per kind of finding."""

from __future__ import annotations

import math
from datetime import date

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.errors import DataQualityError, SettingsError
from portfolio_sdpo.prices.cleaning import Repairs, Report, clean, inspect
from tests.prices.cleaning_examples import CALENDAR, NAN, of_kind, only, prices


def test_sound_prices_come_back_as_they_are() -> None:
    given_prices = prices({"A": [1.0, 1.1, 1.2], "B": [5.0, 5.1, 5.2]}, CALENDAR[:3])
    result = clean(given_prices)
    pd.testing.assert_frame_equal(result.frame, given_prices.frame, check_freq=False)
    assert result.report == Report() and result.carried == {}


def test_a_gap_is_carried_for_five_sessions_and_then_suspends() -> None:
    observed = [1.0, *[NAN] * 7, 2.5, 2.5]
    result = clean(prices({"A": observed, "B": np.linspace(1, 2, 10)}, CALENDAR[:10]))
    assert result.frame["A"].tolist()[:6] == [1.0] * 6 and result.frame["A"].isna().tolist()[6:8] == [True, True]
    assert result.frame["A"].tolist()[8:] == [2.5, 2.5]
    assert result.carried == {"A": CALENDAR[1:6]}
    gap = only(result.report, "gap")
    assert (gap.ticker, gap.count, gap.dates) == ("A", 5, tuple(CALENDAR[1:4]))
    assert only(result.report, "suspension").sentence == (
        f"A has no price for more than 5 sessions and is suspended from {CALENDAR[6]} "
        f"until it trades again on {CALENDAR[8]}."
    )
    assert only(result.report, "large-move").sentence == f"A moved by more than 35\xa0%: +150.0\xa0% on {CALENDAR[8]}."


def test_sessions_without_a_row_count_towards_the_five() -> None:
    days = [CALENDAR[0], *CALENDAR[5:8]]  # 1 to 4 are missing
    result = clean(prices({"A": [1.0, NAN, NAN, NAN], "B": [1.0, 1.1, 1.2, 1.3]}, days))
    assert result.frame["A"].isna().tolist() == [False, False, True, True]
    assert list(result.frame.index.date) == days, "missing sessions are not invented"
    missing = only(result.report, "missing-session")
    assert (missing.count, missing.severity) == (4, "warning")
    without = clean(prices({"A": [1.0, NAN, NAN, NAN], "B": [1.0, 1.1, 1.2, 1.3]}, days), calendar=None)
    assert without.frame["A"].tolist() == [1.0] * 4 and not of_kind(without.report, "missing-session")


def test_late_listing_and_delisting() -> None:
    values = np.linspace(1, 2, 20)
    late = [NAN] * 8 + [3.0 + step / 100 for step in range(12)]
    gone = [3.0 + step / 100 for step in range(10)] + [NAN] * 10
    result = clean(prices({"ALL": values, "LATE": late, "GONE": gone}, CALENDAR[:20]))
    assert result.frame["LATE"].isna().tolist() == [True] * 8 + [False] * 12
    assert result.frame["GONE"].isna().tolist() == [False] * 15 + [True] * 5
    late_finding, gone_finding = only(result.report, "late-listing"), only(result.report, "delisting")
    assert (late_finding.severity, late_finding.dates) == ("info", (CALENDAR[8],))
    assert (gone_finding.severity, gone_finding.dates) == ("warning", (CALENDAR[9],))
    assert late_finding.sentence == f"LATE has no price before {CALENDAR[8]} and stays empty until then."
    assert gone_finding.sentence == f"GONE has no price after {CALENDAR[9]}: delisted, or the source stops there."


def test_empty_rows_and_columns_go() -> None:
    days = ["2018-11-21", "2018-11-22", "2018-11-23", "2018-11-26"]  # the second is Thanksgiving
    result = clean(prices({"A": [1.0, NAN, NAN, 1.1], "B": [NAN] * 4}, days))
    assert result.frame.shape == (2, 1)
    rows = only(result.report, "empty-row")
    assert rows.sentence == (
        "2 rows without any price left out (2018-11-22, 2018-11-23); XNYS was closed on 1 of them."
    )
    assert only(result.report, "missing-session").dates == (date(2018, 11, 23),)
    assert only(result.report, "no-price").sentence == "B has no price at all and is left out."


def test_dates_on_which_the_exchange_is_closed_stay_unless_told_otherwise() -> None:
    days = ["2018-11-21", "2018-11-22", "2018-11-23", "2018-11-24", "2018-11-26"]
    given_prices = prices({"A": [1.0, 1.01, 1.02, 1.03, 1.04]}, days)
    kept = clean(given_prices)
    assert len(kept.frame) == 5
    extra = only(kept.report, "extra-session")
    assert (extra.count, extra.dates) == (2, (date(2018, 11, 22), date(2018, 11, 24)))
    assert "extra_sessions=drop" in extra.sentence
    dropped = clean(given_prices, repairs=Repairs(extra_sessions="drop"))
    assert dropped.frame["A"].tolist() == [1.0, 1.02, 1.04]
    assert len(clean(given_prices, calendar=None).report.findings) == 0
    assert only(clean(given_prices, calendar="24/7").report, "missing-session").dates == (date(2018, 11, 25),)


@pytest.mark.parametrize("bad", [0.0, -0.0, -3.0, math.inf, -math.inf])
def test_prices_that_are_not_positive_stop_the_import(bad: float) -> None:
    given_prices = prices({"A": [1.0, bad, 1.1], "B": [1.0, 1.1, 1.2]}, CALENDAR[:3])
    with pytest.raises(DataQualityError) as caught:
        clean(given_prices)
    assert str(caught.value) == (
        f"A has 1 price that is not positive ({CALENDAR[1]}): correct the source, or add --repair non_positive=drop."
    )
    assert only(inspect(given_prices), "non-positive").severity == "error"
    result = clean(given_prices, repairs=Repairs(non_positive="drop"))
    assert result.frame["A"].tolist() == [1.0, 1.0, 1.1]
    assert result.carried == {"A": [CALENDAR[1]]}
    assert only(result.report, "non-positive").severity == "warning" and not result.report.errors


def test_repeated_dates() -> None:
    days = [CALENDAR[0], CALENDAR[1], CALENDAR[1], CALENDAR[2]]
    same = clean(prices({"A": [1.0, 1.1, 1.1, 1.2], "B": [2.0, 2.1, NAN, 2.2]}, days))
    assert same.frame["A"].tolist() == [1.0, 1.1, 1.2] and same.frame["B"].tolist() == [2.0, 2.1, 2.2]
    assert (
        only(same.report, "duplicate").sentence == f"1 date came more than once with the same prices ({CALENDAR[1]})."
    )

    differing = prices({"A": [1.0, 1.1, 1.15, 1.2], "B": [2.0, NAN, 2.1, 2.2]}, days)
    with pytest.raises(DataQualityError, match=r"A has different prices .* --repair duplicates=first \(or =last\)\.$"):
        clean(differing)
    for which, price in (("first", 1.1), ("last", 1.15)):
        result = clean(differing, repairs=Repairs(duplicates=which))
        assert result.frame["A"].tolist() == [1.0, price, 1.2] and result.frame["B"].tolist() == [2.0, 2.1, 2.2]
        assert f"the {which} one is kept" in only(result.report, "duplicate").sentence


def test_a_bad_price_does_not_outbid_a_good_one_of_the_same_date() -> None:
    days = [CALENDAR[0], CALENDAR[0], CALENDAR[1]]
    result = clean(prices({"A": [0.0, 1.0, 1.1]}, days), repairs=Repairs(non_positive="drop", duplicates="first"))
    assert result.frame["A"].tolist() == [1.0, 1.1]


def test_all_errors_are_said_at_once_and_many_are_counted() -> None:
    days = [CALENDAR[0], CALENDAR[1], CALENDAR[1]]
    with pytest.raises(DataQualityError) as caught:
        clean(prices({**{name: [-1.0, 1.0, 1.0] for name in "ABCD"}, "E": [1.0, 1.0, 2.0]}, days))
    message = str(caught.value)
    assert "A has 1 price" in message and "D has" not in message and "and 2 more tickers" in message
    assert message.endswith("or add --repair non_positive=drop --repair duplicates=first (or =last).")


def test_a_stale_run_begins_at_ten_sessions() -> None:
    moving = np.linspace(1, 2, 40)
    nine, ten = moving.copy(), moving.copy()
    nine[5:14], ten[5:15], ten[20:32] = 1.5, 1.6, 1.4
    report = clean(prices({"M": moving, "NINE": nine, "TEN": ten}, CALENDAR[:40])).report
    stale = only(report, "stale-run")
    assert (stale.ticker, stale.count, stale.dates) == ("TEN", 2, (CALENDAR[5], CALENDAR[20]))
    assert stale.sentence == (
        f"TEN has the same price 12 times in a row, from {CALENDAR[20]} to {CALENDAR[31]}, and in 1 shorter run."
    )


def test_moves_over_35_percent() -> None:
    jumpy = [100.0, 134.9, 100.0, 64.9, 100.0, 150.0, 225.0]
    move = only(clean(prices({"A": jumpy}, CALENDAR[:7])).report, "large-move")
    assert (move.count, move.severity) == (4, "warning")  # +34.9 % and -25.9 % are not over 35 %
    assert move.sentence.startswith(
        f"A moved by more than 35\xa0%: −35.1\xa0% on {CALENDAR[3]}, +54.1\xa0% on {CALENDAR[4]}, "
    )
    assert move.sentence.endswith(" and 1 more.")


def test_nothing_left_is_an_error() -> None:
    for columns, days in (({"A": [NAN, NAN]}, CALENDAR[:2]), ({"A": []}, []), ({}, CALENDAR[:2])):
        with pytest.raises(DataQualityError, match=r"There is no price in the data: check the file"):
            clean(prices(columns, days))


def test_one_row_and_one_ticker() -> None:
    assert clean(prices({"A": [1.0]}, CALENDAR[:1])).frame.shape == (1, 1)


def test_dates_beyond_the_calendar_are_kept_and_said_to_be_unchecked() -> None:
    result = clean(prices({"A": [1.0, 1.1, 1.2]}, ["1996-12-30", "1997-01-06", "1997-01-07"]), calendar="XTKS")
    assert len(result.frame) == 3
    assert only(result.report, "unchecked").dates == (date(1996, 12, 30),)
    assert not of_kind(result.report, "extra-session") and not of_kind(result.report, "missing-session")


def test_wrong_settings_are_named() -> None:
    with pytest.raises(SettingsError, match="carry"):
        clean(prices({"A": [1.0]}, CALENDAR[:1]), carry=-1)
    with pytest.raises(SettingsError, match=r"Repairs.duplicates.*'mean'"):
        Repairs(duplicates="mean")  # type: ignore[arg-type]


def test_cleaning_leaves_its_input_alone() -> None:
    given_prices = prices({"A": [1.0, NAN, -1.0]}, CALENDAR[:3])
    before = given_prices.frame.copy()
    clean(given_prices, repairs=Repairs(non_positive="drop"))
    pd.testing.assert_frame_equal(given_prices.frame, before)


def test_the_report_puts_the_gravest_first() -> None:
    columns = {"Z": [1.0, -1.0, 2.0], "B": [NAN, 1.0, 1.1], "A": [NAN, 1.0, 2.0]}
    report = inspect(prices(columns, CALENDAR[:3]))
    assert [(f.severity, f.kind, f.ticker) for f in report.findings] == [
        ("error", "non-positive", "Z"),
        ("warning", "large-move", "A"),
        ("warning", "large-move", "Z"),
        ("warning", "gap", "Z"),
        ("info", "late-listing", "A"),
        ("info", "late-listing", "B"),
    ]
    assert len(report.errors) == 1 and len(report.warnings) == 3 and len(report.sentences()) == 6


def test_many_tickers_are_spoken_of_one_by_one() -> None:
    rng = np.random.default_rng(0)
    values = np.exp(np.cumsum(rng.normal(0, 0.01, (len(CALENDAR), 60)), axis=0))
    values[rng.random(values.shape) < 0.2] = NAN
    columns = {f"T{at:02}": values[:, at] for at in range(60)}
    report = clean(prices(columns, CALENDAR)).report
    assert len({(f.kind, f.ticker) for f in report.findings}) == len(report.findings)
    assert len(of_kind(report, "gap")) == 60


def test_returns_are_offered_only_if_every_column_holds_them():
    rng = np.random.default_rng(3)
    days = CALENDAR[:40]
    returns, path = rng.normal(0, 0.01, len(days)), 100 * np.exp(rng.normal(0, 0.01, len(days)).cumsum())
    with pytest.raises(DataQualityError, match=r"A holds returns and not prices.*--returns decimal"):
        clean(prices({"A": list(returns)}, days))
    with pytest.raises(
        DataQualityError, match="A holds returns and not prices: import columns of prices only"
    ) as caught:
        clean(prices({"A": list(returns), "B": list(path)}, days))
    assert "--returns" not in str(caught.value)


def test_no_repair_is_advised_that_would_destroy_what_there_is() -> None:
    zeros = [0.0, 1.0, 1.1, 1.0] * 5
    with pytest.raises(DataQualityError) as caught:
        clean(prices({"A": zeros, "B": [1.0 + day / 9 for day in range(20)]}, CALENDAR[:20]))
    message = str(caught.value)
    assert "too many of the prices of A to leave out" in message and "--tickers" in message
    assert "--repair" not in message
    days = sorted([*CALENDAR[:20]] * 2)
    with pytest.raises(DataQualityError) as caught:
        clean(prices({"A": [1.0 + row / 9 for row in range(40)]}, days))
    message = str(caught.value)
    assert "its own ticker" in message and "duplicates=first" not in message
