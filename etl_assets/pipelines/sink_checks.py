"""What is wrong with the sinks of a declaration, beside what their own blocks show, and with its connections.

Belongs here: source and sinks and their connections, sinks and the table that they follow. Does not belong
here: the fields of a sink (`sink_specs/`), and delivery (`steps/deliver.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etl_assets.contracts.write_mode import WriteMode
from etl_assets.pipelines.connection_rights import ConnectionRights
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.files_spec import FilesSource
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.pipelines.postgres_cdc_spec import PostgresCdcSource
from etl_assets.pipelines.problem import Problem, dotted, near
from etl_assets.pipelines.reader_block import reader_block
from etl_assets.pipelines.sink_specs.webhook import WebhookSinkSpec
from etl_assets.pipelines.source_specs import KafkaSource, SqlSource
from etl_assets.pipelines.spec import PipelineSpec

_OF_SOURCES = {
    FilesSource: ("object_store",),
    KafkaSource: ("kafka",),
    SqlSource: ("postgres", "sql"),
    PostgresCdcSource: ("postgres",),
}
"""Types of connections that sources read by."""


def problems_of_targets(file: PipelineFile, connections: Sequence[ConnectionRights]) -> Iterator[Problem]:
    """Yield source and sinks whose connection is missing, of another type, or does not allow their target."""
    connections = [each for each in connections if each.is_known_to(file.tenant)]
    known = {each.name: each for each in connections}
    block, source = ((), None) if file.spec is None else reader_block(file.spec)
    wanted = next((types for kind, types in _OF_SOURCES.items() if isinstance(source, kind)), ())
    name = getattr(source, "connection", None)
    if wanted and name is not None:
        fitting = [each.name for each in connections if each.type in wanted]
        if name not in fitting:
            there = f"connections: {', '.join(fitting)}" if fitting else "add it to `connections` there"
            yield file.problem(
                (*block, "connection"),
                f"there is no connection `{name}` of type {' or '.join(wanted)} in the platform file",
                f"{near(name, fitting)}{there}",
            )
    for index, sink in enumerate(() if file.spec is None else file.spec.sinks):
        found = known.get(sink.connection)
        if found is None or found.type != sink.connection_type:
            names = [each.name for each in connections if each.type == sink.connection_type]
            what = f"there is no connection `{sink.connection}` of type {sink.connection_type}"
            there = f"connections: {', '.join(names)}" if names else "add it to `connections` there"
            yield file.problem(
                ("sinks", index, "connection"),
                f"{what} in the platform file",
                f"{near(sink.connection, names)}{there}",
            )
        elif not found.allows(sink.target_name):
            there = f"connections.{sink.connection}.write of the platform file"
            yield file.problem(
                ("sinks", index, sink.target_field),
                f"the connection `{sink.connection}` does not allow to write `{sink.target_name}`",
                f"add it to {there if found.tenant is None else '`write` of the connection'},"
                f" now [{', '.join(found.write)}]",
            )


def problems_of_sinks(file: PipelineFile, spec: PipelineSpec, tables: DeclaredTables) -> Iterator[Problem]:
    """Yield sinks that cannot follow the table of their pipeline."""
    if spec.table.write_mode is WriteMode.APPEND and (position := tables.first_that_repeats) is not None:
        transform = spec.transforms[position]
        for index in range(len(spec.sinks)):
            yield file.problem(
                ("sinks", index),
                "a sink keeps one row for each key, and an `append` table has the record's place as its key,"
                f" of which {dotted(('transforms', position))} ({transform.type}) may make several rows",
                "name the columns that identify a row: `write_mode: insert` or `upsert` with `keys`; or make"
                " one row of each record, by `map`, `filter` and `lookup` alone",
            )
    for index, sink in enumerate(spec.sinks):
        for name in sink.path_columns if isinstance(sink, WebhookSinkSpec) else ():
            if name not in tables.table.merge_key:
                keys = ", ".join(tables.table.merge_key)
                yield file.problem(
                    ("sinks", index, "path"),
                    f"`{{{name}}}` is not a key column of the table, so deleted rows have no value of it",
                    f"use key columns: {keys}",
                )
