"""Back-off: known answers, and bounds that hold for any settings and any source."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import RateLimitedError, SettingsError, SourceUnreachableError, UnknownTickerError
from portfolio_sdpo.prices.sources.retry import Retrier, RetrySettings, TransientFault, parse_retry_after

LIMITED = RateLimitedError("limited")


class Flaky:
    """Fails as told, then works."""

    def __init__(self, *faults):
        self.faults, self.calls = list(faults), 0

    def __call__(self):
        self.calls += 1
        if self.faults:
            raise self.faults.pop(0)
        return "prices"


def ignore(wait, error):
    pass


def test_waits_double_up_to_the_longest():
    waits = []
    settings = RetrySettings(attempts=6, first_wait=2, longest_wait=9, jitter=0, sleep=waits.append)
    assert Retrier(settings).call(Flaky(*[TransientFault(LIMITED)] * 5), ignore) == "prices"
    assert waits == [2, 4, 8, 9, 9]


@pytest.mark.parametrize("chance, wait", [(0.0, 4.0), (0.5, 3.0), (1.0, 2.0)])
def test_jitter_shortens_a_wait_by_its_share(chance, wait):
    waits = []
    settings = RetrySettings(first_wait=4, jitter=0.5, sleep=waits.append)
    Retrier(settings, lambda: chance).call(Flaky(TransientFault(LIMITED)), ignore)
    assert waits == [wait]


def test_patience_is_shared_by_all_calls_of_a_fetch():
    waits = []
    patience = Retrier(RetrySettings(attempts=9, first_wait=1, total_wait=4, jitter=0, sleep=waits.append))
    patience.call(Flaky(*[TransientFault(LIMITED)] * 2), ignore)
    with pytest.raises(RateLimitedError, match="limited"):
        patience.call(Flaky(*[TransientFault(LIMITED)] * 9), ignore)
    assert waits == [1, 2, 1]


def test_only_what_may_pass_is_tried_again():
    action = Flaky(UnknownTickerError("who?"))
    with pytest.raises(UnknownTickerError):
        Retrier(RetrySettings()).call(action, ignore)
    assert action.calls == 1


def test_the_last_fault_is_the_one_raised_with_its_cause():
    cause = OSError("cable")
    last = TransientFault(SourceUnreachableError("gone"))
    last.__cause__ = cause
    with pytest.raises(SourceUnreachableError, match="gone") as caught:
        Retrier(RetrySettings(attempts=2, sleep=lambda _: None)).call(Flaky(TransientFault(LIMITED), last), ignore)
    assert caught.value.__cause__ is cause


@settings(deadline=None)
@given(
    attempts=st.integers(1, 20),
    first=st.floats(0.01, 100),
    longest=st.floats(0.01, 100),
    total=st.floats(0, 500),
    jitter=st.floats(0, 1),
    asked=st.lists(st.none() | st.floats(0, 1e6), min_size=30, max_size=30),
)
def test_attempts_and_waiting_are_bounded_and_the_source_gets_the_wait_it_asks_for(
    attempts, first, longest, total, jitter, asked
):
    waits, seen = [], []
    settings = RetrySettings(
        attempts=attempts, first_wait=first, longest_wait=longest, total_wait=total, jitter=jitter, sleep=waits.append
    )
    action = Flaky(*[TransientFault(LIMITED, wait) for wait in asked])
    with pytest.raises(RateLimitedError):
        Retrier(settings).call(action, lambda wait, error: seen.append(wait))
    assert action.calls == len(waits) + 1 <= attempts
    assert sum(waits) <= total * (1 + 1e-9)
    assert all(wait >= (least or 0) for wait, least in zip(waits, asked, strict=False))
    assert seen == waits


def test_retry_after_in_seconds_as_a_date_and_as_nonsense():
    assert parse_retry_after("0") == 0 and parse_retry_after("-5") == 0 and parse_retry_after("1.5") == 1.5
    soon = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert 3500 < parse_retry_after(soon) <= 3600
    assert parse_retry_after(soon.replace("GMT", "-0000")) == pytest.approx(parse_retry_after(soon), abs=5)
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    for nonsense in (None, "", "soon", "nan", "inf", "Wed, 99 Oct"):
        assert parse_retry_after(nonsense) is None


@pytest.mark.parametrize("field, value", [("attempts", 0), ("first_wait", 0), ("jitter", 1.5), ("total_wait", -1)])
def test_settings_out_of_range_name_the_field(field, value):
    with pytest.raises(SettingsError, match=f"RetrySettings.{field}"):
        RetrySettings(**{field: value})
