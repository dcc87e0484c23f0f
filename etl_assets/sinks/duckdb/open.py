"""Opening the sink of a declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from etl_assets.settings.connections import DuckdbConnection
from etl_assets.sinks.duckdb.sink import DuckdbSink

if TYPE_CHECKING:
    from etl_assets.pipelines.sink_specs.base import BaseSinkSpec
    from etl_assets.pipelines.sink_specs.duckdb import DuckdbSinkSpec
    from etl_assets.settings import Settings
    from etl_assets.settings.connections import Connection


def open_duckdb(spec: BaseSinkSpec, connection: Connection, settings: Settings, pipeline: str) -> DuckdbSink:
    """Open the sink. The file has to lie in the folder that the connection names, with links followed.

    Raises:
        SinkRefused: it does not.
    """
    assert isinstance(connection, DuckdbConnection)
    schema, _, table = cast("DuckdbSinkSpec", spec).table.rpartition(".")
    file = settings.home / connection.path
    return DuckdbSink(file, table, allowed=[file.parent], schema=schema or "main")
