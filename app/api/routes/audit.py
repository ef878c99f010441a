"""The audit log of what was served."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

from fastapi import APIRouter, Query

from portfolio_sdpo.registry import AuditEntry

from ..deps import ReadAccess, ScopedRoute
from ..errors import document_problems
from ..schemas import AuditEntryOut, AuditPage

router = APIRouter(tags=["audit"], route_class=ScopedRoute)

Text = Annotated[str | None, Query(max_length=80)]


@router.get("/audit", responses=document_problems(422, 503))
def list_audit(
    services: ReadAccess,
    limit: Annotated[int, Query(ge=1, le=1000, description="Rows per page.")] = 100,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="Only rows with a smaller number.")] = None,
    model_id: Text = None,
    request_id: Text = None,
) -> AuditPage:
    """Answers with weights, newest first. In batched mode they appear a moment after they were sent."""
    rows = services.registry.audit(limit=limit + 1, before=before, model_id=model_id, request_id=request_id)
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
