"""A declared pipeline as a value: its two stages, from the source to the table of records, and to the
table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.ingest.build_step import ingest_files
from etl_assets.pipelines.cross_checks import lookups
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.file_path import FileFormat, FilePath
from etl_assets.pipelines.pipeline import FindHistory, Pipeline
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.pipelines.source_specs import KAFKA, SQL, KafkaSource, SqlSource, TombstonePolicy
from etl_assets.pipelines.spec import FilesSource
from etl_assets.pipelines.stage import BuildStep, OpenSource, Stage
from etl_assets.pipelines.undo_policy import UndoPolicy
from etl_assets.steps.invariants import has_dense_offsets

if TYPE_CHECKING:
    from etl_assets.ingest.file_source import FileSource
    from etl_assets.observability.history import History
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings
    from etl_assets.sources.formats import RecordFormat
    from etl_assets.steps.step import Step, StepArguments

FILES = "files"
"""Name of the source of files, in the columns `source` of its tables."""


def declared_pipeline(tables: DeclaredTables) -> Pipeline:
    """Return the pipeline of a declaration.

    Raises:
        ContractError: parts of the declaration contradict each other.
    """
    spec = tables.spec
    kept = UndoPolicy(
        refusal="its records were acknowledged, and their files would not be read again",
        fix=f"to make the rows of {tables.table.name} again: `etl-assets reprocess --tables"
        f" {tables.table.name}`",
    )
    opened = _opened(spec.source, tables.source.name)
    return Pipeline(
        name=spec.name,
        sensor=spec.sensor_name,
        invariants=(has_dense_offsets(tables.source.name),),
        history=_history(tables, opened),
        path=(
            Stage(
                table=tables.source,
                build_step=ingest_files(tables.source.name),
                group=spec.name,
                placement=PlacementClass.INGEST,
                source=opened,
                rejects=tables.source_rejects,
                undo=kept,
                undo_of_rejects=kept,
                owners=spec.owners,
            ),
            Stage(
                table=tables.table,
                build_step=_load(tables),
                group=spec.name,
                inputs=(tables.source.name,),
                lookups=tuple(dict.fromkeys(name for _, name in lookups(spec))),
                rejects=tables.rejects,
                tombstones=tables.tombstones,
                undo_of_rejects=UndoPolicy(
                    refusal=f"it belongs to the rows of {tables.table.name}",
                    fix=f"restore {tables.table.name}, or reprocess it: the rejected rows go along",
                ),
                owners=spec.owners,
            ),
        ),
    )


def _load(tables: DeclaredTables) -> BuildStep:
    def build(arguments: StepArguments) -> Step:
        from etl_assets.steps.load_table import LoadTable

        return LoadTable(context=arguments.context, mode=arguments.mode, tables=tables)

    return build


def _history(tables: DeclaredTables, opened: OpenSource) -> FindHistory:
    def find(settings: Settings, record_id: str) -> History | None:
        from etl_assets.observability.record_history import find_record

        domain = settings.placement().reader()
        return find_record(domain, opened(settings, domain), tables, record_id)

    return find


def _opened(source: FilesSource | KafkaSource | SqlSource, table: str) -> OpenSource:
    """Return what opens a source in an installation."""
    if isinstance(source, KafkaSource):
        return _opened_topic(source, table)
    if isinstance(source, SqlSource):
        return _opened_query(source, table)

    def open_source(settings: Settings, domain: FailureDomain) -> FileSource:
        from etl_assets.ingest.file_source import FileSource
        from etl_assets.ingest.json_records import JsonRecords
        from etl_assets.sources.landing import REPLAYS, Folders
        from etl_assets.sources.replays import replays_folder

        path = FilePath.of(source.path)
        return FileSource(
            folders=(
                Folders(
                    source=FILES,
                    path=settings.home / path.folder,
                    format=_format(source),
                    pattern=path.pattern,
                    by_day=path.by_day,
                ),
                Folders(source=REPLAYS, path=replays_folder(domain, table)),
            ),
            records=JsonRecords(id_fields=source.id, max_record_bytes=source.max_record_bytes),
            settle_seconds=source.settle_seconds,
            max_batch_bytes=settings.landing.max_batch_bytes,
        )

    return open_source


def _opened_topic(source: KafkaSource, table: str) -> OpenSource:
    def open_source(settings: Settings, domain: FailureDomain) -> FileSource:
        from etl_assets.ingest.file_source import FileSource, Ranges
        from etl_assets.ingest.json_records import JsonRecords
        from etl_assets.sources.kafka.connect import client_options, shown_brokers
        from etl_assets.sources.kafka.source import KafkaTopic
        from etl_assets.sources.kafka.staged import StagedRecords
        from etl_assets.sources.landing import REPLAYS, Folders
        from etl_assets.sources.replays import replays_folder

        return FileSource(
            folders=(Folders(source=REPLAYS, path=replays_folder(domain, table)),),
            records=JsonRecords(id_fields=source.id, max_record_bytes=source.max_record_bytes),
            settle_seconds=0.0,
            max_batch_bytes=settings.landing.max_batch_bytes,
            ranges=Ranges(
                source=KAFKA,
                label=f"the topic {source.topic} at {shown_brokers(source, settings)}",
                open=lambda: KafkaTopic(
                    options=client_options(source, settings),
                    topic=source.topic,
                    start=source.start,
                    on_lost=source.on_lost,
                    table=table,
                ),
                format=StagedRecords(
                    include=source.include, keep_tombstones=source.tombstones is Tombstones.KEEP
                ),
                max_records=source.max_batch_records,
            ),
        )

    return open_source


def _opened_query(source: SqlSource, table: str) -> OpenSource:
    def open_source(settings: Settings, domain: FailureDomain) -> FileSource:
        from etl_assets.ingest.file_source import FileSource, Ranges
        from etl_assets.ingest.json_records import JsonRecords
        from etl_assets.sources.formats import JsonLines
        from etl_assets.sources.landing import REPLAYS, Folders
        from etl_assets.sources.replays import replays_folder
        from etl_assets.sources.sql.connect import open_query

        return FileSource(
            folders=(Folders(source=REPLAYS, path=replays_folder(domain, table)),),
            records=JsonRecords(
                id_fields=(source.incremental_id_key, source.incremental_key),
                max_record_bytes=source.max_record_bytes,
                changes=True,
            ),
            settle_seconds=0.0,
            max_batch_bytes=settings.landing.max_batch_bytes,
            ranges=Ranges(
                source=SQL,
                label=f"the query over the connection {source.connection}",
                open=lambda: open_query(source, settings, name=table),
                format=JsonLines(),
                max_records=source.max_batch_records,
            ),
        )

    return open_source


def _format(source: FilesSource) -> RecordFormat:
    """Return how the files of a source are read."""
    from etl_assets.sources.formats import Csv, JsonLines, Parquet

    match source.file_format:
        case FileFormat.JSON_LINES:
            return JsonLines()
        case FileFormat.CSV:
            return Csv(delimiter=source.value_delimiter, null_value=source.null_value)
        case FileFormat.PARQUET:
            return Parquet()
