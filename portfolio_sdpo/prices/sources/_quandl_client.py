"""The `quandl` package, held so that its global settings are ours for one call only.

`quandl.ApiConfig` (address, key, retries) and the way its `Connection` makes sessions belong to the whole process and
are put back after each call. quandl's own retries are off: they do not show whether waiting helps, know no
upper limit on the total wait, and sleep in a way that no test can shorten. Its sessions have no time limit; ours do.
"""

from __future__ import annotations

import re
import threading
import warnings
from contextlib import ExitStack
from typing import Any

import pandas as pd
import quandl
import requests
from quandl.connection import Connection
from quandl.errors.quandl_error import (
    AuthenticationError,
    ForbiddenError,
    InvalidRequestError,
    LimitExceededError,
    NotFoundError,
    QuandlError,
)

from portfolio_sdpo.errors import (
    KeyRefusedError,
    RateLimitedError,
    SourceError,
    SourceUnreachableError,
    UnknownTickerError,
)
from portfolio_sdpo.prices.sources._client_helpers import ignore_deprecations, is_loopback, override_attributes
from portfolio_sdpo.prices.sources.retry import TransientFault, parse_retry_after

KEY_HEADER = "x-api-token"
DAILY_LIMITS = ("QELx01", "QELx02", "QELx03")

_shared_state = threading.RLock()


class Session(requests.Session):
    """A session with a time limit that raises our errors for answers that are worth another attempt."""

    def __init__(self, api_base: str, timeout: float) -> None:
        super().__init__()
        self.trust_env = not is_loopback(api_base)  # no proxy on the way to this machine
        self._timeout = timeout

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        """As the base class's."""
        options["timeout"] = self._timeout
        try:
            response = super().request(*arguments, **options)
        except requests.RequestException as error:
            raise TransientFault(
                make_unreachable_error(f"there was no complete answer, {type(error).__name__}")
            ) from error
        status = response.status_code
        wait = parse_retry_after(response.headers.get("Retry-After"))
        if status == 429:
            if _error_code(response) in DAILY_LIMITS:  # waiting a minute is of no use
                raise RateLimitedError(
                    "Nasdaq Data Link's limit of calls per day is used up: run the same command again tomorrow, or "
                    "with the key of an account that may make more calls."
                )
            raise TransientFault(make_rate_limit_error(wait), wait)
        if status >= 500:
            raise TransientFault(make_unreachable_error(f"the server has a fault, HTTP status {status}"), wait)
        if status < 300 and not isinstance(_json(response), dict):
            raise TransientFault(make_unreachable_error("the answer is cut off or is not Nasdaq Data Link's"))
        return response

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Keep the key from a server that this one redirects to."""
        super().rebuild_auth(prepared_request, response)
        if self.should_strip_auth(response.request.url or "", prepared_request.url or ""):
            prepared_request.headers.pop(KEY_HEADER, None)


def _json(response: requests.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _error_code(response: requests.Response) -> str | None:
    body = _json(response)
    error = body.get("quandl_error") if isinstance(body, dict) else None
    return error.get("code") if isinstance(error, dict) else None


def make_rate_limit_error(wait: float | None) -> RateLimitedError:
    """Says how long the source wants us to wait, if it does."""
    asks = "" if wait is None else f" and asks to wait {wait:.0f} s"
    return RateLimitedError(
        f"Nasdaq Data Link limits the number of requests{asks}: run the same command again later, with fewer tickers, "
        "or with a key."
    )


def make_unreachable_error(what: str) -> SourceUnreachableError:
    """Says what was wrong with the answer."""
    return SourceUnreachableError(
        f"Nasdaq Data Link could not be reached ({what}): check the connection and the address, and run the same "
        "command again."
    )


class Client:
    """One user of quandl: its own address and key, nothing left behind."""

    def __init__(self, api_base: str, key: str | None, timeout: float) -> None:
        self._api_base = api_base.rstrip("/")
        self._key = key
        self._session = Session(api_base, timeout)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def dataset(self, code: str, **params: Any) -> pd.DataFrame:
        """A time series, for example `WIKI/AAPL`: columns by date."""
        return self._call(lambda: quandl.Dataset(code).data(params=params).to_pandas(), code)

    def table(self, code: str, *, paginate: bool = True, **filters: Any) -> pd.DataFrame:
        """The rows of a table, for example `WIKI/PRICES`, for which the filters hold."""
        return self._call(lambda: quandl.get_table(code, paginate=paginate, **filters), code)

    def _call(self, action: Any, code: str) -> pd.DataFrame:
        # Raised without the original: quandl writes the key into one of its messages.
        with ExitStack() as stack:
            stack.enter_context(_shared_state)
            stack.enter_context(override_attributes(quandl.ApiConfig, api_base=self._api_base, api_key=self._key))
            stack.enter_context(override_attributes(Connection, get_session=lambda: self._session))
            stack.enter_context(ignore_deprecations())
            warnings.filterwarnings("ignore", message="To request more pages")
            try:
                return action()
            except (TransientFault, SourceError):
                raise
            except NotFoundError:
                raise UnknownTickerError(code) from None
            except (AuthenticationError, ForbiddenError) as error:
                raise self._refused(error) from None
            except LimitExceededError:
                raise SourceError(
                    f"Nasdaq Data Link does not give so many rows of {code} at once: ask for a shorter range."
                ) from None
            except InvalidRequestError as error:
                raise SourceError(f"Nasdaq Data Link refused the request for {code} ({self._quote(error)}).") from None
            except QuandlError as error:
                if error.http_status == 401:
                    raise self._refused(error) from None
                raise make_unreachable_error(f"HTTP status {error.http_status} and no explanation") from None
            except Exception as error:  # whatever its parser stumbles over is an answer that is not the source's
                what = f"the answer cannot be read, {type(error).__name__}"
                raise TransientFault(make_unreachable_error(what)) from None

    def _refused(self, error: QuandlError) -> KeyRefusedError:
        if self._key is None:
            return KeyRefusedError(
                f"Nasdaq Data Link wants a key for this ({self._quote(error)}): set the variable "
                "PORTFOLIO_SDPO_QUANDL_KEY to yours."
            )
        return KeyRefusedError(
            f"Nasdaq Data Link refused the key ({self._quote(error)}): check the variable PORTFOLIO_SDPO_QUANDL_KEY "
            "and what the account may read."
        )

    def _quote(self, error: QuandlError) -> str:
        """The source's own words without the key, should it repeat it."""
        message = str(error.quandl_message).strip().rstrip(".")
        if self._key:
            message = message.replace(self._key, "***")
        return re.sub(r"\s+", " ", message)
