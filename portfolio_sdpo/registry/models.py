"""Models: trained agents with their complete content, each under an id derived from that content.

Everything stored of a model is covered by a hash: each part by its own, the row by `record_hash`. So a flipped byte is
an error and never another model. Nothing is unpickled when a model is read: JSON, safetensors and Parquet only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from portfolio_sdpo.errors import (
    CheckpointError,
    ModelCorruptError,
    NotRegisteredError,
    RegistryError,
    RunError,
    SettingsError,
)
from portfolio_sdpo.registry import schema
from portfolio_sdpo.registry.records import (
    Repository,
    Row,
    format_moment,
    from_json,
    hash_bytes,
    hash_values,
    require_text,
    to_canonical_json,
    to_optional_json,
    utc_now,
)

if TYPE_CHECKING:
    from portfolio_sdpo.portfolio.agent import Agent

DIGITS = 8
"""Digits of the content's hash in a model's id; more if two models would share an id."""
_HASHED_COLUMNS = [column.name for column in schema.models.columns if column.name != "record_hash"]


@dataclass(frozen=True)
class Model:
    """The description of a registered model; `load_agent` loads the agent itself."""

    id: str
    content_hash: str
    label: str
    created_at: datetime
    """When it was trained."""
    added_at: datetime
    """When it was registered."""
    as_of: date
    """The close that it was trained up to."""
    data_hash: str
    """Of the prices that it was trained on."""
    parent: str | None
    """The model that its training started from."""
    config: dict[str, Any]
    """`config.json`: settings, seed, assets, data, weights at `as_of`."""
    metrics: dict[str, Any] | None
    """The figures of its evaluation on held-out days, if there was one."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the agent."""
        return dict(self.config["settings"])

    @property
    def assets(self) -> tuple[str, ...]:
        """Cash and stocks, in the order of the weights."""
        return tuple(self.config["assets"])


class Models(Repository):
    """Adds, finds and loads models."""

    def add_model(
        self,
        folder: Path,
        *,
        parent: str | None = None,
        metrics: Mapping[str, Any] | None = None,
        label: str | None = None,
    ) -> Model:
        """Register the trained agent in a folder; the same content again returns the registered model."""
        from portfolio_sdpo.portfolio.store import read_parts

        return self.add_parts(read_parts(folder), parent=parent, metrics=metrics, label=label, folder=folder)

    def add_parts(
        self,
        parts: Mapping[str, bytes],
        *,
        parent: str | None = None,
        metrics: Mapping[str, Any] | None = None,
        label: str | None = None,
        folder: Path | None = None,
    ) -> Model:
        """As `add_model`, from the content of the files by name."""
        from portfolio_sdpo.common.files import CONFIG
        from portfolio_sdpo.portfolio.store import PARTS, agent_from_parts

        if sorted(parts) != sorted(PARTS):
            raise SettingsError(f"parts: a model has {', '.join(PARTS)} (got {', '.join(sorted(parts)) or 'nothing'}).")
        agent_from_parts(parts, folder or Path())  # an agent that cannot be loaded is not registered
        hashes = {name: hash_bytes(content) for name, content in parts.items()}
        config = json.loads(parts[CONFIG])
        if (config.get("allocator") or {}).get("max_weight") is not None and "limits" not in config["settings"]:
            raise SettingsError(
                f"max_weight: this policy holds at most {config['allocator']['max_weight']:g} of a stock, and it was "
                "saved by a version that did not store that with the model; fit and save it again to register it."
            )
        row = _make_row(config, hashes, parent, metrics, label)
        while True:
            with self.database.writing() as connection:
                known = connection.execute(_select_content(row["content_hash"])).mappings().first()
                if known is None:
                    if parent is not None and not connection.execute(_select_id(parent)).first():
                        raise _unknown(parent)
                    row["id"] = _choose_id(connection, row)
                    row["record_hash"] = _record_hash(row)
                    if _insert(connection, row):
                        rows = [
                            {"model_id": row["id"], "name": name, "sha256": hashes[name], "content": content}
                            for name, content in sorted(parts.items())
                        ]
                        connection.execute(schema.parts.insert(), rows)
                        return self._build_model(row)
                    continue  # another process took the id or added the same content
                model = self._repair_record(connection, known, row)
                _repair_parts(connection, model.id, parts, hashes)
                return model

    def _repair_record(self, connection: sa.Connection, known: Row, row: dict[str, Any]) -> Model:
        """The model as it was registered; a damaged record is replaced by the one given now."""
        try:
            return self._build_model(known)
        except ModelCorruptError:
            row["id"] = known["id"]
            row["record_hash"] = _record_hash(row)
            ours = schema.models.c.content_hash == row["content_hash"]
            connection.execute(schema.models.update().where(ours).values(row))
            return self._build_model(row)

    def set_metrics(self, model_id: str, metrics: Mapping[str, Any]) -> Model:
        """Store the figures of a model that was evaluated after it had been added."""
        with self.database.writing() as connection:
            query = schema.models.select().where(schema.models.c.id == model_id).with_for_update()
            found = connection.execute(query).mappings().first()
            if found is None:
                raise _unknown(model_id)
            self._build_model(found)
            row = {**found, "metrics": to_canonical_json(metrics, "metrics")}
            row["record_hash"] = _record_hash(row)
            changes = {name: row[name] for name in ("metrics", "record_hash")}
            connection.execute(schema.models.update().where(schema.models.c.id == model_id).values(changes))
        return self._build_model(row)

    def model(self, model_id: str) -> Model:
        """The model with exactly this id."""
        if "\0" in model_id:  # which PostgreSQL does not accept
            raise _unknown(model_id)
        with self.database.reading() as connection:
            row = connection.execute(schema.models.select().where(schema.models.c.id == model_id)).mappings().first()
        if row is None:
            raise _unknown(model_id)
        return self._build_model(row)

    def models(self, *, data_hash: str | None = None) -> list[Model]:
        """All models whose record is intact, newest first; optionally only those trained on these prices.

        One damaged record must not hide the others; `damaged_models` lists it.
        """
        query = schema.models.select().order_by(schema.models.c.added_at.desc(), schema.models.c.id)
        if data_hash is not None:
            query = query.where(schema.models.c.data_hash == data_hash)
        with self.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        found = []
        for row in rows:
            with suppress(ModelCorruptError):
                found.append(self._build_model(row))
        return found

    def damaged_models(self) -> dict[str, str]:
        """Check every hash of every model; returns one sentence for each damaged model."""
        found = {}
        for model_id in self.model_ids():
            try:
                self.model_parts(model_id)
            except RegistryError as error:
                found[model_id] = str(error)
        return found

    def model_ids(self) -> list[str]:
        """The ids of all models, damaged or not, newest first."""
        query = sa.select(schema.models.c.id).order_by(schema.models.c.added_at.desc(), schema.models.c.id)
        with self.database.reading() as connection:
            return list(connection.execute(query).scalars())

    def resolve_id(self, prefix: str) -> str:
        """The id of the only model whose id starts with this prefix."""
        found = [each for each in self.model_ids() if each.startswith(prefix)] if prefix else []
        if prefix in found:
            return prefix
        if not found:
            raise _unknown(prefix)
        if len(found) > 1:
            candidates = ", ".join(sorted(found)[:5]) + ", …" * (len(found) > 5)
            raise NotRegisteredError(f"{prefix!r} can be {candidates}: give more of the id.")
        return found[0]

    def model_parts(self, model_id: str) -> dict[str, bytes]:
        """The content of the model's files by name, exactly as they were added."""
        query = sa.select(schema.parts.c.name, schema.parts.c.sha256, schema.parts.c.content)
        with self.database.reading(still=True) as connection:
            row = connection.execute(schema.models.select().where(schema.models.c.id == model_id)).mappings().first()
            stored = connection.execute(query.where(schema.parts.c.model_id == model_id)).all()
        if row is None:
            raise _unknown(model_id)
        model = self._build_model(row)
        contents, hashes = {}, {}
        for name, hashed, content in stored:
            if not isinstance(content, bytes) or hash_bytes(content) != hashed:
                raise _corrupt(model_id, f"{name} does not match its hash")
            contents[str(name)], hashes[str(name)] = content, str(hashed)
        if _content_hash(hashes) != model.content_hash:
            raise _corrupt(model_id, "its parts are not those that were added")
        return contents

    def load_agent(self, model_id: str) -> Agent:
        """The agent as it was after its training, to the last bit; see `portfolio.store`."""
        from portfolio_sdpo.portfolio.store import agent_from_parts

        parts = self.model_parts(model_id)
        try:
            return agent_from_parts(parts, Path(model_id))
        except (CheckpointError, RunError, SettingsError) as error:
            # The bytes are intact, but another version of the package wrote them.
            raise RegistryError(
                f"Model {model_id} cannot be loaded by this version of portfolio_sdpo ({str(error).rstrip('.')}): "
                "promote another model or train a new one."
            ) from None

    def _build_model(self, row: Row) -> Model:
        if _record_hash(row) != row["record_hash"]:
            raise _corrupt(str(row["id"]), "its record does not match its hash")
        return self._read(
            f"Model {row['id']}",
            lambda: Model(
                id=row["id"],
                content_hash=row["content_hash"],
                label=row["label"],
                created_at=datetime.fromisoformat(row["created_at"]),
                added_at=datetime.fromisoformat(row["added_at"]),
                as_of=date.fromisoformat(row["as_of"]),
                data_hash=row["data_hash"],
                parent=row["parent"],
                config=from_json(row["config"]),
                metrics=from_json(row["metrics"]),
            ),
        )


def _make_row(
    config: dict[str, Any],
    hashes: Mapping[str, str],
    parent: str | None,
    metrics: Mapping[str, Any] | None,
    label: str | None,
) -> dict[str, Any]:
    """A row without its id; the content of config.json was validated before."""
    config.pop("format", None)
    try:
        created = datetime.fromisoformat(config["created_at"])
        return {
            "content_hash": _content_hash(hashes),
            "label": require_text("label", config["label"] if label is None else label),
            "created_at": format_moment(created),
            "added_at": format_moment(utc_now()),
            "as_of": date.fromisoformat(config["as_of"]).isoformat(),
            "data_hash": str(config["data"]["sha256"]),
            "parent": parent,
            "config": to_canonical_json(config, "config"),
            "metrics": to_optional_json(metrics, "metrics"),
        }
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, SettingsError):
            raise
        raise RunError(
            f"config.json does not describe an agent ({error}): add a folder that `train` created."
        ) from None


def _content_hash(hashes: Mapping[str, str]) -> str:
    return hash_values(sorted(hashes.items()))


def _record_hash(row: Row) -> str:
    return hash_values(*(row[name] for name in _HASHED_COLUMNS))


def _choose_id(connection: sa.Connection, row: Row) -> str:
    """The day of the training and digits of the hash: the same content has the same id in every registry."""
    day = row["created_at"][:10].replace("-", "")
    for digits in range(DIGITS, 65, 4):
        name = f"{day}-{row['content_hash'][:digits]}"
        if not connection.execute(_select_id(name)).first():
            return name
    raise AssertionError("registered content was looked up before")


def _insert(connection: sa.Connection, row: Row) -> bool:
    """Whether the row was inserted; False if another process was faster."""
    dialect: Any
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects import sqlite as dialect
    else:
        from sqlalchemy.dialects import postgresql as dialect
    query = dialect.insert(schema.models).values(row).on_conflict_do_nothing().returning(schema.models.c.id)
    return connection.execute(query).first() is not None


def _repair_parts(
    connection: sa.Connection, model_id: str, parts: Mapping[str, bytes], hashes: Mapping[str, str]
) -> None:
    """Restore damaged parts from the given ones, which have the hash of the model."""
    table = schema.parts
    for name, content in parts.items():
        ours = (table.c.model_id == model_id) & (table.c.name == name)
        stored = connection.execute(sa.select(table.c.sha256, table.c.content).where(ours)).first()
        if stored is None or tuple(stored) != (hashes[name], content):
            connection.execute(table.delete().where(ours))
            connection.execute(
                table.insert().values(model_id=model_id, name=name, sha256=hashes[name], content=content)
            )


def _select_id(model_id: str) -> sa.Select[Any]:
    return sa.select(schema.models.c.id).where(schema.models.c.id == model_id)


def _select_content(content_hash: str) -> sa.Select[Any]:
    return schema.models.select().where(schema.models.c.content_hash == content_hash)


def _unknown(model_id: str) -> NotRegisteredError:
    return NotRegisteredError(f"There is no model {model_id!r}: `portfolio-sdpo models list` lists the models.")


def _corrupt(model_id: str, reason: str) -> ModelCorruptError:
    return ModelCorruptError(
        f"Model {model_id} is damaged ({reason}): promote another model, or add its folder again with "
        "`portfolio-sdpo models add`."
    )
