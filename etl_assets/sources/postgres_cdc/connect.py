"""Opening the log of a declared pipeline's table by a connection of the platform file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.errors import SourceRefused
from etl_assets.settings.connections import PostgresConnection
from etl_assets.sources.postgres_cdc.log_server import LogServer
from etl_assets.sources.postgres_cdc.source import PostgresLog
from etl_assets.sources.postgres_cdc.taken_columns import TakenColumns
from etl_assets.sources.sql.connect import postgres_address

if TYPE_CHECKING:
    from etl_assets.pipelines.postgres_cdc_spec import PostgresCdcSource
    from etl_assets.pipelines.spec import PipelineSpec
    from etl_assets.settings import Settings


def open_log(spec: PipelineSpec, source: PostgresCdcSource, settings: Settings) -> PostgresLog:
    """Return a log that can be read. Nothing is connected yet.

    Raises:
        SourceRefused: the connection is missing.
        SettingsError: an environment variable with a secret is not set.
        RuntimeMissing: the package psycopg is not installed.
    """
    found = settings.connections.get(source.connection)
    if not isinstance(found, PostgresConnection):
        raise SourceRefused(
            f"the platform file has no connection {source.connection!r} of type postgres",
            fix="add it under `connections:`",
            source=source.connection,
        )
    return PostgresLog(
        server=LogServer(
            name=source.connection,
            address=postgres_address(found),
            slot=source.slot,
            publication=source.publication,
            failover=source.failover,
            statement_timeout_seconds=found.statement_timeout_seconds,
        ),
        table=source.table,
        keys=tuple(spec.columns[key].from_ or key for key in spec.table.keys),
        schema=TakenColumns(
            table=source.table,
            declared={column.from_ or name: column.type for name, column in spec.columns.items()},
            policy=source.schema_changes,
        ),
        on_lost=source.on_lost,
        # Changes get values that they lack when they are applied, which is after the transforms.
        needs_all_values=bool(spec.transforms),
        max_transaction=source.part_records,
    )
