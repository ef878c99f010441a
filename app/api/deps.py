"""What routes depend on: the running services, the scope that a key needs, and the parameters of lists.

A route declares its scope by the type of its `services` parameter (or among its `dependencies`):

    @router.post("/retrain")
    def start_retrain(services: TrainAccess, ...): ...

The middleware finds out which scopes the caller has. The scope is enforced by the route itself: before anything of the
body is read where the router makes its routes by `ScopedRoute`, and in any case before the endpoint is called, since
the endpoint gets its services from the dependency that declares the scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.keys import Scope
from portfolio_sdpo.serving import ChampionDecisions

from .auth import KeyCache
from .config import ServeSettings
from .errors import ProblemError
from .services.auditor import Auditor
from .services.bodies import BodyBudget
from .services.decisions import DecisionQueue
from .services.metrics import Metrics
from .services.posted_prices import PostedDecisions
from .services.publisher import Publisher
from .services.retrain_jobs import RetrainJobs
from .services.shadow import Shadow


class Services:
    """The parts of the running service, shared by all requests."""

    def __init__(self, settings: ServeSettings, registry: Registry) -> None:
        self.settings = settings
        self.registry = registry
        self.metrics = Metrics()
        self.keys = KeyCache(registry, settings)
        self.publisher = Publisher(registry, settings)
        self.auditor = Auditor(registry, strict=settings.audit == "strict")
        self.retraining = RetrainJobs(registry, settings.registry)
        self.queue = DecisionQueue()
        # Apart from the publisher's, which would wait for decisions on accounts.
        self.accounts = ChampionDecisions(registry)
        self.shadow = Shadow(registry, settings, self.auditor)
        self.posted = PostedDecisions(registry, settings)
        self.bodies = BodyBudget(settings.max_bodies, settings.max_body)


@dataclass(frozen=True)
class Access:
    """A dependency that gives a route the services, and declares the scope that a key needs for the route."""

    scope: Scope | None
    """None: no key is needed."""

    async def __call__(self, request: Request) -> Services:
        self.check(request.scope)
        services: Services = request.app.state.services
        return services

    def check(self, connection: Mapping[str, Any]) -> None:
        """Raise a `ProblemError` unless the caller has this scope."""
        if self.scope is not None and self.scope not in connection.get("granted", ()):
            raise ProblemError("scope-needed", f"This request needs a key with the scope {self.scope}: ask for one.")


class ScopedRoute(APIRoute):
    """A route that checks the scope which it declares before it reads anything of the request."""

    async def handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Called with the requests that this route answers, however they were matched to it."""
        if scope["method"] in (self.methods or ()):  # others are answered by 405
            Access(find_scope(self.dependant)).check(scope)
        await super().handle(scope, receive, send)


PublicAccess = Annotated[Services, Depends(Access(None))]
ReadAccess = Annotated[Services, Depends(Access("read"))]
TrainAccess = Annotated[Services, Depends(Access("train"))]

Limit = Annotated[int, Query(ge=1, le=1000, description="The largest number of entries to return.")]
Offset = Annotated[int, Query(ge=0, le=2**31, description="How many entries to skip.")]


@dataclass(frozen=True)
class DeclaredAccess:
    """One route with the scope that it declares."""

    path: str
    methods: frozenset[str]
    scope: Scope | None


def list_access(routes: Sequence[BaseRoute]) -> Iterator[DeclaredAccess]:
    """The scope of every route of an application, those of routers within routers included."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield DeclaredAccess(route.path, frozenset(route.methods or ()), find_scope(route.dependant))
        elif hasattr(
            route, "effective_route_contexts"
        ):  # an included router, whose routes older versions of FastAPI copy
            for each in route.effective_route_contexts():
                if not isinstance(each.original_route, APIRoute):
                    raise TypeError(f"{type(each.original_route).__name__} below a router declares no scope.")
                yield DeclaredAccess(each.path, frozenset(each.methods), find_scope(each.dependant))
        else:
            raise TypeError(f"{type(route).__name__} declares no scope: add routes by a router's methods.")


def find_scope(dependant: Dependant) -> Scope | None:
    """The narrowest scope that a route declares; one that declares none needs the scope `read`."""
    declared = set(_list_scopes(dependant))
    if "train" in declared:
        return "train"
    return None if declared == {None} else "read"


def _list_scopes(dependant: Dependant) -> Iterator[Scope | None]:
    """All scopes that are declared, by dependencies of dependencies as well."""
    for each in dependant.dependencies:
        if isinstance(each.call, Access):
            yield each.call.scope
        yield from _list_scopes(each)
