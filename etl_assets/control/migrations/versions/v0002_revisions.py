"""Revisions of declarations that come over REST."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "control_revisions",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("declaration", sa.Text),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
    )
    op.create_index(
        "control_revisions_of_pipeline", "control_revisions", ["pipeline", "revision"], unique=True
    )


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("control_revisions")
