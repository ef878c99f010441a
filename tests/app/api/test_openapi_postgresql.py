"""The service driven by its own OpenAPI document once more, on a registry in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from portfolio_sdpo.registry import Registry

from ...registry.conftest import Server, postgres
from .test_openapi import test_no_request_that_the_document_allows_or_forbids_breaks_the_service as test_the_document

__all__ = ["postgres", "test_the_document"]


@pytest.fixture
def registry(home: Path, postgres: Server) -> Iterator[Registry]:
    name = f"s{uuid4().hex}"
    postgres.sql(f"CREATE SCHEMA {name}")
    with Registry.open(f"{postgres.url('postgres')}&options=-csearch_path%3D{name}", timeout=5.0) as opened:
        yield opened
        assert opened.champion() is not None  # it was this one that was served
