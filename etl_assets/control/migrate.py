"""Bring the tables of the control store to the version that this code needs, one process at a time."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from etl_assets.control.schema import VERSION_TABLE
from etl_assets.errors import ControlStoreUnusable

HEAD = "0006"
"""The newest version, as a constant: a store that has it costs one query, and no import of Alembic."""
MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 0x65746C_61737365
"""Number of the advisory lock in PostgreSQL."""


def is_current(connection: sa.Connection) -> bool:
    """Return whether the tables have the version that this code needs.

    Raises:
        ControlStoreUnusable: a newer release has written them.
    """
    version = _version(connection)
    if version is not None and version > HEAD:
        raise ControlStoreUnusable(
            f"the control store has schema version {version}; this release knows {HEAD}",
            fix="run the newer release, which has written it, everywhere",
        )
    return version == HEAD


def migrate(connection: sa.Connection) -> None:
    """Apply the migrations that are missing, in the transaction of the caller, which must be a writing one.

    Two processes at once: SQLite's write lock, or an advisory lock until the end of the transaction, lets the
    second one wait and find nothing to do. A process that is killed leaves the tables as they were.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    if is_current(connection):
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(sa.text(f"SELECT max(version_num) FROM {VERSION_TABLE}")).scalar()
