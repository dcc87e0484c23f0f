"""What a pipeline must be whose rows go straight into its table, without a table of records.

Belongs here: the rules of the declaration. Does not belong here: the load itself (`ingest/direct_batch.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from etl_assets.contracts.column_types import DecimalType, ScalarType
from etl_assets.contracts.write_mode import WriteMode
from etl_assets.pipelines.source_specs import SqlSource

if TYPE_CHECKING:
    from etl_assets.contracts.columns import Column
    from etl_assets.pipelines.spec import PipelineSpec

OPTION = "keep_records: false"
_OR_KEEP = ", or remove keep_records"


def expect_direct_load(spec: PipelineSpec) -> None:
    """Check a declaration that says `keep_records: false`.

    Raises:
        ValueError: it has something that needs the records. Names it, and the fix.
    """
    if (problem := next(_problems(spec), None)) is not None:
        raise ValueError(f"{OPTION}: {problem}{_OR_KEEP}")


def _problems(spec: PipelineSpec) -> Iterator[str]:
    source = spec.source
    if isinstance(source, SqlSource):
        yield from _problems_of_query(spec, source)
    else:
        yield from _problems_of_transforms(spec, "compute in the database, or in a reader of the table")
    if spec.table.trace_context is not None:
        yield "records are found by their trace in the table of records; remove table.trace_context"
    if spec.table.history:
        yield "the history is made from the records; remove table.history"
    where = "in the query" if isinstance(source, SqlSource) else "in the database"
    for name, column in spec.columns.items():
        if column.matches is not None:
            yield (
                f"columns.{name}.matches is checked by Spark, record by record; remove it, and check it"
                f" {where} instead"
            )
        if column.type == "DOUBLE" and (column.at_least is not None or column.at_most is not None):
            yield f"columns.{name} is DOUBLE and has at_least or at_most; declare it as decimal"


def _problems_of_query(spec: PipelineSpec, source: SqlSource) -> Iterator[str]:
    if source.load != "incremental":
        yield (
            "a full load is compared with the records of the last one; use `load: incremental` with an"
            " incremental_key"
        )
    if source.detect_deletes_interval_seconds is not None:
        yield "deleted rows are found among the records; remove detect_deletes_interval_seconds"
    if source.overlap is not None:
        yield "the rows of an overlap are known by their records; remove overlap"
    yield from _problems_of_transforms(spec, "compute in the query instead")
    if (mode := spec.table.write_mode) not in (WriteMode.UPSERT, WriteMode.INSERT):
        yield (
            f"write_mode {mode} needs the records; use upsert or insert with keys, by which a row"
            " that is read twice counts once"
        )


def _problems_of_transforms(spec: PipelineSpec, instead: str) -> Iterator[str]:
    if spec.transforms:
        yield f"transforms take records; remove the transforms, and {instead}"


def problem_of_type(column: Column) -> str | None:
    """Return why a column cannot be loaded without records; None if it can."""
    if isinstance(column.parsed_type, ScalarType | DecimalType):
        return None
    return f"{OPTION}: {column.name} is {column.type}, and only columns of simple types are loaded directly"
