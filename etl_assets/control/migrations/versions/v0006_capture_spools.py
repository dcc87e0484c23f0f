"""Which spool each capture has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "control_capture_spools",
        sa.Column("capture", sa.Text, primary_key=True),
        sa.Column("spool", sa.Text, nullable=False),
        sa.Column("system", sa.Text, nullable=False),
        sa.Column("timeline", sa.BigInteger, nullable=False),
        sa.Column("publication", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("control_capture_spools")
