"""`/` and `/docs`: everything that there is, readable without a foreign host, a script or a key."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any


def test_the_root_lists_what_there_is(serve: Callable[..., Any]):
    running = serve()
    told = running.http.get(str(running.http.base_url).removesuffix("/api/v1/") + "/").json()
    assert (told["documentation"], told["openapi"]) == ("/docs", "/api/v1/openapi.json")
    document = running.http.get("/openapi.json").json()
    known = [f"{method.upper()} {path}" for path, each in document["paths"].items() for method in each]
    assert told["routes"] == known and "POST /api/v1/orders" in known


def test_the_page_has_every_route_and_asks_no_other_host(serve: Callable[..., Any]):
    running = serve()
    answer = running.http.get(str(running.http.base_url).removesuffix("/api/v1/") + "/docs")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    (policy,) = answer.headers.get_list("content-security-policy")
    assert "default-src 'none'" in policy and "script-src" not in policy
    page = answer.text
    for path, each in running.http.get("/openapi.json").json()["paths"].items():
        for method in each:
            assert f"<h2>{method.upper()} {path}</h2>" in page
    assert "Needs a key with the scope train." in page and "Needs no key." in page
    assert "&quot;account&quot;: 100000" in page  # the example of an order
    assert "<script" not in page and set(re.findall(r"(?:href|src)='([^']*)'", page)) == {"/api/v1/openapi.json"}
