"""The application: routes, their errors, the middleware, and an OpenAPI document that names the scopes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import run_sync
from fastapi import FastAPI
from starlette.types import ASGIApp

from portfolio_sdpo import __version__
from portfolio_sdpo.errors import RegistryError
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.retrain_lock import hold_retrain_lock

from .config import ServeSettings
from .deps import DeclaredAccess, Services, list_access
from .errors import Problem, add_error_handlers, document_problems
from .middleware import RequestMiddleware
from .routes import audit, backtests, documentation, models, orders, retraining, status, weights

ROOT = "/api/v1"
ROUTERS = (
    weights.router,
    orders.router,
    models.router,
    backtests.router,
    retraining.router,
    audit.router,
    status.router,
)

log = logging.getLogger("portfolio_sdpo.api")


def create_app(settings: ServeSettings, registry: Registry) -> ASGIApp:
    """The service on a registry, as an ASGI application.

    uvicorn.run(create_app(ServeSettings(), Registry.open()), port=8000)
    """
    services = Services(settings, registry)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        build_routes(app)
        await run_sync(start_services, services)
        yield
        await run_sync(stop_services, services)

    app = FastAPI(
        title="portfolio_sdpo",
        version=__version__,
        summary="Weights of an allocation policy that respects a risk limit.",
        openapi_url=f"{ROOT}/openapi.json",
        # Swagger's and ReDoc's pages would load scripts from the internet; `documentation` has one without any.
        docs_url=None,
        redoc_url=None,
        # A redirect would name the host of the request, and by http where a proxy terminates TLS.
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.services = services
    add_error_handlers(app)
    for router in ROUTERS:
        app.include_router(router, prefix=ROOT, responses=document_problems(401, 403, 429))
    # Also without the prefix, where orchestrators look by default.
    app.include_router(status.router, include_in_schema=False)
    app.include_router(documentation.router, include_in_schema=False)
    access = list_all_access(app)
    app.openapi = lambda: _make_openapi(app, access)  # type: ignore[method-assign]
    return RequestMiddleware(app, services, access)


def build_routes(app: FastAPI) -> None:
    """Let FastAPI build what it would build for the first request.

    It silences warnings meanwhile, which must not happen while other threads do the same.
    """
    scope = {"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": [], "path_params": {}}
    for route in app.router.routes:
        route.matches(scope)


def list_all_access(app: FastAPI) -> list[DeclaredAccess]:
    """Every route of the application with the scope that it declares; the OpenAPI document is public."""
    return list(list_access([route for route in app.routes if getattr(route, "path", None) != app.openapi_url]))


def start_services(services: Services) -> None:
    """Start to refresh the answer, to write the audit log and to accept jobs."""
    # The answer carries this warning; catching it there would change the filters of other threads.
    warnings.filterwarnings("ignore", message="waits in cash")
    try:
        # While a retrain is running, open jobs may belong to another service.
        with hold_retrain_lock(services.registry.database):
            services.registry.abandon_jobs("The service ended before the job was done.")
    except RegistryError as error:
        log.error("%s", error)
    services.keys.start()
    services.auditor.start()
    services.publisher.start()
    services.shadow.start()


def stop_services(services: Services) -> None:
    """Write the audit rows that are still queued, and end."""
    services.publisher.close()
    services.shadow.close()
    services.keys.close()
    services.retraining.close()
    services.queue.close()
    lost = services.auditor.close()
    if lost:
        log.critical("%d rows of the audit log could not be written and are lost.", lost)


def _make_openapi(app: FastAPI, access: list[DeclaredAccess]) -> dict[str, Any]:
    """FastAPI's document, with scopes, and with the schemas that routes only mention by name."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        schemas = document["components"]["schemas"]
        for schema in (Problem, *weights.SCHEMAS, *orders.SCHEMAS):
            described = schema.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= described.pop("$defs", {})
            schemas[schema.__name__] = described
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        for each in access:
            for method in each.methods:
                operation = document["paths"].get(each.path, {}).get(method.lower())
                if operation is not None and each.scope is not None:
                    operation["security"] = [{"bearer": [each.scope]}, {"header": [each.scope]}]
        app.openapi_schema = document
    return app.openapi_schema
