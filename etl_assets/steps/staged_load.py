"""Rows of a load, staged before anything is committed, and their figures.

Belongs here: what is staged, by Spark and by this process. Does not belong here: how rows are made, and what
is done with them (`load_table.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.arrow_types import arrow_type
from etl_assets.contracts.spark_types import spark_type
from etl_assets.contracts.sql_text import identifier
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.read.data_files import pieces_of
from etl_assets.delta.session import frame_of
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.delta.write.staged import StagedRows
from etl_assets.pipelines.declared import OFFSET, DeclaredTables
from etl_assets.steps.plain_stage import PlainRows, StagedRowsWriter, staged_columns
from etl_assets.steps.step import READ, REFUSED
from etl_assets.steps.unmet_expectations import fail_if_declared
from etl_assets.transforms.declared_transforms import GOES_ON, LEFT_OUT
from etl_assets.transforms.typed_records import REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession, types

FILTERED = "filtered"
"""Records that a filter left out, and no branch kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedLoad:
    """Staged rows and their figures.

    Attributes:
        rows: What Spark has staged: rows that go on, rejected ones and filtered ones; None if this process
            did everything.
        figures: Counts by name, and the bounds of the first key as `low` and `high`.
        plain: Where this process takes part: all rows that go on, those of `rows` too.
    """

    rows: StagedRows | None
    figures: Mapping[str, Any]
    plain: PlainRows | None = None

    def going_on(self, spark: SparkSession, tables: DeclaredTables) -> DataFrame:
        """Return the rows that go on as a frame, with the columns after the last transform and `_offset`."""
        if self.plain is None:
            assert self.rows is not None  # Spark has staged everything
            return self.rows.frame.where(GOES_ON)
        from pyspark.sql import functions as F
        from pyspark.sql import types

        fields = [
            types.StructField(column.name, spark_type(column.parsed_type))
            for column in staged_columns(tables)
        ]
        schema = types.StructType([*fields, types.StructField(OFFSET, types.LongType())])
        rows = _frame(spark, self.plain.files, schema)
        if tables.tombstones is None:
            return rows
        rows = rows.withColumns({IS_DELETED: F.lit(False), IS_TRUNCATE: F.lit(False)})
        wanted = {*tables.table.merge_key, *tables.order}
        of_deletes = [each for each in schema.fields if each.name in wanted]
        schema = types.StructType([*of_deletes, types.StructField(IS_TRUNCATE, types.BooleanType())])
        gone = _frame(spark, self.plain.deleted, schema).withColumn(IS_DELETED, ~F.col(IS_TRUNCATE))
        return rows.unionByName(gone, allowMissingColumns=True)


def _frame(spark: SparkSession, files: Sequence[Path], schema: types.StructType) -> DataFrame:
    if not files:
        return frame_of(spark, [], schema)
    return spark.read.schema(schema).parquet(*map(str, files))


def stage_rows(
    spark: SparkSession, tables: DeclaredTables, rows: DataFrame, folder: Path, *, is_last: bool
) -> StagedLoad:
    """Stage rows by Spark in a new folder, count them, and fail if an expectation says so.

    Raises:
        ExpectationFailed: it does. Carries `table`, `rule` and `rows`.
    """
    from pyspark.sql import functions as F

    kept = [
        F.when(F.expr(GOES_ON), F.col(name)).alias(name) if not name.startswith("_") else F.col(name)
        for name in rows.columns
    ]
    rows = rows.select(*kept)
    rows.write.parquet(str(folder))
    staged = StagedRows(spark, str(folder), rows.schema)
    figures: dict[str, Any] = {
        READ: F.count("*"),
        REFUSED: F.count_if(F.col(REASON).isNotNull()),
        FILTERED: F.count_if(F.col(LEFT_OUT)),
        "rows": F.count_if(F.expr(GOES_ON)),
    }
    figures |= {name: F.count_if(name) for name in rows.columns if name.startswith("_unmet_")}
    if is_last:
        if tables.tombstones is not None:
            figures |= {
                "deletes": F.count_if(F.expr(f"{GOES_ON} AND {IS_DELETED}")),
                "truncates": F.count_if(F.expr(f"{GOES_ON} AND {IS_TRUNCATE}")),
            }
        key = identifier(tables.table.merge_key[0])
        within = {"low": "min", "high": "max"}
        figures |= {name: F.expr(f"{each}({key}) FILTER (WHERE {GOES_ON})") for name, each in within.items()}
    counted = staged.frame.agg(*(value.alias(name) for name, value in figures.items())).collect()[0]
    done = StagedLoad(rows=staged, figures=counted.asDict())
    fail_if_declared(tables.spec, done.figures, table=tables.table.name)
    return done


def staged_here(
    plain: PlainRows, others: StagedLoad | None, tables: DeclaredTables, batch_id: int
) -> StagedLoad:
    """Return rows that this process has staged together with those that Spark made of the other records."""
    figures: dict[str, Any] = dict.fromkeys((READ, REFUSED, FILTERED, "rows", "deletes", "truncates"), 0)
    figures |= {"low": None, "high": None}
    if others is not None:
        figures = {**figures, **others.figures}
        if figures["rows"]:
            plain = PlainRows.together([plain, _of_others(others, tables, batch_id)])
    figures[READ] += plain.rows - figures["rows"]
    figures |= {"rows": plain.rows, "deletes": plain.deletes, "truncates": plain.truncates}
    if plain.bounds is not None:
        figures["low"], figures["high"] = plain.bounds
    return StagedLoad(rows=None if others is None else others.rows, figures=figures, plain=plain)


def _of_others(others: StagedLoad, tables: DeclaredTables, batch_id: int) -> PlainRows:
    """Return the rows that Spark has staged, written in the form of plain ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assert others.rows is not None  # there are some
    columns = {column.name: arrow_type(column.parsed_type) for column in staged_columns(tables)}
    flags = {} if tables.tombstones is None else {IS_DELETED: pa.bool_(), IS_TRUNCATE: pa.bool_()}
    schema = pa.schema([*columns.items(), *flags.items(), (OFFSET, pa.int64()), (REASON, pa.string())])
    path = others.rows.folder.with_suffix(".zstd.parquet")
    with StagedRowsWriter(tables=tables, batch_id=batch_id, path=path) as writer:
        for piece in (each for file in others.rows.files for each in pieces_of(file, schema)):
            good = piece.filter(pc.call_function("is_null", [piece.column(REASON)]))
            if good.num_rows:
                writer.write(good)
    return writer.staged
