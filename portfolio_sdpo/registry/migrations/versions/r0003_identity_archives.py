"""An identity for the registry, archives of the audit log, and keys that expire."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rows of the audit log may be deleted only once they are recorded as archived."""
    identity = op.create_table(
        "identity",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("generation", sa.String(32), nullable=False),
    )
    op.bulk_insert(identity, [{"id": secrets.token_hex(16), "generation": secrets.token_hex(16)}])
    op.create_table(
        "audit_archives",
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
    heads = sa.table("heads", sa.column("name"), sa.column("seq"), sa.column("hash"))
    op.bulk_insert(heads, [{"name": "audit_archives", "seq": 0, "hash": "0" * 64}])
    op.add_column("api_keys", sa.Column("expires_at", sa.String(32)))
    op.add_column("api_keys", sa.Column("last_used_at", sa.String(32)))
    if op.get_bind().dialect.name == "sqlite":
        _guard_sqlite()
    else:
        _guard_postgresql()


def _guard_sqlite() -> None:
    op.execute("DROP TRIGGER audit_no_delete")
    op.execute(
        "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
        "WHEN OLD.seq > (SELECT COALESCE(MAX(last_seq), 0) FROM audit_archives) "
        "BEGIN SELECT RAISE(ABORT, 'audit only grows'); END"
    )
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_archives_no_{verb.lower()} BEFORE {verb} ON audit_archives "
            "BEGIN SELECT RAISE(ABORT, 'audit_archives only grows'); END"
        )


def _guard_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION refuse_unless_archived() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN "
        "IF TG_OP = 'DELETE' AND OLD.seq <= (SELECT COALESCE(MAX(last_seq), 0) FROM audit_archives) THEN "
        "RETURN OLD; END IF; "
        "RAISE EXCEPTION '% only grows', TG_TABLE_NAME; END $$"
    )
    op.execute("DROP TRIGGER audit_only_grows ON audit")
    op.execute(
        "CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE ON audit "
        "FOR EACH ROW EXECUTE FUNCTION refuse_unless_archived()"
    )
    op.execute(
        "CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )
    op.execute(
        "CREATE TRIGGER audit_archives_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_archives "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )


def downgrade() -> None:
    """Archived rows would be lost."""
    raise NotImplementedError("0003 cannot be undone; restore a backup of the registry instead.")
