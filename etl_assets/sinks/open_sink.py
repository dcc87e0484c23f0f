"""From the declaration of a sink to the sink: find its connection, check that it allows the target, open."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from etl_assets.errors import SinkRefused
from etl_assets.pipelines.origin import DeclarationOrigin

if TYPE_CHECKING:
    from etl_assets.pipelines.sink_specs.base import BaseSinkSpec
    from etl_assets.settings import Settings
    from etl_assets.settings.connections import Connection
    from etl_assets.sinks.sink import Sink

OPENERS: Mapping[str, str] = {
    "postgres": "etl_assets.sinks.postgres.open:open_postgres",
    "duckdb": "etl_assets.sinks.duckdb.open:open_duckdb",
    "folder": "etl_assets.sinks.files.open:open_files",
    "object_store": "etl_assets.sinks.files.open:open_files",
    "kafka": "etl_assets.sinks.kafka.open:open_kafka",
    "search": "etl_assets.sinks.search.open:open_search",
    "webhook": "etl_assets.sinks.webhook.open:open_webhook",
}
"""For each type of sink, module and function that opens it: `open(spec, connection, settings, pipeline)`."""

Open = Callable[["BaseSinkSpec", "Connection", "Settings", str], "Sink"]


def open_sink(spec: BaseSinkSpec, settings: Settings, *, pipeline: str) -> Sink:
    """Open a sink.

    Raises:
        SinkRefused: there is no such connection, or it does not allow the target.
    """
    connection = allowed_connection(spec, settings, pipeline)
    module, _, function = OPENERS[spec.type].partition(":")
    opened: Open = getattr(importlib.import_module(module), function)
    return opened(spec, connection, settings, pipeline)


def allowed_connection(spec: BaseSinkSpec, settings: Settings, pipeline: str) -> Connection:
    """Return the connection of a sink, if pipelines may write the target by it.

    Raises:
        SinkRefused: there is no such connection, or it does not allow the target.
    """
    known = settings.connections
    connection = known.get(spec.connection)
    if connection is None or connection.type != spec.connection_type:
        names = [name for name, each in known.items() if each.type == spec.connection_type]
        near = difflib.get_close_matches(spec.connection, names, n=1)
        raise SinkRefused(
            f"the platform file has no connection {spec.connection!r} of type {spec.connection_type}",
            fix=f"did you mean {near[0]!r}?" if near else "add it to `connections` of the platform file",
            sink=spec.sink_name,
        )
    if not connection.allows(spec.target_name):
        raise SinkRefused(
            f"the connection {spec.connection} does not allow to write {spec.target_name}",
            fix=f"add it to connections.{spec.connection}.write of the platform file, now"
            f" [{', '.join(connection.write)}]",
            sink=spec.sink_name,
        )
    _expect_right_of_rest(spec, settings, pipeline)
    return connection


def _expect_right_of_rest(spec: BaseSinkSpec, settings: Settings, pipeline: str) -> None:
    """Refuse a target that a pipeline declared over REST may not write.

    Raises:
        SinkRefused: `rest` in the platform file does not allow it.
    """
    rights, name, target = settings.rest_rights, spec.connection, spec.target_name
    declared = settings.installed().declaration(pipeline)
    if declared is None or declared.origin is not DeclarationOrigin.REST:
        return
    if not rights.allows_writing(name, target, declared.tenant):
        raise SinkRefused(
            f"{pipeline} was declared over REST and may not write {name}/{target}",
            fix=f"add {name} to rest.connections and {name}/{target} to rest.write of the platform file, now"
            f" [{', '.join(rights.connections)}] and [{', '.join(rights.write)}]",
            sink=spec.sink_name,
        )
