"""The application: routes behind the gate, with an OpenAPI document that says what they need."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import run_sync
from fastapi import FastAPI
from starlette.types import ASGIApp

from portfolio_sdpo import __version__
from portfolio_sdpo.registry import Registry

from . import routes_audit, routes_backtests, routes_jobs, routes_models, routes_state, routes_weights
from .gate import OPEN, TRAIN, Gate
from .problems import Problem, install, responses
from .service import Service
from .settings import ServeSettings

ROOT = "/api/v1"
METHODS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace"})


def create_app(settings: ServeSettings, registry: Registry) -> ASGIApp:
    """The service on a registry, as an ASGI application."""
    service = Service(settings, registry)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await run_sync(service.start)
        yield
        await run_sync(service.close)

    app = FastAPI(
        title="portfolio_sdpo",
        version=__version__,
        summary="Weights of an allocation policy that respects a risk limit.",
        openapi_url=f"{ROOT}/openapi.json",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    install(app)
    parts = (routes_weights, routes_models, routes_backtests, routes_jobs, routes_audit, routes_state)
    for part in parts:
        app.include_router(part.router, prefix=ROOT, responses=responses(401, 403, 429))
    # Where orchestrators look by habit.
    app.include_router(routes_state.router, include_in_schema=False)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return Gate(app, settings, service.door, service.live, service.metrics)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with what it cannot know: the gate, and schemas that are named by hand."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        schemas = document["components"]["schemas"]
        for schema in (Problem, *routes_weights.SCHEMAS):
            made = schema.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= made.pop("$defs", {})
            schemas[schema.__name__] = made
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if method not in METHODS or path in OPEN:
                    continue
                scope = "train" if (method.upper(), path) in TRAIN else "read"
                operation["security"] = [{"bearer": [scope]}, {"header": [scope]}]
        app.openapi_schema = document
    return app.openapi_schema
