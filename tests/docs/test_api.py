"""The API reference is what the sources say today."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def make_api():
    spec = importlib.util.spec_from_file_location("make_api", ROOT / "docs" / "make_api.py")
    module = sys.modules["make_api"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_up_to_date(make_api):
    there = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md")}
    stale = sorted(name for name, content in make_api.pages().items() if there.get(name) != content)
    assert stale == [], f"run `{make_api.COMMAND}`"
    assert there.keys() == make_api.pages().keys()


def test_every_room_with_public_names_has_a_page(make_api):
    modules = {module for modules in make_api.ROOMS.values() for module in modules}
    for path in (ROOT / "portfolio_sdpo").rglob("__init__.py"):
        name = ".".join(path.parent.relative_to(ROOT / "portfolio_sdpo").parts)
        if "\n__all__ = " in path.read_text(encoding="utf-8"):
            assert name in modules, name


def test_what_is_public_says_what_it_is(make_api):
    silent = [
        f"{module}.{named.name}"
        for modules in make_api.ROOMS.values()
        for module in modules
        for named in make_api.public(module)
        if isinstance(named.node, make_api.Definition) and not make_api.ast.get_docstring(named.node)
    ]
    assert silent == []
