"""What the service offers: a list at `/` and a page at `/docs`, made from the OpenAPI document without any script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from portfolio_sdpo import __version__

from ..deps import PublicAccess, ScopedRoute

STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d7dce0, #39424a); --soft: light-dark(#f3f5f7, #1f262d); }
body { background: light-dark(#ffffff, #12161a); color: light-dark(#1d2329, #e7ebee); }
a { color: light-dark(#0062a3, #7fc4f2); }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
section { border-top: 1px solid var(--line); margin-top: 1.5rem; }
h2 { font: 600 1.05rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
pre { background: var(--soft); padding: .75rem; overflow-x: auto; border-radius: 4px; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .2rem 1rem .2rem 0; vertical-align: top; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; frame-ancestors 'none'; style-src 'sha256-{_STYLE_HASH}'"

router = APIRouter(route_class=ScopedRoute, tags=["documentation"])


@router.get("/")
async def list_routes(request: Request, _: PublicAccess) -> dict[str, Any]:
    """What there is, and where it is described."""
    return {
        "name": "portfolio_sdpo",
        "version": __version__,
        "documentation": "/docs",
        "openapi": request.app.openapi_url,
        "routes": [f"{method.upper()} {path}" for path, method, _operation in _list_operations(request.app.openapi())],
    }


@router.get("/docs", response_class=HTMLResponse)
async def show_documentation(request: Request, _: PublicAccess) -> HTMLResponse:
    """The OpenAPI document as a page."""
    return HTMLResponse(render_page(request.app.openapi()), headers={"content-security-policy": POLICY})


def render_page(document: Mapping[str, Any]) -> str:
    """Every operation of an OpenAPI document with its scope, parameters, an example of its body and its answers."""
    parts = [
        _render_operation(path, method, operation, document) for path, method, operation in _list_operations(document)
    ]
    about = document["info"]
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(about['title'])} {escape(about['version'])}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{escape(about['title'])} {escape(about['version'])}</h1><p>{escape(about.get('summary', ''))} "
        "An API key goes into <code>Authorization: Bearer KEY</code> or <code>X-API-Key: KEY</code>; without any key, "
        "only this machine is answered. Errors are <code>application/problem+json</code> and say what to do next. For "
        "tools: <a href='/api/v1/openapi.json'>openapi.json</a>.</p>"
        f"{''.join(parts)}</main></body></html>"
    )


def _list_operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation


def _render_operation(path: str, method: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    scopes = {scope for each in operation.get("security", ()) for names in each.values() for scope in names}
    needed = f"Needs a key with the scope {', '.join(sorted(scopes))}." if scopes else "Needs no key."
    found = [
        f"<section id='{escape(operation.get('operationId', path), quote=True)}'>"
        f"<h2>{method.upper()} {escape(path)}</h2>{_render_text(operation.get('description', ''))}<p>{needed}</p>"
    ]
    if parameters := operation.get("parameters"):
        rows = [(each["name"], each.get("description", "")) for each in parameters]
        found.append(_render_table("Parameters", rows))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        example = _find_example(content, document)
        if example is not None:
            text = example if isinstance(example, str) else json.dumps(example, indent=2)
            found.append(f"<p>A body as <code>{escape(kind)}</code>:</p><pre tabindex='0'>{escape(text)}</pre>")
    answers = [(code, each.get("description", "")) for code, each in sorted(operation["responses"].items())]
    return "".join([*found, _render_table("Answers", answers), "</section>"])


def _find_example(content: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    """That of a body, or of the schema that it refers to."""
    if "example" in content:
        return content["example"]
    for each in content.get("examples", {}).values():
        return each.get("value")
    schema = content.get("schema", {})
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return next(iter(schema.get("examples", ())), schema.get("example"))


def _render_table(title: str, rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th scope='row'>{escape(name)}</th><td>{_mark(text)}</td></tr>" for name, text in rows)
    return f"<h3>{title}</h3><table>{cells}</table>"


def _render_text(text: str) -> str:
    return "".join(f"<p>{_mark(' '.join(paragraph.split()))}</p>" for paragraph in text.split("\n\n") if paragraph)


def _mark(text: str) -> str:
    """Escaped, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
