"""The first version: pipelines, runs, leases, audit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "control_pipelines",
        sa.Column("pipeline", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("requested_run_id", sa.Text),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("since", sa.DateTime(timezone=True)),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_table(
        "control_runs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("requested_by", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("runner", sa.Text, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("batches", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("busy_seconds", sa.Float, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("error", sa.Text),
        sa.Column("solution", sa.Text),
        sa.Column("retry_policy", sa.Text),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True)),
    )
    op.create_index("control_runs_of_pipeline", "control_runs", ["pipeline", "requested_at", "id"])
    op.create_table(
        "control_leases",
        sa.Column("pipeline", sa.Text, primary_key=True),
        sa.Column("runner", sa.Text, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("beats", sa.BigInteger, nullable=False),
        sa.Column("lease_seconds", sa.Float, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "control_audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("start", sa.Text, nullable=False),
        sa.Column("end", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("token", sa.BigInteger, nullable=False),
    )
    op.create_index("control_audit_of_pipeline", "control_audit", ["pipeline", "id"])


def downgrade() -> None:
    """Remove the tables."""
    for table in ("control_audit", "control_leases", "control_runs", "control_pipelines"):
        op.drop_table(table)
