"""The `yfinance` package, wrapped so that Yahoo's own answer decides, and not yfinance's interpretation of it.

yfinance takes a rate limit, a cut-off answer and an unknown ticker alike for "possibly delisted", keeps bad answers in
a cache, and shares one session, its caches on disk and its settings with the whole process. Here the session
looks at every answer of the chart endpoint before yfinance does, and the shared state is ours for one call only.
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pandas as pd
import yfinance
from curl_cffi import CurlOpt, requests
from yfinance import cache
from yfinance.data import SingletonMeta, YfData
from yfinance.exceptions import YFPricesMissingError, YFRateLimitError

from portfolio_sdpo.errors import (
    NoDataInRangeError,
    RateLimitedError,
    SourceError,
    SourceUnreachableError,
    UnknownTickerError,
)
from portfolio_sdpo.prices.sources._client_helpers import ignore_deprecations, is_loopback, override_attributes
from portfolio_sdpo.prices.sources.retry import TransientFault, parse_retry_after

CHART = "/v8/finance/chart/"
COOKIE = "https://fc.yahoo.com"
TOO_MANY_REQUESTS = (429, 999)  # 999 is Yahoo's own
REFUSED = (401, 403)

_shared_state = threading.RLock()


class Session(requests.Session):
    """yfinance's kind of session, pointed at another server if asked to, that raises our errors for bad charts."""

    def __init__(self, base_url: str | None, timeout: float) -> None:
        local = base_url is not None and is_loopback(base_url)
        super().__init__(impersonate="chrome", curl_options={CurlOpt.NOPROXY: "*"} if local else None)
        self._base = urlsplit(base_url) if base_url else None
        self._timeout = timeout
        self._refused = False
        self._cookie_page: Any = None
        self.meta: dict[str, Any] = {}
        """What the last chart states about its ticker."""

    def request(self, method: Any, url: str, **options: Any) -> Any:  # type: ignore[override]
        """As the base class's; yfinance's own time limits, of up to 30 s, give way to ours."""
        options["timeout"] = self._timeout
        if url == COOKIE:  # yfinance asks before every request for a cookie that it may not keep on disk
            self._cookie_page = self._cookie_page or super().request(method, self._rewritten(url), **options)
            return self._cookie_page
        try:
            response = super().request(method, self._rewritten(url), **options)
        except requests.exceptions.RequestException as error:
            if CHART not in url:
                raise  # yfinance continues without cookie and crumb
            raise TransientFault(make_unreachable_error("there was no complete answer")) from error
        if CHART in response.url:  # and not a page on which to accept cookies: yfinance does that
            self._check(response)
        return response

    def _rewritten(self, url: str) -> str:
        if self._base is None:
            return url
        parts = urlsplit(url)
        path = self._base.path.rstrip("/") + parts.path
        return urlunsplit((self._base.scheme, self._base.netloc, path, parts.query, parts.fragment))

    def _check(self, response: Any) -> None:
        status = response.status_code
        wait = parse_retry_after(response.headers.get("Retry-After"))
        if status in TOO_MANY_REQUESTS:
            raise TransientFault(make_rate_limit_error(wait), wait)
        if status >= 500:
            raise TransientFault(make_unreachable_error(f"the server has a fault, HTTP status {status}"), wait)
        if status in REFUSED and not self._refused:
            self._refused, self._cookie_page = True, None
            return  # yfinance makes a second attempt with a cookie of another kind
        self._refused = False
        if status in REFUSED:
            raise TransientFault(make_unreachable_error(f"it refused the anonymous session, HTTP status {status}"))
        try:
            chart = response.json()["chart"]
            error, result = chart["error"], chart["result"]
            self.meta = result[0]["meta"] if result else {}
        except (ValueError, LookupError, TypeError) as fault:
            if "Too Many Requests" in response.text[:1000]:
                raise TransientFault(make_rate_limit_error(wait), wait) from fault
            raise TransientFault(make_unreachable_error("the answer is cut off or is not Yahoo's")) from fault
        if error:
            raise _parse_yahoo_error(str(error.get("code")), str(error.get("description")))


def _parse_yahoo_error(code: str, description: str) -> SourceError:
    """The error that Yahoo's own explanation stands for; the source puts the ticker into the sentence."""
    if code == "Not Found":
        return UnknownTickerError(description)
    if "Data doesn't exist" in description:
        return NoDataInRangeError(description)
    return SourceError(f"Yahoo refused the request ({description}): check tickers and range.")


def make_rate_limit_error(wait: float | None) -> RateLimitedError:
    """Says how long Yahoo wants us to wait, if it does."""
    asks = "" if wait is None else f" and asks to wait {wait:.0f} s"
    return RateLimitedError(
        f"Yahoo limits requests from this address{asks}: run the same command again later, or with fewer tickers."
    )


def make_unreachable_error(what: str) -> SourceUnreachableError:
    """Says what was wrong with the answer."""
    return SourceUnreachableError(
        f"Yahoo could not be reached ({what}): check the connection and run the same command again."
    )


class Client:
    """One user of yfinance: its own session, cookie and crumb, nothing on disk, nothing left behind."""

    def __init__(self, base_url: str | None, timeout: float) -> None:
        self.session = Session(base_url, timeout)
        self._instances: dict[Any, Any] = {}

    def close(self) -> None:
        """Close the connections and drop the answers that yfinance keeps."""
        self.session.close()
        YfData.cache_get.cache_clear()

    def history(self, ticker: str, start: date | None, end: date | None) -> pd.DataFrame:
        """Daily bars, unadjusted, with `Adj Close`, dividends and splits, of at least the days from `start` to `end`.

        The index is in the exchange's time zone. A `TransientFault` or a `SourceError` is raised if there are none.
        """
        # One request per ticker instead of two: yfinance would first ask for the exchange's time zone, only to know
        # when the range starts and ends there. A range that is a day longer on both sides does not depend on it.
        period: dict[str, Any] = {}
        if start is not None:
            period["start"] = start - timedelta(days=1)
            if period["start"] == date(1970, 1, 1):
                period["start"] -= timedelta(days=1)  # yfinance takes the time stamp 0 for "no start"
        else:
            period["period"] = "max"
        if end is not None:
            period["end"] = end + timedelta(days=2)  # excluded by yfinance
        with ExitStack() as stack:
            stack.enter_context(_shared_state)
            stack.enter_context(ignore_deprecations())
            stack.enter_context(override_attributes(SingletonMeta, _instances=self._instances))
            stack.enter_context(override_attributes(cache._TzCacheManager, _tz_cache=cache._TzCacheDummy()))
            stack.enter_context(override_attributes(cache._CookieCacheManager, _Cookie_cache=cache._CookieCacheDummy()))
            stack.enter_context(override_attributes(cache._ISINCacheManager, _isin_cache=cache._ISINCacheDummy()))
            stack.enter_context(override_attributes(yfinance.config.debug, hide_exceptions=False))
            # What yfinance logs as an error ("possibly delisted") comes to us as an exception.
            stack.enter_context(override_attributes(logging.getLogger("yfinance"), disabled=True))
            try:
                client = yfinance.Ticker(ticker, session=self.session)
                client._tz = "UTC"
                return client.history(interval="1d", auto_adjust=False, actions=True, keepna=True, **period)
            except (TransientFault, SourceError):
                raise
            except YFRateLimitError:
                raise TransientFault(make_rate_limit_error(None)) from None
            except YFPricesMissingError as error:
                raise NoDataInRangeError(str(error)) from error
            except Exception as error:  # whatever its parser stumbles over is an answer that is not Yahoo's
                raise TransientFault(
                    make_unreachable_error(f"the answer cannot be read, {type(error).__name__}")
                ) from error
