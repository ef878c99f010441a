"""Backtests as they were written. An id from a request is looked for among the folders' names, never made a path."""

from __future__ import annotations

import math
from pathlib import Path as Folder
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from portfolio_sdpo.backtest.record import KEYS, Record, list_records, read_config, read_record, split_by_track
from portfolio_sdpo.errors import RunError

from .problems import ProblemError, log, responses
from .routes_models import Limit, Offset
from .schemas import BacktestBrief, BacktestDetail, Backtests, BacktestTrack

router = APIRouter(tags=["backtests"], responses=responses(422))


@router.get("/backtests")
def list_backtests(request: Request, limit: Limit = 100, offset: Offset = 0) -> Backtests:
    """All backtests in the data directory, the newest first."""
    found = list_records()
    return Backtests(total=len(found), backtests=[_brief(folder) for folder in found[offset : offset + limit]])


@router.get("/backtests/{backtest_id}", responses=responses(404, 500))
def show_backtest(request: Request, backtest_id: Annotated[str, Path(max_length=200)]) -> BacktestDetail:
    """Settings, metrics, equity and weights of one backtest."""
    folder = next((each for each in list_records() if each.name == backtest_id), None)
    if folder is None:
        raise ProblemError("not-found", "There is no such backtest: /api/v1/backtests names them.")
    try:
        record = read_record(folder)
    except RunError as error:
        log.error("%s", error)
        detail = "The backtest's folder is damaged: the service's log says how."
        raise ProblemError("record-damaged", detail) from None
    return BacktestDetail(id=folder.name, config=record.config, metrics=record.metrics, tracks=_tracks(record))


def _brief(folder: Folder) -> BacktestBrief:
    try:
        config = read_config(folder)
        settings = config["settings"]
        return BacktestBrief(
            id=folder.name,
            created_at=config["created_at"],
            strategies=[*settings["strategies"], *(agent["label"] for agent in settings["agents"])],
            data_hash=config["data"]["sha256"],
        )
    except (RunError, KeyError, TypeError, ValueError):
        return BacktestBrief(id=folder.name, created_at=None, strategies=[], data_hash=None, damaged=True)


def _tracks(record: Record) -> list[BacktestTrack]:
    weights = split_by_track(record.weights)
    return [
        BacktestTrack(
            strategy=name,
            seed=seed,
            dates=[day.date() for day in rows["date"]],
            equity=_columns(rows),
            weights=_columns(weights[name, seed]),
        )
        for (name, seed), rows in split_by_track(record.equity).items()
    ]


def _columns(rows: Any) -> dict[str, list[float | None]]:
    return {
        str(name): [float(value) if math.isfinite(value) else None for value in rows[name].to_numpy(dtype="float64")]
        for name in rows.columns
        if name not in KEYS
    }
