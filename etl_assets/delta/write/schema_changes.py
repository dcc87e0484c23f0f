"""Changes that a frame may make to its table's columns by the asset's spec, and the commit that makes them.

Columns are added at the end, and become wider where Delta reads old files by the new type. `frame_columns.py`
refuses everything else before anything is written. Does not belong here: tables with a contract, whose
columns never change.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from etl_assets.contracts.sql_text import delta_table
from etl_assets.delta.session import driver_pid, frame_of, scoped_settings
from etl_assets.delta.write.write_spec import SchemaChanges
from etl_assets.delta.write.write_version import (
    DEFAULT_LOCK_WAIT_SECONDS,
    Place,
    moved_on,
    write_settings,
    write_version,
)
from etl_assets.delta.write.writing import writing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table

_WHOLE = ("byte", "short", "integer", "long")
_FLOATING = ("float", "double")
_MAX_DIGITS = 38
_WIDENS = {"delta.enableTypeWidening": "true"}
_HAS_LOCAL_TIMES = {"delta.feature.timestampNtz": "supported"}
_LOCAL_TIME = re.compile(r'"(type|elementType|keyType|valueType)":"timestamp_ntz"')
"""The type of a column, or of a part of one, in a schema as JSON."""


def columns_after(
    schema: StructType, stored: StructType, allowed: SchemaChanges, *, laid_out_by: Collection[str] = ()
) -> StructType:
    """Return the columns that a table needs to store a frame; its own columns if none may or must change.

    Args:
        schema: The frame's columns.
        stored: The table's columns.
        allowed: The changes allowed.
        laid_out_by: Delta partition columns, which keep their types.
    """
    from pyspark.sql.types import StructField, StructType

    if allowed is SchemaChanges.REJECT:
        return stored
    fields = [
        StructField(
            field.name, _wider(field.dataType, schema[field.name].dataType), field.nullable, field.metadata
        )
        if allowed is SchemaChanges.WIDEN and field.name in schema.names and field.name not in laid_out_by
        else field
        for field in stored.fields
    ]
    there = {name.lower() for name in stored.names}
    added = [
        StructField(field.name, field.dataType, nullable=True)
        for field in schema.fields
        # A column whose name differs in case only, or without a type, is refused by name later.
        if field.name.lower() not in there and field.dataType.typeName() != "void"
    ]
    return StructType([*fields, *added])


def _wider(stored: DataType, found: DataType) -> DataType:
    """Return the type that holds both, where Delta can widen the stored one to it; else the stored one."""
    from pyspark.sql.types import DecimalType

    if isinstance(stored, DecimalType) and isinstance(found, DecimalType):
        scale = max(stored.scale, found.scale)
        precision = max(stored.precision - stored.scale, found.precision - found.scale) + scale
        return DecimalType(precision, scale) if precision <= _MAX_DIGITS else stored
    for order in (_WHOLE, _FLOATING):
        if {stored.typeName(), found.typeName()} <= set(order):
            return max(stored, found, key=lambda type_: order.index(type_.typeName()))
    return stored


def change_columns(
    spark: SparkSession,
    table: Table,
    columns: StructType,
    *,
    base_version: int,
    widens: bool,
    wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS,
) -> int:
    """Commit new columns of a table, without rows; returns its new version.

    Wider columns give the table Delta's feature `typeWidening`, which readers other than Spark may not
    support.

    Raises:
        CommitConflict: the table has moved past `base_version`; nothing was written.
    """
    with writing(table, wait_seconds=wait_seconds, driver_pid=driver_pid(spark)):
        if (current := table.version()) != base_version:
            raise moved_on(table, current=current, base=base_version)
        version = base_version
        if needed := _needed(table.snapshot(base_version), columns, widens=widens):
            version = write_version(
                spark, table, version + 1, partial(_put_properties, spark, needed)
            ).version
        return write_version(spark, table, version + 1, partial(_put_columns, spark, columns)).version


def _needed(snapshot: Snapshot | None, columns: StructType, *, widens: bool) -> Mapping[str, str]:
    """Return the properties that a table needs first, for features that Delta does not enable by itself."""
    assert snapshot is not None  # the caller has checked the table's version
    needed = dict(_WIDENS) if widens and not _WIDENS.items() <= snapshot.properties.items() else {}
    if "timestampNtz" not in snapshot.named_features and _LOCAL_TIME.search(columns.json()):
        needed |= _HAS_LOCAL_TIMES
    return needed


def _put_properties(spark: SparkSession, properties: Mapping[str, str], place: Place, writer: str) -> None:
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    with scoped_settings(spark, write_settings(place, writer, {}, {})):
        spark.sql(f"ALTER TABLE {delta_table(place.path)} SET TBLPROPERTIES ({listed})")


def _put_columns(spark: SparkSession, columns: StructType, place: Place, writer: str) -> None:
    # ALTER TABLE would not do: a type as text does not say how the names within it are spelled.
    with scoped_settings(spark, write_settings(place, writer, {}, {})):
        empty = frame_of(spark, [], columns).write.format("delta").mode("append")
        empty.option("mergeSchema", "true").save(str(place.path))
