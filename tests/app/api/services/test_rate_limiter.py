"""No caller gets more than its rate, and memory is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from portfolio_sdpo_app.api.services.rate_limiter import MAX_CALLERS, RateLimiter


@given(
    st.lists(st.floats(min_value=0.0, max_value=5.0), max_size=60),
    st.floats(min_value=0.1, max_value=100.0),
    st.integers(min_value=1, max_value=20),
)
def test_a_bucket_never_gives_more_than_its_rate(pauses: list[float], rate: float, burst: int):
    limiter, now, given_out = RateLimiter(rate, burst), 0.0, 0
    for pause in pauses:
        now += pause
        wait = limiter.take("caller", now)
        given_out += not wait
        assert given_out <= burst + now * rate + 1e-6
        if wait:
            later = RateLimiter(rate, burst)
            later._buckets.update(limiter._buckets)
            assert later.take("caller", now + wait + 1e-9) == 0.0


def test_buckets_are_bounded():
    limiter = RateLimiter(1.0, 1)
    for caller in range(MAX_CALLERS + 10):
        limiter.take(str(caller), 0.0)
    assert len(limiter._buckets) == MAX_CALLERS
