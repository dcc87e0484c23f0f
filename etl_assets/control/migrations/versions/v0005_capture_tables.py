"""States of the tables that captures follow."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "control_capture_tables",
        sa.Column("capture", sa.Text, primary_key=True),
        sa.Column("source_table", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("control_capture_tables")
