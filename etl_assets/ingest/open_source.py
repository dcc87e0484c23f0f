"""From the declaration of a source to the source in an installation.

Belongs here: which folders, formats and connections a declared source has. Does not belong here: the
declarations (`pipelines/`), and reading (`sources/`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.pipelines.debezium_spec import DEBEZIUM, DebeziumSource
from etl_assets.pipelines.file_path import FileFormat, FilePath
from etl_assets.pipelines.files_spec import FilesSource
from etl_assets.pipelines.postgres_cdc_spec import POSTGRES_CDC, PostgresCdcSource
from etl_assets.pipelines.source_specs import (
    KAFKA,
    SQL,
    HttpSource,
    KafkaSource,
    SqlLoad,
    SqlSource,
    TombstonePolicy,
)
from etl_assets.pipelines.table_source_spec import TABLE, TABLE_DELETED_FIELD, TableSource

if TYPE_CHECKING:
    from etl_assets.ingest.file_source import FileSource, Ranges
    from etl_assets.pipelines.declared import DeclaredTables
    from etl_assets.pipelines.spec import PipelineSpec
    from etl_assets.pipelines.stage import OpenSource
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings
    from etl_assets.sources.debezium.record_format import ChangeEvents
    from etl_assets.sources.formats import RecordFormat
    from etl_assets.sources.landing import Folders
    from etl_assets.sources.ranges import RangeSource
    from etl_assets.sources.sql.typed_rows import TypedRows

FILES = "files"
"""Name of the source of files, in the columns `source` of its tables."""


def source_opener(tables: DeclaredTables) -> OpenSource:
    """Return what opens the source of a declared pipeline."""
    source, table = tables.spec.source, tables.of_source.name

    def open_source(settings: Settings, domain: FailureDomain) -> FileSource:
        from etl_assets.ingest.file_source import FileSource
        from etl_assets.ingest.json_records import JsonRecords
        from etl_assets.sources.formats import JSON_LINES
        from etl_assets.sources.landing import REPLAYS, Folders
        from etl_assets.sources.replays import replays_folder

        folders: tuple[Folders, ...] = ()
        ranges: Ranges | None = None
        # Objects and journal files appear when they are complete, and ranges are read as they are.
        settle_seconds, id_fields = 0.0, ()
        of_replays: RecordFormat = JSON_LINES
        match source:
            case FilesSource():
                folders = (_folders(source, settings),)
                id_fields = source.id
                settle_seconds = source.settle_seconds if source.connection is None else 0.0
            case HttpSource():
                folders, id_fields = (_journal(tables.spec.name, source, domain),), source.id
            case KafkaSource():
                ranges, id_fields = _topic(source, settings, table), source.id
            case SqlSource():
                ranges = _query(tables, source, settings)
                id_fields = source.id or tuple(reversed(source.keys))
            case PostgresCdcSource():
                ranges, id_fields = _log(tables.spec, source, settings), source.id
            case TableSource():
                ranges = _changes(tables, source, domain)
                id_fields = tables.contract_of(source.table).merge_key
            case DebeziumSource(from_=FilesSource() as files):
                folder = _folders(files, settings)
                of_replays = _change_events(tables.spec, source, folder.format)
                folders, id_fields = (replace(folder, format=of_replays),), source.id
                settle_seconds = files.settle_seconds if files.connection is None else 0.0
            case DebeziumSource(from_=KafkaSource() as topic):
                of_replays = _change_events(tables.spec, source, JSON_LINES)
                ranges, id_fields = _events(tables.spec, source, topic, settings, table), source.id
        return FileSource(
            folders=(
                *folders,
                Folders(source=REPLAYS, path=replays_folder(domain, table), format=of_replays),
            ),
            records=JsonRecords(
                id_fields=id_fields,
                max_record_bytes=source.max_record_bytes,
                # A row of a full load is a record of this load: one that is like an earlier one is another.
                changes=isinstance(source, DebeziumSource)
                or (isinstance(source, SqlSource) and source.load is SqlLoad.INCREMENTAL),
            ),
            settle_seconds=settle_seconds,
            max_batch_bytes=settings.landing.max_batch_bytes,
            ranges=ranges,
        )

    return open_source


def _folders(source: FilesSource, settings: Settings) -> Folders:
    from etl_assets.sources.landing import Folders

    path = FilePath.of(source.path)
    if source.connection is not None:
        from etl_assets.sources.objects.connect import bucket_of
        from etl_assets.sources.objects.folders import ObjectFolders

        return ObjectFolders(
            source=FILES,
            format=_format(source),
            pattern=path.pattern,
            by_day=path.by_day,
            bucket=bucket_of(source.connection, settings),
            prefix="" if path.folder == Path() else path.folder.as_posix(),
            manifest=source.manifest,
        )
    return Folders(
        source=FILES,
        path=settings.home / path.folder,
        format=_format(source),
        pattern=path.pattern,
        by_day=path.by_day,
    )


def _format(source: FilesSource) -> RecordFormat:
    from etl_assets.sources.formats import Csv, JsonLines, Parquet

    match source.file_format:
        case FileFormat.JSON_LINES:
            return JsonLines()
        case FileFormat.CSV:
            return Csv(delimiter=source.value_delimiter, null_value=source.null_value)
        case FileFormat.PARQUET:
            return Parquet()


def _journal(pipeline: str, source: HttpSource, domain: FailureDomain) -> Folders:
    from etl_assets.sources.http.catch_up import journal_folder
    from etl_assets.sources.http.journal_file import HTTP
    from etl_assets.sources.http.journal_lines import JournalLines
    from etl_assets.sources.landing import Folders

    lines = JournalLines(with_traceparent=bool(source.include))
    return Folders(source=HTTP, path=journal_folder(domain, pipeline), format=lines)


def _topic(source: KafkaSource, settings: Settings, table: str, *, has_change_events: bool = False) -> Ranges:
    from etl_assets.ingest.file_source import Ranges
    from etl_assets.sources.kafka.connect import client_options, registry_values, shown_brokers
    from etl_assets.sources.kafka.source import KafkaTopic
    from etl_assets.sources.kafka.staged import StagedRecords

    keeps_tombstones = source.tombstones is TombstonePolicy.KEEP
    return Ranges(
        source=KAFKA,
        label=f"the topic {source.topic} at {shown_brokers(source, settings)}",
        open=lambda: KafkaTopic(
            options=client_options(source, settings),
            topic=source.topic,
            start=source.start,
            on_lost=source.on_lost,
            table=table,
            values=registry_values(source, settings, has_change_events=has_change_events),
        ),
        format=StagedRecords(include=source.include, keep_tombstones=keeps_tombstones),
        max_records=source.max_batch_records,
    )


def _change_events(spec: PipelineSpec, source: DebeziumSource, inner: RecordFormat) -> ChangeEvents:
    from etl_assets.sources.debezium.envelopes import EventReader
    from etl_assets.sources.debezium.record_format import ChangeEvents
    from etl_assets.sources.debezium.value_types import declared

    fields = {column.from_ or name: column.type for name, column in spec.columns.items()}
    return ChangeEvents(
        inner=inner,
        events=EventReader(
            connector=source.connector,
            table=source.table,
            keys=tuple(spec.columns[name].from_ or name for name in spec.table.keys),
            fields={name: type_ for name, type_ in fields.items() if not name.startswith("debezium.")},
            types={name: declared(type_) for name, type_ in source.types.items()},
            unavailable_value=source.unavailable_value,
            keeps_values=not spec.transforms,
            required=frozenset(each.from_ or name for name, each in spec.columns.items() if each.required),
        ),
    )


def _events(
    spec: PipelineSpec, source: DebeziumSource, topic: KafkaSource, settings: Settings, table: str
) -> Ranges:
    """Return the ranges of a topic of change events, with the keys of its messages."""
    from etl_assets.sources.kafka.staged import StagedRecords

    staged = StagedRecords(include=("key",), keep_tombstones=True)
    return replace(
        _topic(topic, settings, table, has_change_events=True),
        source=DEBEZIUM,
        format=_change_events(spec, source, staged),
    )


def _query(tables: DeclaredTables, source: SqlSource, settings: Settings) -> Ranges:
    from etl_assets.ingest.file_source import Ranges
    from etl_assets.sources.formats import JsonLines
    from etl_assets.sources.sql.comparison import QueryComparison
    from etl_assets.sources.sql.connect import open_query
    from etl_assets.sources.sql.staged import QueryLines

    name, rows = tables.of_source.name, None if source.keep_records else _typed_rows(tables, source)
    return Ranges(
        source=SQL,
        label=f"the query over the connection {source.connection}",
        open=lambda: open_query(source, settings, name=name, rows=rows),
        format=QueryLines() if source.reports_deletes else JsonLines(),
        max_records=source.max_batch_records,
        compare=QueryComparison(source=SQL, id=source.identity, order=_order(tables.spec))
        if source.reports_deletes
        else None,
    )


def _typed_rows(tables: DeclaredTables, source: SqlSource) -> TypedRows:
    """Return the columns that are read where no records are kept."""
    from etl_assets.sources.sql.typed_rows import TypedField, TypedRows
    from etl_assets.steps.plain_stage import plain_records, record_columns

    records = plain_records(tables)
    assert records is not None  # the declaration is refused otherwise
    key, id_ = source.keys
    fields = {name: column.from_ or name for name, column in tables.spec.columns.items()}
    table = tables.spec.table
    # Without two rows of one key and one place in the sequence, their order says nothing.
    any_order = (
        table.sequence_by is not None
        and fields[table.sequence_by] == key
        and id_ in (fields[name] for name in table.keys)
    )
    return TypedRows(
        fields=tuple(TypedField(column=each.column, field=each.field) for each in record_columns(tables)),
        rules_hold=records.rules_hold,
        max_record_bytes=source.max_record_bytes,
        in_order=not any_order,
    )


def _log(spec: PipelineSpec, source: PostgresCdcSource, settings: Settings) -> Ranges:
    from etl_assets.ingest.file_source import Ranges
    from etl_assets.sources.captures.connect import open_captured_table
    from etl_assets.sources.postgres_cdc.connect import open_log
    from etl_assets.sources.postgres_cdc.staged import StagedChanges

    def opened() -> RangeSource:
        return (
            open_log(spec, source, settings)
            if source.capture is None
            else open_captured_table(spec, source, settings)
        )

    return Ranges(
        source=POSTGRES_CDC,
        label=f"the log of {source.table} over the connection {source.connection}",
        open=opened,
        format=StagedChanges(),
        max_records=source.max_batch_records,
    )


def _changes(tables: DeclaredTables, source: TableSource, domain: FailureDomain) -> Ranges:
    from etl_assets.ingest.file_source import Ranges
    from etl_assets.pipelines.followed_tables import columns_of_records, needs_former_values
    from etl_assets.sources.sql.comparison import QueryComparison
    from etl_assets.sources.sql.staged import QueryLines
    from etl_assets.sources.table.source import FollowedTable
    from etl_assets.sources.table.staged import TableComparison
    from etl_assets.steps.step import platform_table

    contract = tables.contract_of(source.table)
    stage = domain.catalog.stage_of(source.table)
    with_former = needs_former_values(tables)
    return Ranges(
        source=TABLE,
        label=f"the table {source.table}",
        open=lambda: FollowedTable(
            table=platform_table(source.table, domain),
            contract=contract,
            columns=columns_of_records(contract),
            has_deletes=stage is not None and stage.tombstones is not None,
            with_former=with_former,
        ),
        format=QueryLines(deleted_field=TABLE_DELETED_FIELD),
        max_records=source.max_batch_records,
        compare=TableComparison(
            name=source.table,
            of_query=QueryComparison(
                source=TABLE,
                id=contract.merge_key,
                deleted_field=TABLE_DELETED_FIELD,
                with_former=with_former,
            ),
        ),
    )


def _order(spec: PipelineSpec) -> Callable[[Mapping[str, Any]], Any] | None:
    """Return what a record's place in the table's sequence is, as far as the record alone says so."""
    name = spec.table.sequence_by
    column = None if name is None else spec.columns.get(name)
    if name is None or column is None:
        return None
    field = column.from_ or name
    if column.type in ("STRING", "TIMESTAMP", "DATE"):
        return lambda record: None if record.get(field) is None else str(record[field])
    return lambda record: None if record.get(field) is None else Decimal(str(record[field]))
