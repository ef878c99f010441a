"""The service driven by its own OpenAPI document: no server error, and every answer as the document says."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 6
"""For each operation."""


def drive(cases: Any) -> int:
    """Send what the strategy makes, check every answer, and say how many there were."""
    tried = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def run(case: Any) -> None:
        nonlocal tried
        tried += 1
        case.call_and_validate(checks=CHECKS)

    run()
    return tried


def test_no_request_that_the_document_allows_or_forbids_breaks_the_service(
    serve: Callable[..., Any], champion: Callable[..., str]
):
    champion()
    running = serve(max_body=100_000)
    running.settle()
    # Training is not what is tested here.
    running.services.retraining.start = lambda _: running.services.registry.create_job("retrain")
    base = str(running.http.base_url).rstrip("/")
    schema = schemathesis.openapi.from_url(f"{base}/openapi.json")
    tried: dict[str, int] = {}
    for operation in [found.ok() for found in schema.get_all_operations()]:
        for mode in schemathesis.GenerationMode:
            # Without parameters there is nothing to get wrong.
            with contextlib.suppress(Unsatisfiable):
                tried[f"{operation.label} {mode.value}"] = drive(operation.as_strategy(generation_mode=mode))
    assert len({label.rpartition(" ")[0] for label in tried}) == 15
    assert sum(tried.values()) >= 100
    running.settle()


def test_openapi_says_what_is_needed(serve: Callable[..., Any]):
    document = serve().http.get("/openapi.json").json()
    text = json.dumps(document)
    assert "HTTPValidationError" not in text
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert ("security" in operation) == (path not in ("/api/v1/health", "/api/v1/ready"))
            assert operation["description"]
            assert {"401", "429"} <= operation["responses"].keys()
    assert document["paths"]["/api/v1/retrain"]["post"]["security"][0] == {"bearer": ["train"]}
    for name in ("Weights", "PricesBody", "OrderRequest", "Problem", "JobState"):
        assert document["components"]["schemas"][name]["examples"]
