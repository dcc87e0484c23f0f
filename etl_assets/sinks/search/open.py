"""From a declaration and a connection to a search sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from etl_assets.sinks.search.client import Patience, SearchServer
from etl_assets.sinks.search.sink import SearchSink, SearchTarget

if TYPE_CHECKING:
    from etl_assets.pipelines.sink_specs.base import BaseSinkSpec
    from etl_assets.pipelines.sink_specs.search import SearchSinkSpec
    from etl_assets.settings import Settings
    from etl_assets.settings.connections import Connection, SearchConnection


def open_search(spec: BaseSinkSpec, connection: Connection, settings: Settings, pipeline: str) -> SearchSink:
    """Open the sink. Nothing is sent yet."""
    spec = cast("SearchSinkSpec", spec)
    connection = cast("SearchConnection", connection)
    server = server_of(connection)
    return SearchSink(
        SearchTarget(
            server=server,
            index=spec.index,
            write=connection.write,
            mappings=spec.mappings,
            settings=spec.settings,
            patience=Patience(timeout_seconds=connection.timeout_seconds),
        )
    )


def server_of(connection: SearchConnection) -> SearchServer:
    """Return how to reach the engine of a connection.

    Raises:
        SettingsError: its password cannot be read.
    """
    password = connection.password
    return SearchServer(
        urls=tuple(connection.urls),
        user=connection.user,
        password=None if password is None else password.value(),
        ca_file=connection.ca_file,
        address_of=connection.address_of,
    )
