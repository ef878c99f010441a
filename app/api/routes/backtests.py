"""Finished backtests. An id from a request is looked up among the names of folders and never becomes a path."""

from __future__ import annotations

import math
from pathlib import Path as Folder
from typing import Annotated, Any

from fastapi import APIRouter, Path

from portfolio_sdpo.backtest.record import KEYS, Record, list_records, read_config, read_record, split_by_track
from portfolio_sdpo.errors import RunError

from ..deps import Limit, Offset, ReadAccess, ScopedRoute
from ..errors import ProblemError, document_problems, log
from ..schemas import BacktestBrief, BacktestDetail, Backtests, BacktestTrack

router = APIRouter(tags=["backtests"], route_class=ScopedRoute, responses=document_problems(422))


@router.get("/backtests")
def list_backtests(_: ReadAccess, limit: Limit = 100, offset: Offset = 0) -> Backtests:
    """All backtests in the data directory, newest first."""
    found = list_records()
    return Backtests(total=len(found), backtests=[_summarise(folder) for folder in found[offset : offset + limit]])


@router.get("/backtests/{backtest_id}", responses=document_problems(404, 500))
def show_backtest(_: ReadAccess, backtest_id: Annotated[str, Path(max_length=200)]) -> BacktestDetail:
    """Settings, metrics, equity and weights of one backtest."""
    folder = next((each for each in list_records() if each.name == backtest_id), None)
    if folder is None:
        raise ProblemError("not-found", "There is no such backtest: /api/v1/backtests lists them.")
    try:
        record = read_record(folder)
    except RunError as error:
        log.error("%s", error)
        detail = "The backtest's folder is damaged: the service's log gives the details."
        raise ProblemError("record-damaged", detail) from None
    return BacktestDetail(id=folder.name, config=record.config, metrics=record.metrics, tracks=_list_tracks(record))


def _summarise(folder: Folder) -> BacktestBrief:
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


def _list_tracks(record: Record) -> list[BacktestTrack]:
    weights = split_by_track(record.weights)
    return [
        BacktestTrack(
            strategy=name,
            seed=seed,
            dates=[day.date() for day in rows["date"]],
            equity=_list_columns(rows),
            weights=_list_columns(weights[name, seed]),
        )
        for (name, seed), rows in split_by_track(record.equity).items()
    ]


def _list_columns(rows: Any) -> dict[str, list[float | None]]:
    return {
        str(name): [float(value) if math.isfinite(value) else None for value in rows[name].to_numpy(dtype="float64")]
        for name in rows.columns
        if name not in KEYS
    }
