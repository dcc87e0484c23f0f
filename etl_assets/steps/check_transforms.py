"""What Spark's analyzer says about the transforms and conditions of a declaration, before any record is read.

Belongs here: the walk over the transforms with frames without rows. Does not belong here: the transforms
(`transforms/declared_transforms.py`), and how a command shows what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from etl_assets.contracts.columns import Column
from etl_assets.contracts.spark_types import spark_type
from etl_assets.delta.session import frame_of
from etl_assets.errors import EtlAssetsError
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.transforms.change_kinds import check_conditions
from etl_assets.transforms.declared_transforms import LEFT_OUT, DeclaredTransforms
from etl_assets.transforms.typed_records import ERROR, OFFSET, REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Finding = tuple[str, str, str]
"""The place in the declaration, such as `transforms.1`; what is wrong there; and how to fix it."""


def check_transforms(
    spark: SparkSession, tables: DeclaredTables, read_table: Callable[[str], DataFrame]
) -> list[Finding]:
    """Build each transform on the columns that the declaration says it gets, and return what is wrong.

    The conditions of the table's block are built on the columns after the last transform.

    Python functions of whole frames are called with a frame without rows; functions of record batches are
    imported and not called.

    Args:
        spark: The session.
        tables: The pipeline's tables, whose declaration contradicts itself nowhere.
        read_table: Reads another table of the catalog; only its columns matter.
    """
    transforms = DeclaredTransforms(spark=spark, tables=tables, read_table=read_table)
    with transforms.views():
        return list(_findings(transforms, tables))


def _findings(transforms: DeclaredTransforms, tables: DeclaredTables) -> Iterator[Finding]:
    for index in range(len(tables.spec.transforms)):
        try:
            frames = (no_rows(transforms.spark, tables.columns_after(each)) for each in tables.inputs[index])
            made = transforms.apply(index, *frames)
            _ = made.schema
        except EtlAssetsError as error:
            yield str(error.fields.get("field") or f"transforms.{index}"), error.message, error.fix
    columns = tables.columns_after(len(tables.spec.transforms) - 1)
    for error in check_conditions(no_rows(transforms.spark, columns), tables.spec.table):
        place = str(error.fields["field"])
        yield place, error.message.removeprefix(f"{place}: "), error.fix


def no_rows(spark: SparkSession, columns: tuple[Column, ...]) -> DataFrame:
    """Return a frame as a transform gets it, without rows."""
    from pyspark.sql import types

    fields = [types.StructField(column.name, spark_type(column.parsed_type)) for column in columns]
    hidden = {
        OFFSET: types.LongType(),
        REASON: types.StringType(),
        ERROR: types.StringType(),
        LEFT_OUT: types.BooleanType(),
    }
    fields += [types.StructField(name, type_) for name, type_ in hidden.items()]
    return frame_of(spark, [], types.StructType(fields))
