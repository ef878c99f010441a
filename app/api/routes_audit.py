"""What was served, as it was noted."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

from fastapi import APIRouter, Query, Request

from portfolio_sdpo.registry import AuditEntry

from .problems import responses
from .schemas import AuditEntryOut, AuditPage
from .service import service_of

router = APIRouter(tags=["audit"])

Text = Annotated[str | None, Query(max_length=80)]


@router.get("/audit", responses=responses(422, 503))
def list_audit(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="Rows of a page.")] = 100,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="Only rows with a smaller number.")] = None,
    model_id: Text = None,
    request_id: Text = None,
) -> AuditPage:
    """Answers with weights, the newest first. In batched mode the newest appear a moment after they were given."""
    registry = service_of(request).registry
    rows = registry.audit(limit=limit + 1, before=before, model_id=model_id, request_id=request_id)
    page = rows[:limit]
    return AuditPage(
        rows=[
            AuditEntryOut(
                seq=row.seq,
                previous_hash=row.previous_hash,
                hash=row.hash,
                **{field.name: getattr(row.entry, field.name) for field in fields(AuditEntry)},
            )
            for row in page
        ],
        next_before=page[-1].seq if len(rows) > limit else None,
    )
