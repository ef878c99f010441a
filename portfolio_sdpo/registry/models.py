"""Models: trained agents, content and all, each under a name made from its content.

Whatever is stored of a model is covered by a hash: its parts each by their own, the row by `record_hash`. So a flipped
byte is an error and never another model. Nothing on the way back is unpickled: JSON, safetensors and parquet only.
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
from portfolio_sdpo.registry.part import Part, Row
from portfolio_sdpo.registry.values import canonical, now, optional, parsed, sealed, sha256, stated, written

if TYPE_CHECKING:
    from portfolio_sdpo.portfolio.agent import Agent

DIGITS = 8
"""Of the content's hash in a model's name; more if two models would share a name."""
_SEALED = [column.name for column in schema.models.columns if column.name != "record_hash"]


@dataclass(frozen=True)
class Model:
    """What is known of a registered model; `load_agent` brings it back to life."""

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
    """What judged it, if it was judged."""

    @property
    def settings(self) -> dict[str, Any]:
        """The agent's."""
        return dict(self.config["settings"])

    @property
    def assets(self) -> tuple[str, ...]:
        """Cash and stocks, in the order of the weights."""
        return tuple(self.config["assets"])


class Models(Part):
    """Adding models, finding them and loading them."""

    def add_model(
        self,
        folder: Path,
        *,
        parent: str | None = None,
        metrics: Mapping[str, Any] | None = None,
        label: str | None = None,
    ) -> Model:
        """Register the trained agent in a folder; the same content again gives the model that is there already."""
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
        agent_from_parts(parts, folder or Path())  # what cannot be loaded is not registered
        hashes = {name: sha256(content) for name, content in parts.items()}
        row = _row(json.loads(parts[CONFIG]), hashes, parent, metrics, label)
        while True:
            with self.database.writing() as connection:
                known = connection.execute(_by_content(row["content_hash"])).mappings().first()
                if known is None:
                    if parent is not None and not connection.execute(_ids(parent)).first():
                        raise _unknown(parent)
                    row["id"] = _free_id(connection, row)
                    row["record_hash"] = _record_hash(row)
                    if _insert(connection, row):
                        rows = [
                            {"model_id": row["id"], "name": name, "sha256": hashes[name], "content": content}
                            for name, content in sorted(parts.items())
                        ]
                        connection.execute(schema.parts.insert(), rows)
                        return self._model(row)
                    continue  # another process took the name or added the same
                model = self._sound_model(connection, known, row)
                _mend(connection, model.id, parts, hashes)
                return model

    def _sound_model(self, connection: sa.Connection, known: Row, row: dict[str, Any]) -> Model:
        """The model as it was registered; if its record was damaged, as it is given now."""
        try:
            return self._model(known)
        except ModelCorruptError:
            row["id"] = known["id"]
            row["record_hash"] = _record_hash(row)
            ours = schema.models.c.content_hash == row["content_hash"]
            connection.execute(schema.models.update().where(ours).values(row))
            return self._model(row)

    def set_metrics(self, model_id: str, metrics: Mapping[str, Any]) -> Model:
        """Note what judged a model that was added before it was judged."""
        with self.database.writing() as connection:
            query = schema.models.select().where(schema.models.c.id == model_id).with_for_update()
            found = connection.execute(query).mappings().first()
            if found is None:
                raise _unknown(model_id)
            self._model(found)
            row = {**found, "metrics": canonical(metrics, "metrics")}
            row["record_hash"] = _record_hash(row)
            changes = {name: row[name] for name in ("metrics", "record_hash")}
            connection.execute(schema.models.update().where(schema.models.c.id == model_id).values(changes))
        return self._model(row)

    def model(self, model_id: str) -> Model:
        """The model with exactly this id."""
        if "\0" in model_id:  # which PostgreSQL does not take
            raise _unknown(model_id)
        with self.database.reading() as connection:
            row = connection.execute(schema.models.select().where(schema.models.c.id == model_id)).mappings().first()
        if row is None:
            raise _unknown(model_id)
        return self._model(row)

    def models(self, *, data_hash: str | None = None) -> list[Model]:
        """All models whose record is sound, the newest first; optionally those trained on these prices.

        One damaged record must not hide the others; `damaged_models` names it.
        """
        query = schema.models.select().order_by(schema.models.c.added_at.desc(), schema.models.c.id)
        if data_hash is not None:
            query = query.where(schema.models.c.data_hash == data_hash)
        with self.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        found = []
        for row in rows:
            with suppress(ModelCorruptError):
                found.append(self._model(row))
        return found

    def damaged_models(self) -> dict[str, str]:
        """Check every hash of every model; what is wrong with which, in a sentence each."""
        found = {}
        for model_id in self.model_ids():
            try:
                self.model_parts(model_id)
            except RegistryError as error:
                found[model_id] = str(error)
        return found

    def model_ids(self) -> list[str]:
        """The names of all models, damaged or not, the newest first."""
        query = sa.select(schema.models.c.id).order_by(schema.models.c.added_at.desc(), schema.models.c.id)
        with self.database.reading() as connection:
            return list(connection.execute(query).scalars())

    def resolve_id(self, prefix: str) -> str:
        """The only model whose id begins so."""
        found = [each for each in self.model_ids() if each.startswith(prefix)] if prefix else []
        if prefix in found:
            return prefix
        if not found:
            raise _unknown(prefix)
        if len(found) > 1:
            raise NotRegisteredError(
                f"{prefix!r} can be {', '.join(sorted(found)[:5])}{', …' * (len(found) > 5)}: give more of the id."
            )
        return found[0]

    def model_parts(self, model_id: str) -> dict[str, bytes]:
        """The content of the model's files by name, exactly as it was added."""
        query = sa.select(schema.parts.c.name, schema.parts.c.sha256, schema.parts.c.content)
        with self.database.reading(still=True) as connection:
            row = connection.execute(schema.models.select().where(schema.models.c.id == model_id)).mappings().first()
            stored = connection.execute(query.where(schema.parts.c.model_id == model_id)).all()
        if row is None:
            raise _unknown(model_id)
        model = self._model(row)
        contents, hashes = {}, {}
        for name, hashed, content in stored:
            if not isinstance(content, bytes) or sha256(content) != hashed:
                raise _corrupt(model_id, f"{name} does not match its hash")
            contents[str(name)], hashes[str(name)] = content, str(hashed)
        if _content_hash(hashes) != model.content_hash:
            raise _corrupt(model_id, "its parts are not those that were added")
        return contents

    def load_agent(self, model_id: str) -> Agent:
        """The agent as it was after its training, to the last bit; see `backtest.trained.load_agent`."""
        from portfolio_sdpo.portfolio.store import agent_from_parts

        parts = self.model_parts(model_id)
        try:
            return agent_from_parts(parts, Path(model_id))
        except (CheckpointError, RunError, SettingsError) as error:
            # Sound bytes that another version of the code wrote.
            raise RegistryError(
                f"Model {model_id} cannot be loaded by this version of portfolio_sdpo ({str(error).rstrip('.')}): "
                "promote another model or train a new one."
            ) from None

    def _model(self, row: Row) -> Model:
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
                config=parsed(row["config"]),
                metrics=parsed(row["metrics"]),
            ),
        )


def _row(
    config: dict[str, Any],
    hashes: Mapping[str, str],
    parent: str | None,
    metrics: Mapping[str, Any] | None,
    label: str | None,
) -> dict[str, Any]:
    """A row without its name; config.json has proved to be an agent's."""
    config.pop("format", None)
    try:
        created = datetime.fromisoformat(config["created_at"])
        return {
            "content_hash": _content_hash(hashes),
            "label": stated("label", config["label"] if label is None else label),
            "created_at": written(created),
            "added_at": written(now()),
            "as_of": date.fromisoformat(config["as_of"]).isoformat(),
            "data_hash": str(config["data"]["sha256"]),
            "parent": parent,
            "config": canonical(config, "config"),
            "metrics": optional(metrics, "metrics"),
        }
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, SettingsError):
            raise
        raise RunError(f"config.json is no agent's ({error}): add a folder that `train` made.") from None


def _content_hash(hashes: Mapping[str, str]) -> str:
    return sealed(sorted(hashes.items()))


def _record_hash(row: Row) -> str:
    return sealed(*(row[name] for name in _SEALED))


def _free_id(connection: sa.Connection, row: Row) -> str:
    """The day of the training and digits of the hash: the same for the same content, wherever it is added."""
    day = row["created_at"][:10].replace("-", "")
    for digits in range(DIGITS, 65, 4):
        name = f"{day}-{row['content_hash'][:digits]}"
        if not connection.execute(_ids(name)).first():
            return name
    raise AssertionError("content that is there already was looked for before")


def _insert(connection: sa.Connection, row: Row) -> bool:
    """Whether the row went in; not, if another process was faster."""
    dialect: Any
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects import sqlite as dialect
    else:
        from sqlalchemy.dialects import postgresql as dialect
    query = dialect.insert(schema.models).values(row).on_conflict_do_nothing().returning(schema.models.c.id)
    return connection.execute(query).first() is not None


def _mend(connection: sa.Connection, model_id: str, parts: Mapping[str, bytes], hashes: Mapping[str, str]) -> None:
    """Put back parts that were damaged: what was given has the hash of the model."""
    table = schema.parts
    for name, content in parts.items():
        ours = (table.c.model_id == model_id) & (table.c.name == name)
        stored = connection.execute(sa.select(table.c.sha256, table.c.content).where(ours)).first()
        if stored is None or tuple(stored) != (hashes[name], content):
            connection.execute(table.delete().where(ours))
            connection.execute(
                table.insert().values(model_id=model_id, name=name, sha256=hashes[name], content=content)
            )


def _ids(model_id: str) -> sa.Select[Any]:
    return sa.select(schema.models.c.id).where(schema.models.c.id == model_id)


def _by_content(content_hash: str) -> sa.Select[Any]:
    return schema.models.select().where(schema.models.c.content_hash == content_hash)


def _unknown(model_id: str) -> NotRegisteredError:
    return NotRegisteredError(f"There is no model {model_id!r}: `portfolio-sdpo models list` names them.")


def _corrupt(model_id: str, reason: str) -> ModelCorruptError:
    return ModelCorruptError(
        f"Model {model_id} is damaged ({reason}): promote another one, or add its folder again with "
        "`portfolio-sdpo models add`."
    )
