"""What every request passes before it is routed, and every response on its way out.

Request id, key and scope, rate limit, size of the body, security headers, counters. This is plain ASGI and costs some
microseconds, since every request pays for it.
"""

from __future__ import annotations

import logging
import math
import re
import secrets
import time
from collections.abc import Iterable
from itertools import count

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from portfolio_sdpo.common.hosts import FORWARDED, is_local_request
from portfolio_sdpo.errors import PortfolioSdpoError, RegistryError
from portfolio_sdpo.registry import ApiKey
from portfolio_sdpo.registry.keys import SCOPES

from .auth import read_secret
from .deps import DeclaredAccess, Services
from .errors import ProblemError, to_problem
from .logs import ACCESS
from .logs import request_id as current_request
from .services.bodies import BodyBudget
from .services.rate_limiter import RateLimiter

SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
]
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
READ_HEADERS = FORWARDED | {
    b"authorization",
    b"x-api-key",
    b"x-request-id",
    b"content-length",
    b"host",
    b"origin",
    b"sec-fetch-site",
}
"""The request headers that are looked at here."""

log = logging.getLogger("portfolio_sdpo.api")
access_log = logging.getLogger(ACCESS)


class BodyTooLarge(HTTPException):
    """Raised while a body is read; FastAPI lets exceptions of this type through."""

    def __init__(self) -> None:
        super().__init__(413)


class RequestMiddleware:
    """The application with everything that applies to all requests."""

    def __init__(self, app: FastAPI, services: Services, access: Iterable[DeclaredAccess]) -> None:
        self.app = app
        self.settings = services.settings
        self.keys = services.keys
        self.metrics = services.metrics
        self.bodies = services.bodies
        self.limiter = RateLimiter(services.settings.rate, services.settings.burst)
        declared = list(access)
        guarded = {each.path for each in declared if each.scope is not None}
        self.public = frozenset({each.path for each in declared if each.scope is None} - guarded | {app.openapi_url})
        """Addresses without placeholders at which no method needs a key."""
        self._prefix = secrets.token_hex(4)
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = {name: value for name, value in scope["headers"] if name in READ_HEADERS}
        request_id = self._choose_request_id(headers.get(b"x-request-id"))
        scope["request_id"] = request_id
        current_request.set(request_id)
        status = 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _add_headers(message.get("headers", ()), request_id)
            await send(message)

        body = None
        try:
            await self._admit(scope, headers)
            if scope["method"] not in ("GET", "HEAD"):
                body = _BoundedBody(receive, self.settings.max_body, self.bodies, scope["caller"])
            await self.app(scope, receive if body is None else body.receive, send_with_headers)
        except ProblemError as problem:
            await problem.respond(request_id)(scope, receive, send_with_headers)
        except PortfolioSdpoError as error:
            await to_problem(error).respond(request_id)(scope, receive, send_with_headers)
        except Exception:
            # Starlette has answered it already.
            log.exception("Request %s failed by an error of the service.", request_id)
        finally:
            if body is not None:
                body.release()
            route, seconds = getattr(scope.get("route"), "path", "other"), time.perf_counter() - began
            self.metrics.count(scope["method"], route, status, seconds)
            if self.settings.access_log:
                _log_access(scope, route, status, seconds)

    def _choose_request_id(self, header: bytes | None) -> str:
        if header is not None:
            text = header.decode("latin-1")
            if REQUEST_ID.fullmatch(text):
                return text
        return f"{self._prefix}-{next(self._numbers):x}"

    async def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Check key, rate and announced length, and note the scopes that the caller has for `deps.Access`.

        A `ProblemError` says what is wrong.
        """
        scope["granted"] = ()
        client = scope.get("client")
        caller = scope["caller"] = client[0] if client else "unknown"
        if [name for name, _ in scope["headers"]].count(b"host") > 1:
            raise ProblemError("several-hosts", "The request names several hosts: send one Host header.")
        if scope["path"] in self.public:
            scope["known"] = await self._is_known(scope, headers, caller)
        elif not self.keys.required:
            if not _is_local(scope, headers):
                raise ProblemError(
                    "host-refused",
                    "Without API keys only requests of this machine to localhost are answered, and none that a proxy "
                    "or a web page passes on: create a key with `portfolio-sdpo keys create NAME`.",
                )
            self._count_request(caller)
            scope["granted"] = SCOPES
        else:
            key = await self._authenticate(read_secret(headers), caller)
            scope["caller"] = key.id
            scope["granted"] = tuple(each for each in SCOPES if key.allows(each))
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > self.settings.max_body):
            raise _body_too_large(self.settings.max_body)

    async def _is_known(self, scope: Scope, headers: dict[bytes, bytes], caller: str) -> bool:
        """Whether a caller of a public address may be told more: with a key, or where none is needed."""
        self._count_request(caller)
        if not self.keys.required:
            return _is_local(scope, headers)
        secret = read_secret(headers)
        try:
            return secret is not None and (self.keys.find(secret) or await self.keys.check(secret)) is not None
        except RegistryError as error:
            log.error("%s", error)
            return False  # the process is alive all the same, and `/health` has to say so

    async def _authenticate(self, secret: str | None, caller: str) -> ApiKey:
        if secret is None:
            self._count_request(caller)
            raise _key_needed("Send an API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`.")
        key = self.keys.find(secret)
        if key is None:
            self._count_request(caller)  # before the registry is asked, so that guessing is limited, too
            key = await self.keys.check(secret)
            if key is None:
                raise _key_needed("This API key is unknown, revoked or expired: ask for another.")
        self._count_request(key.id)
        return key

    def _count_request(self, caller: str) -> None:
        wait = self.limiter.take(caller, time.monotonic())
        if wait:
            raise ProblemError(
                "too-many-requests",
                f"The limit is {self.settings.rate:g} requests per second: wait for the seconds in Retry-After.",
                headers={"Retry-After": str(math.ceil(wait))},
            )


class _BoundedBody:
    """A body that raises an error when it grows too large, whether or not its length was announced."""

    def __init__(self, receive: Receive, max_bytes: int, budget: BodyBudget, caller: str) -> None:
        self._receive = receive
        self._left = max_bytes
        self._budget = budget
        self._caller = caller
        self._taken = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self._left -= size
            if self._left < 0:
                raise BodyTooLarge
            self._taken += size
            self._budget.take(self._caller, size)
        return message

    def release(self) -> None:
        """Give the bytes back when the request has ended."""
        self._budget.give_back(self._caller, self._taken)


def _is_local(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether a request comes from this machine itself.

    Without further settings nginx names itself in no header and this machine as Host, but it asks in HTTP/1.0, which
    clients have not used for decades.
    """
    return scope.get("http_version") != "1.0" and is_local_request(headers)


def _log_access(scope: Scope, route: str, status: int, seconds: float) -> None:
    """A line about a request; without its query and its headers, which may hold what is secret."""
    told = {"method": scope["method"], "route": route, "status": status, "seconds": round(seconds, 6)}
    told["caller"] = scope.get("caller", "unknown")
    access_log.info("%(method)s %(route)s %(status)d %(seconds).4f s %(caller)s", told, extra={"access": told})


def _body_too_large(max_bytes: int) -> ProblemError:
    # The rest of the body is not read, so the connection cannot be used again.
    headers = {"Connection": "close"}
    return ProblemError("body-too-large", f"The body may have at most {max_bytes} bytes: send less.", headers=headers)


def _add_headers(headers: Iterable[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    complete = [*headers, (b"x-request-id", request_id.encode())]
    # The page of the documentation has a policy of its own, since it has a style.
    given = {name for name, _ in complete}
    complete += [header for header in SECURITY_HEADERS if header[0] not in given]
    if not any(name == b"cache-control" for name, _ in complete):
        complete.append((b"cache-control", b"no-store"))
    return complete


def _key_needed(detail: str) -> ProblemError:
    return ProblemError("key-needed", detail, headers={"WWW-Authenticate": "Bearer"})
