"""What routes depend on: the running services, the scope that a key needs, and the parameters of lists.

A route declares its scope by the type of its `services` parameter (or among its `dependencies`):

    @router.post("/retrain")
    def start_retrain(services: TrainAccess, ...): ...

The middleware enforces it before the request is routed, so that nothing of the request is read without permission.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.routing import APIRoute

from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.keys import Scope
from portfolio_sdpo.serving import ChampionDecisions

from .auth import KeyCache
from .config import ServeSettings
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
        services: Services = request.app.state.services
        return services


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


def list_access(router: APIRouter, prefix: str) -> Iterator[DeclaredAccess]:
    """The scope of every route of a router; a route that declares none needs the scope `read`.

    Routers within routers are refused, since the scopes of their routes could be overlooked.
    """
    for route in router.routes:
        if not isinstance(route, APIRoute):
            raise TypeError(f"{type(route).__name__} below {prefix} declares no scope: list its router in ROUTERS.")
        scopes = [each.call.scope for each in route.dependant.dependencies if isinstance(each.call, Access)]
        scope = scopes[0] if scopes else "read"
        yield DeclaredAccess(prefix + route.path, frozenset(route.methods or ()), scope)
