"""What every request passes before the application sees it, and every answer on its way out.

Request id, host, key and scope, rate, size of the body, security headers, counters. Plain ASGI, since it is on the way
of every request: some microseconds.
"""

from __future__ import annotations

import ipaddress
import math
import re
import secrets
import time
from collections.abc import Iterable
from functools import lru_cache
from itertools import count

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portfolio_sdpo.errors import PortfolioSdpoError
from portfolio_sdpo.registry import ApiKey

from .buckets import Buckets
from .door import Door
from .live import Live
from .metrics import Metrics
from .problems import ProblemError, problem_of
from .settings import ServeSettings

OPEN = frozenset({"/health", "/ready", "/api/v1/health", "/api/v1/ready", "/api/v1/openapi.json"})
"""What needs no key."""
TRAIN = frozenset({("POST", "/api/v1/retrain")})
"""What needs a key that may train."""
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
]
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
WANTED = frozenset(
    {b"authorization", b"x-api-key", b"x-request-id", b"content-length", b"host", b"origin", b"sec-fetch-site"}
)


class TooLarge(HTTPException):
    """Raised while a body is read; FastAPI lets this kind through."""

    def __init__(self) -> None:
        super().__init__(413)


class Gate:
    """The application behind its gate."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, door: Door, live: Live, metrics: Metrics) -> None:
        self.app = app
        self.settings = settings
        self.door = door
        self.live = live
        self.metrics = metrics
        self.buckets = Buckets(settings.rate, settings.burst)
        self._prefix = secrets.token_hex(4)
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = {name: value for name, value in scope["headers"] if name in WANTED}
        request_id = self._request_id(headers.get(b"x-request-id"))
        scope["request_id"] = request_id
        status = 500

        async def leave(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _dressed(message.get("headers", ()), request_id)
            await send(message)

        body = _Body(receive, self.settings.max_body)
        try:
            await self._admit(scope, headers)
            await self.app(scope, body.receive if _has_body(scope["method"]) else receive, leave)
        except ProblemError as problem:
            await problem.respond(request_id)(scope, receive, leave)
        except PortfolioSdpoError as error:
            await problem_of(error).respond(request_id)(scope, receive, leave)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.count(scope["method"], route, status, time.perf_counter() - began)

    def _request_id(self, given: bytes | None) -> str:
        if given is not None:
            text = given.decode("latin-1")
            if REQUEST_ID.fullmatch(text):
                return text
        return f"{self._prefix}-{next(self._numbers):x}"

    async def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path, method = scope["path"], scope["method"]
        client = scope.get("client")
        caller = client[0] if client else "unknown"
        if path in OPEN:
            self._pay(caller)
        elif not self.door.required:
            # Without keys only this machine may ask, and not a web page whose name leads here either.
            if not _is_here(headers.get(b"host", b"")) or _from_elsewhere(headers):
                raise ProblemError("host-refused", "Without API keys only localhost is answered: make a key.")
            self._pay(caller)
        else:
            key = await self._key(_secret(headers), caller)
            # By their beginnings: a router may take what follows, such as a line break, for nothing.
            if any(method == verb and path.startswith(start) for verb, start in TRAIN) and not key.allows("train"):
                raise ProblemError("scope-needed", "This needs a key with the scope train: ask for one.")
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > self.settings.max_body):
            raise too_large(self.settings.max_body)

    async def _key(self, secret: str | None, caller: str) -> ApiKey:
        if secret is None:
            self._pay(caller)
            raise _key_needed("Send an API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`.")
        key = self.door.known(secret) if self.live.fresh else None
        if key is None:
            self._pay(caller)  # before the registry is asked: guessing is limited, too
            key = await self.door.check(secret)
            if key is None:
                raise _key_needed("This API key is not known, or was revoked: ask for another.")
        self._pay(key.id)
        return key

    def _pay(self, caller: str) -> None:
        wait = self.buckets.take(caller, time.monotonic())
        if wait:
            raise ProblemError(
                "too-many-requests",
                f"More than {self.settings.rate:g} requests a second: wait as long as Retry-After says.",
                headers={"Retry-After": str(math.ceil(wait))},
            )


class _Body:
    """A body that ends with an error when it grows too large, whether or not its length was said."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._left = most

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise TooLarge
        return message


def too_large(most: int) -> ProblemError:
    """What is said of a body that is too large."""
    # What follows of the body is not read, so the connection cannot be used again.
    headers = {"Connection": "close"}
    return ProblemError("body-too-large", f"The body may have {most} bytes: send less.", headers=headers)


def _has_body(method: str) -> bool:
    return method not in ("GET", "HEAD")


def _dressed(headers: Iterable[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    dressed = [*headers, *HEADERS, (b"x-request-id", request_id.encode())]
    if not any(name == b"cache-control" for name, _ in dressed):
        dressed.append((b"cache-control", b"no-store"))
    return dressed


def _secret(headers: dict[bytes, bytes]) -> str | None:
    bearer = headers.get(b"authorization", b"").decode("latin-1")
    scheme, _, token = bearer.partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    given = headers.get(b"x-api-key")
    return None if given is None else given.decode("latin-1")


def _from_elsewhere(headers: dict[bytes, bytes]) -> bool:
    """Whether a browser says that a page of another site asks."""
    origin = headers.get(b"origin")
    return headers.get(b"sec-fetch-site") == b"cross-site" or (
        origin is not None and not _is_here(origin.partition(b"://")[2])
    )


@lru_cache(maxsize=256)
def _is_here(header: bytes) -> bool:
    """Whether a Host header names this machine by an address of its own or as localhost."""
    host = header.decode("latin-1")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        return name.lower() == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _key_needed(detail: str) -> ProblemError:
    return ProblemError("key-needed", detail, headers={"WWW-Authenticate": "Bearer"})
