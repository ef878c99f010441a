"""Registered models: which there are, which one is champion, and why."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from portfolio_sdpo.registry import Model, Promotion, to_record

from ..deps import Limit, Offset, ReadAccess, ScopedRoute
from ..errors import document_problems
from ..schemas import ModelBrief, ModelDetail, Models, PromotionEntry

router = APIRouter(tags=["models"], route_class=ScopedRoute, responses=document_problems(422, 503))


@router.get("/models")
def list_models(services: ReadAccess, limit: Limit = 100, offset: Offset = 0) -> Models:
    """All models whose record is sound, newest first."""
    champion, found = services.registry.champion(), services.registry.models()
    page = [_summarise(model, champion) for model in found[offset : offset + limit]]
    return Models(champion=champion and champion.model_id, total=len(found), models=page)


@router.get("/models/{model_id}", responses=document_problems(404))
def show_model(services: ReadAccess, model_id: Annotated[str, Path(max_length=80)]) -> ModelDetail:
    """Everything about one model except its parameters."""
    registry = services.registry
    model, champion = registry.model(model_id), registry.champion()
    history = [each for each in registry.promotions() if model.id in (each.model_id, each.previous)]
    return ModelDetail(
        **_summarise(model, champion).model_dump(),
        content_hash=model.content_hash,
        config=model.config,
        promotions=[PromotionEntry(**to_record(each)) for each in history],
    )


def _summarise(model: Model, champion: Promotion | None) -> ModelBrief:
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
