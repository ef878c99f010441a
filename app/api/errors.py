"""Errors as problem+json (RFC 9457): one format for every error that the service reports."""

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
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from portfolio_sdpo.errors import (
    ChampionChangedError,
    ModelCorruptError,
    NotRegisteredError,
    PortfolioSdpoError,
    RegistryError,
    RegistryReplacedError,
    RegistryUnavailableError,
)
from portfolio_sdpo.serving.answer import PROBLEM_PREFIX

MEDIA_TYPE = "application/problem+json"
REPLACED = "The registry has vanished or was replaced: the service's log gives the reason."

log = logging.getLogger("portfolio_sdpo.api")

PROBLEMS: dict[str, tuple[int, str]] = {
    "no-champion": (503, "No champion"),
    "champion-withdrawn": (503, "The champion was withdrawn"),
    "stale-data": (503, "Prices are too old"),
    "suspicious-prices": (503, "The last prices are suspicious"),
    "limit-not-met": (503, "No weights meet the limit"),
    "model-corrupt": (503, "The champion is damaged"),
    "data-unavailable": (503, "Prices cannot be read"),
    "cannot-decide": (503, "The champion cannot decide"),
    "starting": (503, "Not ready yet"),
    "unchecked": (503, "The answer could not be confirmed"),
    "audit-unavailable": (503, "The audit log cannot be written"),
    "registry-unavailable": (503, "The registry cannot be used"),
    "registry-replaced": (503, "The registry was replaced"),
    "limit-not-met-on-prices": (409, "No weights meet the limit"),
    "retrain-running": (409, "A retrain is running"),
    "champion-changed": (409, "The champion has changed"),
    "invalid": (422, "The request is not valid"),
    "bad-prices": (422, "The prices cannot be used"),
    "bad-account": (422, "The account cannot be used"),
    "key-needed": (401, "An API key is needed"),
    "scope-needed": (403, "The key's scope is insufficient"),
    "host-refused": (403, "The host is not allowed"),
    "several-hosts": (400, "The host is ambiguous"),
    "not-found": (404, "Not found"),
    "no-shadow": (404, "No model is in shadow"),
    "body-too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "Unsupported media type"),
    "too-many-requests": (429, "Too many requests"),
    "busy": (429, "The service is busy"),
    "too-slow": (503, "The decision took too long"),
    "record-damaged": (500, "A record is damaged"),
    "internal": (500, "Internal error"),
}
"""Status and title by the last part of the problem type."""


class FieldError(BaseModel):
    """An error in one field."""

    field: str = Field(examples=["body.dates"])
    message: str = Field(examples=["Field required"])


class Problem(BaseModel):
    """An error."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": PROBLEM_PREFIX + "stale-data",
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
    """Raised wherever the response has to be a problem."""

    def __init__(self, kind: str, detail: str, *, headers: Mapping[str, str] | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.extra = extra

    @property
    def status(self) -> int:
        """The HTTP status."""
        return PROBLEMS[self.kind][0]

    def respond(self, request_id: str | None) -> Response:
        """The response."""
        status, title = PROBLEMS[self.kind]
        return _response(PROBLEM_PREFIX + self.kind, status, title, self.detail, request_id, self.headers, self.extra)


def to_problem(error: PortfolioSdpoError) -> ProblemError:
    """The problem that reports an error of the package."""
    match error:
        case NotRegisteredError():
            kind = "not-found"
        case ChampionChangedError():
            kind = "champion-changed"
        case ModelCorruptError():
            kind = "model-corrupt"
        case RegistryReplacedError():
            log.error("%s", error)
            return ProblemError("registry-replaced", REPLACED, headers={"Retry-After": "5"})
        case RegistryUnavailableError() | RegistryError():
            # Its sentence names files and hosts, which belong in the log and not in a response.
            log.error("%s", error)
            detail = "The registry cannot be used now: the service's log gives the reason; try again later."
            return ProblemError("registry-unavailable", detail, headers={"Retry-After": "5"})
        case _:
            kind = "invalid"
    return ProblemError(kind, str(error))


def add_error_handlers(app: FastAPI) -> None:
    """Report every error of the application as a problem."""

    @app.exception_handler(ProblemError)
    async def report_problem(request: Request, error: ProblemError) -> Response:
        return error.respond(_get_request_id(request))

    @app.exception_handler(PortfolioSdpoError)
    async def report_package_error(request: Request, error: PortfolioSdpoError) -> Response:
        return to_problem(error).respond(_get_request_id(request))

    @app.exception_handler(RequestValidationError)
    async def report_invalid_request(request: Request, error: RequestValidationError) -> Response:
        return to_validation_problem(error.errors()).respond(_get_request_id(request))

    @app.exception_handler(HTTPException)
    async def report_http_error(request: Request, error: HTTPException) -> Response:
        if error.status_code == 413:
            close = {"Connection": "close"}  # the rest of the body is not read
            too_large = ProblemError("body-too-large", "The body is larger than allowed: send less.", headers=close)
            return too_large.respond(_get_request_id(request))
        if error.status_code == 429:
            close = {"Retry-After": "2", "Connection": "close"}
            busy = ProblemError("busy", "Too many bodies are being received: try again later.", headers=close)
            return busy.respond(_get_request_id(request))
        title = HTTPStatus(error.status_code).phrase
        details = {
            400: "The body cannot be read: send JSON in UTF-8.",
            404: "Nothing is at this address: the OpenAPI document lists all addresses.",
            405: "This address supports other methods: the header Allow lists them.",
        }
        detail = details.get(error.status_code, str(error.detail))
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        if error.status_code == 405:
            headers["allow"] = ", ".join(_list_methods(app, request.url.path)) or headers.get("allow", "GET")
        return _response("about:blank", error.status_code, title, detail, _get_request_id(request), headers, {})

    @app.exception_handler(ClientDisconnect)
    async def note_departure(request: Request, error: ClientDisconnect) -> Response:
        log.info("The client of request %s left before it was answered.", _get_request_id(request))
        return Response(status_code=499)  # which nobody receives

    @app.exception_handler(Exception)
    async def report_internal_error(request: Request, error: Exception) -> Response:
        detail = "The service made an error: its log has the details under the request's id."
        return ProblemError("internal", detail).respond(_get_request_id(request))


def to_validation_problem(errors: Any) -> ProblemError:
    """The problem for pydantic's errors, without the values that they are about."""
    fields = [
        {"field": ".".join(str(part) for part in each["loc"]), "message": str(each["msg"])} for each in errors[:20]
    ]
    first = fields[0] if fields else {"field": "body", "message": "not valid"}
    return ProblemError("invalid", f"{first['field']}: {first['message'].rstrip('.')}.", errors=fields)


def document_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The entries of an OpenAPI document for statuses that are reported as problems."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def _response(
    kind: str,
    status: int,
    title: str,
    detail: str,
    request_id: str | None,
    headers: Mapping[str, str],
    extra: Mapping[str, Any],
) -> Response:
    content = {"type": kind, "title": title, "status": status, "detail": detail, "request_id": request_id, **extra}
    return Response(json.dumps(content).encode(), status, dict(headers), MEDIA_TYPE)


def _list_methods(app: FastAPI, path: str) -> list[str]:
    """The methods of an address; FastAPI's own header names those of one route only."""
    parts = path.split("/")
    found: set[str] = set()
    for template, methods in app.openapi()["paths"].items():
        wanted = template.split("/")
        if len(wanted) == len(parts) and all(a == b or a.startswith("{") for a, b in zip(wanted, parts, strict=True)):
            found.update(method.upper() for method in methods)
    return sorted(found)


def _get_request_id(request: Request) -> str | None:
    found: str | None = request.scope.get("request_id")
    return found
