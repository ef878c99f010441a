"""The tables. Moments are UTC text and objects JSON text, so that hashes cover the same characters in every database.

A change of the tables needs a new file in `migrations/versions`, which `HEAD` names; a test compares both.
"""

from __future__ import annotations

import sqlalchemy as sa

HEAD = "0003"
"""The newest revision in `migrations/versions`."""
VERSION_TABLE = "registry_version"
"""Not Alembic's usual name: the database may hold tables of other programs."""

metadata = sa.MetaData()

# One row. The id stays with the registry and all its copies; the generation changes whenever a backup is restored.
identity = sa.Table(
    "identity",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("generation", sa.String(32), nullable=False),
)

models = sa.Table(
    "models",
    metadata,
    sa.Column("id", sa.String(80), primary_key=True),
    sa.Column("content_hash", sa.String(64), nullable=False, unique=True),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("added_at", sa.String(32), nullable=False),
    sa.Column("as_of", sa.String(10), nullable=False),
    sa.Column("data_hash", sa.String(64), nullable=False, index=True),
    sa.Column("parent", sa.String(80), sa.ForeignKey("models.id")),
    sa.Column("config", sa.Text, nullable=False),
    sa.Column("metrics", sa.Text),
    sa.Column("record_hash", sa.String(64), nullable=False),
)

# In the database and not in files: a model is stored in one transaction with its row, never in part, and is available
# on every machine that reaches the database. A model has some 100 kB.
parts = sa.Table(
    "model_parts",
    metadata,
    sa.Column("model_id", sa.String(80), sa.ForeignKey("models.id"), primary_key=True),
    sa.Column("name", sa.String(80), primary_key=True),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

promotions = sa.Table(
    "promotions",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("model_id", sa.String(80), sa.ForeignKey("models.id"), nullable=False),
    sa.Column("previous", sa.String(80), sa.ForeignKey("models.id")),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("previous_hash", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)

# No foreign key to models: answers are recorded whatever became of the model, also when there was none.
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("request_id", sa.Text, nullable=False, index=True),
    sa.Column("model_id", sa.String(80)),
    sa.Column("data_hash", sa.String(64)),
    sa.Column("as_of", sa.String(10)),
    sa.Column("weights", sa.Text, nullable=False),
    sa.Column("shield_factor", sa.Double),
    sa.Column("promised_cvar", sa.Double),
    sa.Column("cvar_limit", sa.Double),
    sa.Column("warnings", sa.Text, nullable=False),
    sa.Column("response_hash", sa.String(64), nullable=False),
    sa.Column("previous_hash", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)

# What was moved out of the table of answers into files, and which of these files were deleted since.
audit_archives = sa.Table(
    "audit_archives",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("month", sa.String(7), nullable=False),
    sa.Column("first_seq", sa.BigInteger, nullable=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("last_hash", sa.String(64), nullable=False),
    sa.Column("previous_hash", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)

heads = sa.Table(
    "heads",
    metadata,
    sa.Column("name", sa.String(16), primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("settings", sa.Text, nullable=False),
    sa.Column("data_hash", sa.String(64)),
    sa.Column("seed", sa.BigInteger),
    sa.Column("started_at", sa.String(32), nullable=False),
    sa.Column("ended_at", sa.String(32)),
    sa.Column("outcome", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("model_id", sa.String(80), sa.ForeignKey("models.id")),
    sa.Column("metrics", sa.Text),
    sa.Index("ix_runs_kind_started_at", "kind", "started_at"),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("progress", sa.Text, nullable=False),
    sa.Column("fraction", sa.Double, nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False, index=True),
    sa.Column("started_at", sa.String(32)),
    sa.Column("ended_at", sa.String(32)),
    sa.Column("result", sa.Text),
    sa.Column("error", sa.Text),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("salt", sa.String(32), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("revoked_at", sa.String(32)),
    sa.Column("expires_at", sa.String(32)),
    sa.Column("last_used_at", sa.String(32)),
)
