"""A note beside an SQLite registry of how far its logs had come, which a running service keeps up to date.

Of a registry in PostgreSQL, which has no place for it, the service keeps the note in memory. The chains show what was
altered within a registry, not that it is an older copy or another registry. The note does: it is compared with the
tables, and never replaced by what contradicts it. A restored backup has a new generation, with which the note begins
again.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from portfolio_sdpo.registry import schema
from portfolio_sdpo.registry.database import Database, Identity

log = logging.getLogger("portfolio_sdpo.registry")

LOGS = {table.name: table for table in (schema.promotions, schema.audit)}


def get_witness_path(place: Path | str) -> Path:
    """The note beside a registry's file."""
    return Path(f"{place}.witness")


def note_heads(database: Database, identity: Identity) -> str | None:
    """Note how far the logs have come; returns what contradicts the last note, which then stays as it is.

    While something contradicts it, transactions of this process are refused.
    """
    noted = _get_note(database)
    with database.reading(still=True, trusted=False) as connection:
        problem = _find_contradiction(connection, identity, noted)
        heads = connection.execute(sa.select(schema.heads).where(schema.heads.c.name.in_(LOGS))).all()
    told = {
        "id": identity.id,
        "generation": identity.generation,
        "heads": {name: [seq, hashed] for name, seq, hashed in heads},
    }
    if problem is None and not database.embedded:
        database.noted = told
    elif problem is None and told != noted:
        path = get_witness_path(database.place)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with suppress(OSError):  # a folder that cannot be written to; the registry itself says so
            temporary.write_text(json.dumps(told))
            os.replace(temporary, path)
    database.distrust(problem)
    return problem


def find_replacement(database: Database, identity: Identity) -> str | None:
    """How the registry contradicts the last note about it, without a full stop; None if it does not."""
    if not database.embedded:
        return None
    with database.reading(still=True, trusted=False) as connection:
        return compare_with_note(connection, identity, database)


def compare_with_note(connection: sa.Connection, identity: Identity, database: Database) -> str | None:
    """As `find_replacement`, within a transaction."""
    return _find_contradiction(connection, identity, _get_note(database))


def _get_note(database: Database) -> dict[str, Any]:
    return _read(database.place) if database.embedded else database.noted


def _read(place: str) -> dict[str, Any]:
    """The last note; nothing where there is none, or none that can be understood, which is then written again."""
    path = get_witness_path(place)
    try:
        noted = json.loads(path.read_bytes())
        heads = {name: [int(seq), str(hashed)] for name, (seq, hashed) in noted["heads"].items()}
        if heads.keys() <= LOGS.keys():
            return {"id": str(noted["id"]), "generation": str(noted["generation"]), "heads": heads}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    log.warning("%s is damaged and is written again: what it knew of the registry is not compared any more.", path)
    return {}


def _find_contradiction(connection: sa.Connection, identity: Identity, noted: dict[str, Any]) -> str | None:
    if not noted or noted.get("generation") == identity.generation:
        for name, (seq, hashed) in noted.get("heads", {}).items():
            table = LOGS[name]
            found = connection.execute(sa.select(table.c.hash).where(table.c.seq == seq)).scalar()
            head = connection.execute(sa.select(schema.heads.c.seq).where(schema.heads.c.name == name)).scalar_one()
            # A row that is not in the table any more, though later ones are written, was archived.
            if head < seq or (found is not None and found != hashed):
                return f"an older copy is in its place: row {seq} of the log of {name}, which was there, is not"
        return None
    if noted.get("id") != identity.id:
        return "another registry is in its place than the one that was served here"
    return None
