"""Tables of the control store. `migrations/` makes them; a test compares both."""

from __future__ import annotations

import datetime as dt
from typing import Any

import sqlalchemy as sa

VERSION_TABLE = "control_schema_version"
"""Not Alembic's default name: Dagster's own tables may be in the same database."""


class UtcTime(sa.TypeDecorator[dt.datetime]):
    """A time with zone, in UTC. SQLite keeps none, and gets UTC."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: Any) -> dt.datetime | None:
        """Return the value in UTC."""
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(dt.UTC).replace(tzinfo=None)

    def process_result_value(self, value: dt.datetime | None, dialect: Any) -> dt.datetime | None:
        """Return the value with its zone."""
        if value is None:
            return None
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)


METADATA = sa.MetaData()

PIPELINES = sa.Table(
    "control_pipelines",
    METADATA,
    sa.Column("pipeline", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text),
    sa.Column("requested_run_id", sa.Text),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("since", UtcTime),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)
RUNS = sa.Table(
    "control_runs",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("pipeline", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("requested_at", UtcTime, nullable=False),
    sa.Column("requested_by", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("runner", sa.Text, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("batches", sa.BigInteger, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("busy_seconds", sa.Float, nullable=False),
    sa.Column("started_at", UtcTime),
    sa.Column("ended_at", UtcTime),
    sa.Column("error", sa.Text),
    sa.Column("solution", sa.Text),
    sa.Column("retry_policy", sa.Text),
    sa.Column("next_attempt_at", UtcTime),
    sa.Index("control_runs_of_pipeline", "pipeline", "requested_at", "id"),
)
RUN_KEYS = sa.Table(
    "control_run_keys",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
)
LEASES = sa.Table(
    "control_leases",
    METADATA,
    sa.Column("pipeline", sa.Text, primary_key=True),
    sa.Column("runner", sa.Text, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("beats", sa.BigInteger, nullable=False),
    sa.Column("lease_seconds", sa.Float, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
)
REVISIONS = sa.Table(
    "control_revisions",
    METADATA,
    # Number of the change, over all pipelines: the writer of the next one has seen all before.
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("pipeline", sa.Text, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("declaration", sa.Text),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Index("control_revisions_of_pipeline", "pipeline", "revision", unique=True),
)
CONNECTIONS = sa.Table(
    "control_connections",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    # None: it was deleted. The row keeps the name for its tenant, and no secret.
    sa.Column("content", sa.Text),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
)
AUDIT = sa.Table(
    "control_audit",
    METADATA,
    # SQLite counts up by itself in a column of exactly this type.
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("pipeline", sa.Text, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("start", sa.Text, nullable=False),
    sa.Column("end", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Index("control_audit_of_pipeline", "pipeline", "id"),
)
CAPTURE_TABLES = sa.Table(
    "control_capture_tables",
    METADATA,
    sa.Column("capture", sa.Text, primary_key=True),
    sa.Column("source_table", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
)
CAPTURE_SPOOLS = sa.Table(
    "control_capture_spools",
    METADATA,
    sa.Column("capture", sa.Text, primary_key=True),
    sa.Column("spool", sa.Text, nullable=False),
    sa.Column("system", sa.Text, nullable=False),
    sa.Column("timeline", sa.BigInteger, nullable=False),
    sa.Column("publication", sa.BigInteger, nullable=False),
)
