"""The scope that a route declares: it holds at every address, within routers and with placeholders as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount

from portfolio_sdpo.registry import Registry
from portfolio_sdpo_app.api import main
from portfolio_sdpo_app.api.config import ServeSettings
from portfolio_sdpo_app.api.deps import Access, ReadAccess, ScopedRoute, TrainAccess, list_access
from portfolio_sdpo_app.api.main import ROUTERS, create_app, list_all_access
from portfolio_sdpo_app.api.schemas import RetrainBody

from .helpers import problem

TRAINING = (
    ("POST", "/models/20261113-5f2c/promote"),
    ("POST", "/models/x/promote%0A"),
    ("PUT", "/files/a/b/c"),
    ("DELETE", "/inner/deep/7"),
    ("DELETE", "/inner/plain/7"),
    ("DELETE", "/inner/guarded/7"),
)


@pytest.fixture
def more_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service with routes as they may come one day: placeholders, routers within routers, no `ScopedRoute`."""
    outer, inner = APIRouter(route_class=ScopedRoute), APIRouter(prefix="/deep", route_class=ScopedRoute)
    plain, guarded = APIRouter(prefix="/plain"), APIRouter(prefix="/guarded")

    @outer.post("/models/{model_id}/promote")
    async def promote(services: TrainAccess, model_id: str, body: RetrainBody) -> str:
        """With a body, which is not read without permission."""
        return model_id

    @outer.put("/files/{path:path}")
    async def put(services: TrainAccess, path: str) -> str:
        """With a path that has parts."""
        return path

    @inner.delete("/{number}")
    async def delete(services: TrainAccess, number: int) -> int:
        """Two routers deep."""
        return number

    @plain.delete("/{number}")
    async def delete_plainly(services: TrainAccess, number: int) -> int:
        """A router that makes routes of its own kind."""
        return number

    @guarded.delete("/{number}")
    async def delete_guarded(number: int) -> int:
        """Guarded by the router that includes it."""
        return number

    @plain.get("/{number}")
    async def forgotten(number: int) -> int:
        """Declares nothing, so it needs a key."""
        return number

    @plain.post("/health")
    async def disguised(number: int) -> int:
        """Ends like an address that is public."""
        return number

    outer.include_router(inner, prefix="/inner")
    outer.include_router(plain, prefix="/inner")
    outer.include_router(guarded, prefix="/inner", dependencies=[Depends(Access("train"))])
    monkeypatch.setattr(main, "ROUTERS", (*ROUTERS, outer))


@pytest.mark.usefixtures("more_routes")
def test_scopes_hold_within_routers_and_with_placeholders(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry
):
    champion()
    _, read = registry.create_key("reader", "read")
    _, train = registry.create_key("trainer", "train")
    running = serve()

    def ask(method: str, path: str, secret: str | None) -> httpx.Response:
        headers = {} if secret is None else {"X-API-Key": secret}
        answer: httpx.Response = running.http.request(method, path, headers=headers, json={"preset": "lstm"})
        return answer

    for method, path in TRAINING:
        problem(ask(method, path, None), 401, "key-needed")
        problem(ask(method, path, read), 403, "scope-needed")
        assert ask(method, path, train).status_code == 200
    problem(ask("GET", "/inner/plain/7", None), 401, "key-needed")
    problem(ask("POST", "/inner/plain/health", None), 401, "key-needed")
    assert ask("GET", "/inner/plain/7", read).json() == 7
    # Without permission nothing of a body is read: not even whether it is one.
    answer = running.http.post("/models/x/promote", headers={"X-API-Key": read}, content=b"{")
    problem(answer, 403, "scope-needed")
    problem(ask("GET", "/retrain", read), 405, "about:blank")


@pytest.mark.usefixtures("more_routes")
def test_all_routes_are_listed(registry: Registry):
    app: Any = create_app(ServeSettings(), registry)
    found = {(each.path, method): each.scope for each in list_all_access(app.app) for method in each.methods}
    for path in ("/models/{model_id}/promote", "/files/{path:path}", "/inner/deep/{number}", "/inner/guarded/{number}"):
        assert "train" in {scope for (named, _), scope in found.items() if named == f"/api/v1{path}"}, path
    assert found["/api/v1/inner/plain/{number}", "GET"] == "read"
    document = app.app.openapi()
    for path in ("/models/{model_id}/promote", "/inner/deep/{number}"):
        for operation in document["paths"][f"/api/v1{path}"].values():
            assert operation["security"][0] == {"bearer": ["train"]}


def test_every_route_declares_its_scope(registry: Registry):
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, ScopedRoute)
            assert sum(isinstance(each.call, Access) for each in route.dependant.dependencies) == 1, route.path
    app: Any = create_app(ServeSettings(), registry)
    found = {(each.path, each.scope) for each in list_all_access(app.app)}
    assert {path for path, scope in found if scope is None} == {
        "/", "/docs", "/health", "/ready", "/api/v1/health", "/api/v1/ready"
    }  # fmt: skip
    assert {path for path, scope in found if scope == "train"} == {"/api/v1/retrain"}
    assert len([path for path, scope in found if scope == "read"]) == 12


def test_an_address_is_public_only_if_all_its_methods_are(registry: Registry, monkeypatch: pytest.MonkeyPatch):
    router = APIRouter(route_class=ScopedRoute)

    @router.post("/health")
    async def heal(services: ReadAccess) -> None:
        """At the address of a public route."""

    monkeypatch.setattr(main, "ROUTERS", (*ROUTERS, router))
    app: Any = create_app(ServeSettings(), registry)
    assert "/api/v1/ready" in app.public and "/api/v1/health" not in app.public


def test_a_route_that_declares_no_scope_needs_a_key():
    app = FastAPI(openapi_url=None)
    app.add_api_route("/forgotten", lambda: None)
    assert [(each.path, each.scope) for each in list_access(app.routes)] == [("/forgotten", "read")]


def test_what_cannot_declare_a_scope_is_refused():
    inner, outer = APIRouter(), APIRouter()
    inner.add_api_route("/inner", lambda: None)
    assert isinstance(inner.routes[0], APIRoute)
    outer.routes.append(Mount("/within", routes=list(inner.routes)))
    app = FastAPI(openapi_url=None)
    app.include_router(outer)
    with pytest.raises(TypeError, match="declares no scope"):
        list(list_access(app.routes))
