"""A declared pipeline as a value: its stages from the source to the table of records, to the table, and to
its sinks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from etl_assets.ingest.build_step import ingest_files
from etl_assets.ingest.open_source import source_opener
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.pipeline import FindHistory, FindTraced, Pipeline
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.pipelines.postgres_cdc_spec import PostgresCdcSource
from etl_assets.pipelines.stage import BuildStep, OpenSource, Stage
from etl_assets.pipelines.table_owners import followed, lookups
from etl_assets.pipelines.undo_policy import UndoPolicy
from etl_assets.steps.delivery_stage import delivery_stage
from etl_assets.steps.history_stage import history_stage
from etl_assets.steps.invariants import has_dense_offsets

if TYPE_CHECKING:
    from etl_assets.observability.history import History
    from etl_assets.observability.traced_records import TracedRecord
    from etl_assets.settings import Settings
    from etl_assets.steps.step import Step, StepArguments


def declared_pipeline(tables: DeclaredTables) -> Pipeline:
    """Return the pipeline of a declaration.

    Raises:
        ContractError: parts of the declaration contradict each other.
    """
    spec = tables.spec
    opened = source_opener(tables)
    direct = not spec.keeps_records
    return Pipeline(
        name=spec.name,
        sensor=spec.sensor_name,
        schedule=None if spec.schedule is None else spec.schedule.value,
        priority=spec.priority,
        invariants=() if direct else (has_dense_offsets(tables.source.name),),
        history=None if direct else _history(tables, opened),
        traced=None if direct else _traced(tables),
        path=(_direct(tables, opened),) if direct else _by_records(tables, opened),
        derived=(
            *(
                ()
                if tables.history is None
                else (history_stage(tables, tables.history, _load(tables.history, keeps_rejects=False)),)
            ),
            *(
                delivery_stage(
                    sink,
                    pipeline=spec.name,
                    group=spec.name,
                    table=tables.table,
                    tombstones=tables.tombstones,
                    owners=spec.owners,
                )
                for sink in spec.sinks
            ),
        ),
    )


def _by_records(tables: DeclaredTables, opened: OpenSource) -> tuple[Stage, ...]:
    """Return the stages of a pipeline that keeps records."""
    spec = tables.spec
    kept = UndoPolicy(
        refusal="its records were acknowledged, and their files would not be read again",
        fix=f"to make the rows of {tables.table.name} again: `etl-assets reprocess --tables"
        f" {tables.table.name}`",
    )
    return (
        Stage(
            table=tables.source,
            build_step=_ingest(tables),
            group=spec.name,
            placement=PlacementClass.INGEST,
            source=opened,
            follows=tuple(name for _, name in followed(spec)),
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
    )


def _direct(tables: DeclaredTables, opened: OpenSource) -> Stage:
    """Return the one stage of a pipeline that keeps no records."""
    name = tables.table.name
    kept = UndoPolicy(
        refusal="it is loaded with keep_records: false, so there are no records to make its rows from again",
        fix=f"to load the rows again from the source, give the table another name than {name} (`table.name`)",
    )
    return Stage(
        table=tables.table,
        build_step=_ingest(tables),
        group=tables.spec.name,
        placement=PlacementClass.INGEST,
        source=opened,
        keeps_records=False,
        rejects=tables.rejects,
        tombstones=tables.tombstones,
        undo=kept,
        undo_of_rejects=kept,
        owners=tables.spec.owners,
    )


def _ingest(tables: DeclaredTables) -> BuildStep:
    connection = getattr(tables.spec.source, "connection", None)

    def build(arguments: StepArguments) -> Step:
        from etl_assets.steps.connection_slots import limited

        name = tables.of_source.name
        step = ingest_files(name, None if tables.spec.keeps_records else tables)(arguments)
        return limited(step, arguments.settings, arguments.context, table=name, connection=connection)

    return build


def _load(tables: DeclaredTables, *, keeps_rejects: bool = True) -> BuildStep:
    source = tables.spec.source

    def build(arguments: StepArguments) -> Step:
        from etl_assets.steps.load_table import LoadTable

        step = LoadTable(
            context=arguments.context, mode=arguments.mode, tables=tables, keeps_rejects=keeps_rejects
        )
        if not isinstance(source, PostgresCdcSource) or source.capture is None:
            return step
        from etl_assets.sources.captures.connect import knows_all_columns

        knows = partial(knows_all_columns, tables.spec, source, arguments.settings)
        return replace(step, has_all_columns=knows)

    return build


def _history(tables: DeclaredTables, opened: OpenSource) -> FindHistory:
    def find(settings: Settings, record_id: str) -> History | None:
        from etl_assets.observability.record_history import find_record

        domain = settings.placement().reader()
        return find_record(domain, opened(settings, domain), tables, record_id)

    return find


def _traced(tables: DeclaredTables) -> FindTraced | None:
    if tables.table.trace_column is None:
        return None

    def find(settings: Settings, trace_id: str) -> Iterator[TracedRecord]:
        from etl_assets.observability.traced_records import find_traced

        return find_traced(settings.placement().reader(), tables, trace_id)

    return find
