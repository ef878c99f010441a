"""What came of a run in figures."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Runs that ended before have none."""
    op.add_column("runs", sa.Column("metrics", sa.Text))


def downgrade() -> None:
    """Forget them."""
    op.drop_column("runs", "metrics")
