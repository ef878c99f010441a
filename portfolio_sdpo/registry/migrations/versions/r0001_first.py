"""The first tables, and triggers that refuse to change what was said: promotions and audit only grow."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LOGS = ("promotions", "audit")


def upgrade() -> None:
    """Create everything."""
    op.create_table(
        "models",
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
    op.create_table(
        "model_parts",
        sa.Column("model_id", sa.String(80), sa.ForeignKey("models.id"), primary_key=True),
        sa.Column("name", sa.String(80), primary_key=True),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "promotions",
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
    op.create_table(
        "audit",
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
    heads = op.create_table(
        "heads",
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.bulk_insert(heads, [{"name": log, "seq": 0, "hash": "0" * 64} for log in LOGS])
    op.create_table(
        "runs",
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
    )
    op.create_index("ix_runs_kind_started_at", "runs", ["kind", "started_at"])
    op.create_table(
        "jobs",
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
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("salt", sa.String(32), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("revoked_at", sa.String(32)),
    )
    _refuse_changes()


def _refuse_changes() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for log in LOGS:
            for verb in ("UPDATE", "DELETE"):
                op.execute(
                    f"CREATE TRIGGER {log}_no_{verb.lower()} BEFORE {verb} ON {log} "
                    f"BEGIN SELECT RAISE(ABORT, '{log} only grows'); END"
                )
        return
    op.execute(
        "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION '% only grows', TG_TABLE_NAME; END $$"
    )
    for log in LOGS:
        op.execute(
            f"CREATE TRIGGER {log}_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON {log} "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )


def downgrade() -> None:
    """There is nothing before the first."""
    raise NotImplementedError("0001 is the first revision; restore a copy of the database instead.")
