"""Every page under axe-core, the checker of WCAG: no serious fault, on a laptop in light and on a phone in dark.

`axe.min.js.gz` is that of the npm package axe-core 4.10.3, unchanged but for the compression (Mozilla Public License
2.0, https://github.com/dequelabs/axe-core).
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portfolio_sdpo.registry import Registry

from ..api.helpers import serving
from .conftest import at_home

AXE = gzip.decompress((Path(__file__).parent / "axe.min.js.gz").read_bytes()).decode()
PAGES = ("live", "backtest", "compare", "run", "data", "training")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def find_faults(page: Any) -> list[str]:
    """What axe-core calls serious or critical: rule, element, and what is wrong with it."""
    page.evaluate(AXE)
    found = page.evaluate(
        "rules => axe.run(document, {runOnly: {type: 'tag', values: rules}, resultTypes: ['violations']})", RULES
    )
    return [
        f"{each['id']} ({each['impact']}) {node['target']}: {node['failureSummary'].splitlines()[-1].strip()}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


@pytest.mark.parametrize(("width", "scheme"), [("laptop", "light"), ("phone", "dark")])
@pytest.mark.parametrize("name", PAGES)
def test_no_serious_fault(visit: Callable, filled: str, name: str, width: str, scheme: str):
    visitor = visit(width, scheme)
    page = visitor.open(filled, name)
    # What is not drawn yet cannot be at fault.
    page.wait_for_function("() => !document.querySelector('#root [data-testid=stSkeleton]')")
    visitor.keep(f"axe-{name}-{width}-{scheme}")
    assert find_faults(page) == []


def test_the_documentation_of_the_service(visit: Callable, filled_home: Path):
    """Its style is the one that its policy allows, nothing is wider than a phone, and axe-core finds no fault."""
    with at_home(filled_home), Registry.open() as registry, serving(registry) as service:
        visitor = visit("phone", "dark")
        page = visitor.page
        page.goto(str(service.http.base_url).removesuffix("/api/v1/") + "/docs")
        assert page.evaluate("() => getComputedStyle(document.querySelector('h2')).fontWeight") == "600"
        wide, window = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
        page.screenshot(path=visitor.screenshots / "docs-phone-dark.png")
        assert wide <= window and find_faults(page) == []
        visitor.faults = [fault for fault in visitor.faults if "favicon.ico" not in fault]


def test_a_fault_would_be_found(visit: Callable, filled: str):
    page = visit().open(filled, "data")
    page.evaluate("() => document.querySelector('h1').insertAdjacentHTML('afterend', '<img src=\"data:,\">')")
    assert any(fault.startswith("image-alt (critical)") for fault in find_faults(page))
