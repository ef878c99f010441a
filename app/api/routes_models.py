"""Models: which there are, which is champion, and why."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from portfolio_sdpo.registry import Model, Promotion, to_record

from .problems import responses
from .schemas import ModelBrief, ModelDetail, Models, PromotionEntry
from .service import service_of

router = APIRouter(tags=["models"], responses=responses(422, 503))

Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Offset = Annotated[int, Query(ge=0, le=2**31, description="After so many.")]


@router.get("/models")
def list_models(request: Request, limit: Limit = 100, offset: Offset = 0) -> Models:
    """All models whose record is sound, the newest first."""
    registry = service_of(request).registry
    champion, found = registry.champion(), registry.models()
    page = [_brief(model, champion) for model in found[offset : offset + limit]]
    return Models(champion=champion and champion.model_id, total=len(found), models=page)


@router.get("/models/{model_id}", responses=responses(404))
def show_model(request: Request, model_id: Annotated[str, Path(max_length=80)]) -> ModelDetail:
    """Everything about one model but its content."""
    registry = service_of(request).registry
    model, champion = registry.model(model_id), registry.champion()
    history = [each for each in registry.promotions() if model.id in (each.model_id, each.previous)]
    return ModelDetail(
        **_brief(model, champion).model_dump(),
        content_hash=model.content_hash,
        config=model.config,
        promotions=[PromotionEntry(**to_record(each)) for each in history],
    )


def _brief(model: Model, champion: Promotion | None) -> ModelBrief:
    return ModelBrief(
        id=model.id,
        label=model.label,
        champion=champion is not None and champion.model_id == model.id,
        created_at=model.created_at,
        added_at=model.added_at,
        as_of=model.as_of,
        data_hash=model.data_hash,
        parent=model.parent,
        limit=model.settings["limit"],
        metrics=model.metrics,
    )
