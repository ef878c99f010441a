"""Logs: lines of text or JSON, each with the id of the request that it is about."""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

LogFormat = Literal["text", "json"]

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Of the request that is being answered, also in the threads that work for it."""

TEXT = "%(asctime)s %(levelname)s %(message)s%(about)s"
ACCESS = "portfolio_sdpo.access"
"""The logger with a line for every request; its records have `access`, a mapping of what JSON shows."""


def configure_logs(form: LogFormat) -> None:
    """Log to stderr in this form."""
    handler = logging.StreamHandler()
    handler.addFilter(_add_request_id)
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("alembic").setLevel(logging.WARNING)


class JsonFormatter(logging.Formatter):
    """One JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": getattr(record, "request_id", None),
            **getattr(record, "access", {}),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps({name: value for name, value in told.items() if value is not None}, ensure_ascii=False)


def _add_request_id(record: logging.LogRecord) -> bool:
    """Add the id to a record; the filter keeps every record."""
    found = request_id.get()
    record.request_id = found
    record.about = "" if found is None else f" [{found}]"
    return True
