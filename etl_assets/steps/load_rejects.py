"""The rejects of a load: the records behind rejected rows, committed as exceptions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.delta.write.staged import StagedRows
from etl_assets.errors import SchemaMismatch
from etl_assets.pipelines.declared import OFFSET, DeclaredTables
from etl_assets.steps.exceptions import Exceptions, commit_exceptions
from etl_assets.steps.step import StepContext
from etl_assets.transforms.exceptions import rejected_records
from etl_assets.transforms.typed_records import ERROR, REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def commit_rejects(
    context: StepContext,
    tables: DeclaredTables,
    staged: Sequence[DataFrame],
    records: DataFrame,
    folder: Path,
) -> None:
    """Commit the records of rejected rows, each once.

    Args:
        context: The step's context.
        tables: The pipeline's tables.
        staged: Rows with `_offset`, `_reason` and `_error`; those with a reason are rejected.
        records: The records that the rows were made from.
        folder: Folder for staged rows.

    Raises:
        SchemaMismatch: a transform has made rows of records that it did not get.
    """
    rejects = None
    for rows in staged:
        found = rows.where(f"{REASON} IS NOT NULL").select(OFFSET, REASON, ERROR)
        rejects = found if rejects is None else rejects.unionByName(found)
    assert rejects is not None  # a load stages rows at least once
    table = tables.table.name
    made = rejected_records(rejects, records, stage=table)
    path = str(folder / "rejects")
    made.write.parquet(path)
    kept = StagedRows(context.spark, path, made.schema)
    days = set(kept.here(["partition_date"]).column("partition_date").to_pylist())
    if None in days:
        raise SchemaMismatch(
            f"the transforms of {tables.spec.name} make rows whose {OFFSET} is of no record that they got",
            fix=f"keep `{OFFSET}` of the row of `input` that a row is made from",
            table=table,
            column=OFFSET,
        )
    exceptions = kept.frame.select(*made.columns)
    commit_exceptions(
        context,
        tables.rejects,
        lambda stamps: Exceptions(frame=stamps.on(exceptions)),
        output=table,
        days=days,
    )
