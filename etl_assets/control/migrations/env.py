"""Run by Alembic for each upgrade; it takes the connection and the transaction of `migrate`."""

from __future__ import annotations

from alembic import context

from etl_assets.control.schema import METADATA, VERSION_TABLE


def _run() -> None:
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=METADATA,
        version_table=VERSION_TABLE,
        transactional_ddl=False,  # the transaction is the caller's
    )
    context.run_migrations()


_run()
