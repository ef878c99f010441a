"""What every request and every WebSocket passes before Streamlit sees it: who asks, from which page, and how much.

On loopback only this machine is answered, as by the REST service without keys: the Host is one of this machine's names,
and no web page of another site and no proxy passes the request on. A page of a foreign site could otherwise make its
own name resolve to 127.0.0.1 and read everything. Anywhere else a visitor logs in, with an API key of the registry.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie

from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from portfolio_sdpo.common.hosts import get_name, get_origin_host, is_local_request
from portfolio_sdpo.errors import RegistryError

from .login import COOKIE, LIFETIME, Login, render_login

LOGIN, LOGOUT = "/login", "/logout"
HEALTH = "/_stcore/health"
"""Says only that the process is alive; containers and proxies ask for it."""
UPLOAD = "/_stcore/upload_file"
MAX_UPLOADS = 4
"""Files that may be on their way at a time: each is held in memory as a whole."""
MAX_FORM = 4_000
"""Bytes of the login form."""
REFUSED = (
    "The dashboard answers this machine only, by the name localhost or 127.0.0.1, and no proxy or foreign web page. "
    "For others start it with --host, or name the proxy's host in STREAMLIT_BROWSER_SERVER_ADDRESS.\n"
)
FOREIGN = "The request was sent by a web page of another site, and is refused.\n"
BUSY = "Too many files are being uploaded: try again in a moment.\n"


class Gate:
    """An ASGI application with these checks before it."""

    def __init__(self, app: ASGIApp, login: Login | None, proxy: str | None = None) -> None:
        """login: None on loopback. proxy: the name by which a proxy with a login of its own passes requests on."""
        self.app = app
        self.login = login
        self.proxy = proxy
        self._uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        several = [name for name, _ in scope["headers"]].count(b"host") > 1
        refusal = FOREIGN if several else self._check_origin(headers)
        if refusal is not None:
            await _refuse(PlainTextResponse(refusal, 403), scope, receive, send)
        elif self.login is not None and scope["path"] != HEALTH:
            await self._admit_visitor(self.login, scope, receive, send)
        else:
            await self._pass(scope, receive, send)

    def _check_origin(self, headers: dict[bytes, bytes]) -> str | None:
        """Why the request comes from where it may not; None if it may."""
        host, origin = headers.get(b"host", b""), get_origin_host(headers)
        if self.login is None and not self._is_proxy(host) and not is_local_request(headers):
            return REFUSED
        if headers.get(b"sec-fetch-site") == b"cross-site" and headers.get(b"sec-fetch-mode") != b"navigate":
            return FOREIGN
        return None if origin is None or origin.lower() == host.lower() else FOREIGN

    def _is_proxy(self, host: bytes) -> bool:
        return self.proxy is not None and get_name(host) == self.proxy.lower()

    async def _admit_visitor(self, login: Login, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on who has logged in; show everybody else the form."""
        cookie = _read_cookie(Headers(scope=scope).get("cookie", ""))
        if scope["type"] == "http" and scope["path"] == LOGIN:
            response = await _log_in(login, Request(scope, receive))
        elif not await run_sync(login.is_known, cookie):
            page = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
            response = RedirectResponse(LOGIN, 303) if page else PlainTextResponse("Log in first.\n", 401)
        elif scope["type"] == "http" and scope["path"] == LOGOUT:
            login.end(cookie)
            response = RedirectResponse(LOGIN, 303)
            response.delete_cookie(COOKIE)
        else:
            await self._pass(scope, receive, send)
            return
        await _refuse(response, scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "PUT" or not scope["path"].startswith(UPLOAD):
            await self.app(scope, receive, send)
            return
        if self._uploads >= MAX_UPLOADS:
            await PlainTextResponse(BUSY, 429)(scope, receive, send)
            return
        self._uploads += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._uploads -= 1


async def _log_in(login: Login, request: Request) -> Response:
    """The form, or what becomes of it."""
    if request.method != "POST":
        return HTMLResponse(render_login(), headers={"Cache-Control": "no-store"})
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            return PlainTextResponse("The form is too large.\n", 413)
    try:
        cookie = await run_sync(login.begin, body)
    except RegistryError as error:
        return HTMLResponse(render_login(str(error)), 503)
    if cookie is None:
        problem = "This key is unknown, revoked or expired, or its scope is not train."
        return HTMLResponse(render_login(problem), 403)
    response = RedirectResponse("/", 303)
    secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(COOKIE, cookie, LIFETIME, httponly=True, samesite="lax", secure=secure)
    return response


def _read_cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


async def _refuse(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer instead of the application; a WebSocket is closed before it opens."""
    if scope["type"] == "http":
        await response(scope, receive, send)
    else:
        await receive()  # the request to open it
        await send({"type": "websocket.close", "code": 1008})
