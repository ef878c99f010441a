"""Errors as problem+json (RFC 9457): one shape for whatever goes wrong."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from portfolio_sdpo.errors import (
    ChampionChangedError,
    ModelCorruptError,
    NotRegisteredError,
    PortfolioSdpoError,
    RegistryError,
    RegistryUnavailableError,
)

from .schemas import PREFIX

MEDIA_TYPE = "application/problem+json"

log = logging.getLogger("portfolio_sdpo.api")

KINDS: dict[str, tuple[int, str]] = {
    "no-champion": (503, "No champion"),
    "stale-data": (503, "Prices are too old"),
    "limit-not-met": (503, "The shield cannot meet the limit"),
    "model-corrupt": (503, "The champion is damaged"),
    "data-unavailable": (503, "Prices cannot be read"),
    "cannot-decide": (503, "The champion cannot decide"),
    "starting": (503, "Not ready yet"),
    "unchecked": (503, "Not confirmed for too long"),
    "audit-unavailable": (503, "The audit cannot be written"),
    "registry-unavailable": (503, "The registry cannot be used"),
    "limit-not-met-on-prices": (409, "The shield cannot meet the limit"),
    "retrain-running": (409, "A retrain is running"),
    "champion-changed": (409, "The champion has changed"),
    "invalid": (422, "The request is not valid"),
    "bad-prices": (422, "The prices cannot be used"),
    "key-needed": (401, "An API key is needed"),
    "scope-needed": (403, "The key does not reach that far"),
    "host-refused": (403, "The host is not this service's"),
    "not-found": (404, "There is no such thing"),
    "body-too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The body is of another kind"),
    "too-many-requests": (429, "Too many requests"),
    "busy": (429, "Too much work at once"),
    "record-damaged": (500, "A record is damaged"),
    "internal": (500, "A mistake in the service"),
}
"""Status and title by the last part of the type."""


class FieldError(BaseModel):
    """What is wrong with one field."""

    field: str = Field(examples=["body.dates"])
    message: str = Field(examples=["Field required"])


class Problem(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": PREFIX + "stale-data",
                    "title": "Prices are too old",
                    "status": 503,
                    "detail": "The last prices are of 2021-10-14, 1270 sessions ago, and 2 are allowed: update them.",
                    "request_id": "9f3c51a2-1f",
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
    """One sentence: what is wrong and what to do next."""
    request_id: str | None = None
    errors: list[FieldError] | None = None


class ProblemError(Exception):
    """Raised wherever an answer has to be a problem."""

    def __init__(self, kind: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more

    @property
    def status(self) -> int:
        """Of HTTP."""
        return KINDS[self.kind][0]

    def respond(self, request_id: str | None) -> Response:
        """The answer."""
        status, title = KINDS[self.kind]
        return _response(PREFIX + self.kind, status, title, self.detail, request_id, self.headers, self.more)


def problem_of(error: PortfolioSdpoError) -> ProblemError:
    """What an error of ours is called here."""
    match error:
        case NotRegisteredError():
            kind = "not-found"
        case ChampionChangedError():
            kind = "champion-changed"
        case ModelCorruptError():
            kind = "model-corrupt"
        case RegistryUnavailableError() | RegistryError():
            # Its sentence names files and hosts, which are for the log and not for whoever asks.
            log.error("%s", error)
            detail = "The registry cannot be read or written now: the service's log says why; try again later."
            return ProblemError("registry-unavailable", detail, headers={"Retry-After": "5"})
        case _:
            kind = "invalid"
    return ProblemError(kind, str(error))


def install(app: FastAPI) -> None:
    """Make every error of the application a problem."""

    @app.exception_handler(ProblemError)
    async def problem(request: Request, error: ProblemError) -> Response:
        return error.respond(_request_id(request))

    @app.exception_handler(PortfolioSdpoError)
    async def ours(request: Request, error: PortfolioSdpoError) -> Response:
        return problem_of(error).respond(_request_id(request))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return validation_problem(error.errors()).respond(_request_id(request))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 413:
            close = {"Connection": "close"}  # the rest of the body is not read
            too_large = ProblemError("body-too-large", "The body is larger than allowed: send less.", headers=close)
            return too_large.respond(_request_id(request))
        title = HTTPStatus(error.status_code).phrase
        details = {
            400: "The body cannot be read: send JSON in UTF-8.",
            404: "There is nothing at this address: the OpenAPI document names all that there is.",
            405: "This address takes other methods: the header Allow names them.",
        }
        detail = details.get(error.status_code, str(error.detail))
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        if error.status_code == 405:
            headers["allow"] = ", ".join(_methods(app, request.url.path)) or headers.get("allow", "GET")
        return _response("about:blank", error.status_code, title, detail, _request_id(request), headers, {})

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        detail = "Something went wrong that should not: the service's log has the request's id."
        return ProblemError("internal", detail).respond(_request_id(request))


def validation_problem(complaints: Any) -> ProblemError:
    """Pydantic's complaints, without the values that they are about."""
    errors = [
        {"field": ".".join(str(part) for part in each["loc"]), "message": str(each["msg"])} for each in complaints[:20]
    ]
    first = errors[0] if errors else {"field": "body", "message": "not valid"}
    return ProblemError("invalid", f"{first['field']}: {first['message'].rstrip('.')}.", errors=errors)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: these statuses are problems."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def _response(
    kind: str,
    status: int,
    title: str,
    detail: str,
    request_id: str | None,
    headers: Mapping[str, str],
    more: Mapping[str, Any],
) -> Response:
    content = {"type": kind, "title": title, "status": status, "detail": detail, "request_id": request_id, **more}
    return Response(json.dumps(content).encode(), status, dict(headers), MEDIA_TYPE)


def _methods(app: FastAPI, path: str) -> list[str]:
    """What an address takes; FastAPI's own header names one of its routes only."""
    parts = path.split("/")
    found: set[str] = set()
    for template, methods in app.openapi()["paths"].items():
        wanted = template.split("/")
        if len(wanted) == len(parts) and all(a == b or a.startswith("{") for a, b in zip(wanted, parts, strict=True)):
            found.update(method.upper() for method in methods)
    return sorted(found)


def _request_id(request: Request) -> str | None:
    found: str | None = request.scope.get("request_id")
    return found
