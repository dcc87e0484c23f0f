"""The stage that keeps every change of a table that follows a database's log.

It reads the table of records as the table's own stage does, with a cursor of its own, and appends. Records
that are no rows are dead letters of the table's stage alone.

Belongs here: the stage. Does not belong here: what the history is declared as
(`pipelines/change_history.py`), and the versions of rows (`pipelines/row_versions.py`).
"""

from __future__ import annotations

from etl_assets.pipelines.change_history import SEQUENCE_COLUMN, history_columns, versions_name
from etl_assets.pipelines.declared import BATCH_ID, OFFSET, DeclaredTables
from etl_assets.pipelines.log_changes import CHANGE_COLUMN, log_of
from etl_assets.pipelines.postgres_cdc_spec import PostgresCdcSource
from etl_assets.pipelines.row_versions import RowVersions
from etl_assets.pipelines.stage import BuildStep, Stage
from etl_assets.pipelines.table_owners import lookups
from etl_assets.transforms.lacking_values import lacked_mark, lacking_columns


def history_stage(tables: DeclaredTables, history: DeclaredTables, build_step: BuildStep) -> Stage:
    """Return the stage.

    Args:
        tables: The tables of the pipeline.
        history: The tables of its history.
        build_step: Builds the step that appends.
    """
    return Stage(
        table=history.table,
        build_step=build_step,
        group=tables.spec.name,
        inputs=(tables.source.name,),
        lookups=tuple(dict.fromkeys(name for _, name in lookups(tables.spec))),
        owners=tables.spec.owners,
        versions=row_versions(tables, history),
    )


def row_versions(tables: DeclaredTables, history: DeclaredTables) -> RowVersions:
    """Return the query of the versions of a table's rows."""
    source = tables.spec.source
    log = log_of(source)
    assert log is not None  # a declaration with a history follows a log
    lacking = lacking_columns(tables)
    added = {*log.columns, *history_columns(source), OFFSET, BATCH_ID}
    return RowVersions(
        name=versions_name(tables.table.name),
        history=history.table.name,
        keys=tables.table.merge_key,
        columns=tuple(
            name for name in tables.table.names if name in history.table.names and name not in added
        ),
        sequence=log.sequence,
        sequence_type=tables.table.column(log.sequence).type,
        place="lsn" if isinstance(source, PostgresCdcSource) else "position",
        numbered=SEQUENCE_COLUMN in history_columns(source),
        change=CHANGE_COLUMN,
        lacks=None if lacking is None else lacking.lacks,
        fields={}
        if lacking is None
        else {name: lacked_mark(field) for name, field in lacking.fields.items()},
    )
