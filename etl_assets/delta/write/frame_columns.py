"""Checks whether the columns of a user's frame can be stored: by themselves, and in the existing table.

They use types alone, before anything is written and without a Spark job. Does not belong here: the rows'
values (`checked_rows.py`), and tables with a contract (`contracts/spark_types.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from etl_assets.delta.write.upsert import check_columns
from etl_assets.delta.write.write_spec import WriteSpec
from etl_assets.errors import ContractError, SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table

_STORABLE = frozenset(
    [
        "string",
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "decimal",
        "boolean",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "array",
        "struct",
    ]
)
_PARTITION_TYPES = frozenset(
    ["string", "byte", "short", "integer", "long", "decimal", "boolean", "date", "timestamp", "timestamp_ntz"]
)
"""Types whose values the log and the folders of a table write and read back exactly."""
_REMEDIES = {
    "map": "store F.array_sort(F.map_entries({column})) instead, an ARRAY of STRUCTs; `write_mode` append or"
    " replace takes a MAP",
    "variant": "store F.to_json({column}) instead, a STRING",
    "void": "give it a type, for example F.lit(None).cast('string')",
}
_WIDER = ("byte", "short", "integer", "long"), ("float", "double")


def check_frame(spec: WriteSpec, schema: StructType, *, table: str, is_new: bool = True) -> None:
    """Refuse a frame that cannot become a table under its spec.

    If the table exists (`is_new` is False), a column without a type gets the table's type.

    Raises:
        ContractError: it lacks a column that the spec names, or the type of `delta_partition` is not allowed.
        SchemaMismatch: a name comes twice, or a column cannot be stored.
    """
    check_columns(spec.named, schema.names, table=table)
    lowered = Counter(name.lower() for name in schema.names)
    twice = [name for name in schema.names if lowered[name.lower()] > 1]
    if twice:
        raise SchemaMismatch(
            f"the rows for {table} have columns that differ in nothing but case: {', '.join(twice)}",
            fix="rename or drop all but one; after a join, drop the other side's",
            table=table,
            column=twice[0],
        )
    compared = spec.write_mode.by_key
    for field in schema.fields:
        if is_new or field.dataType.typeName() != "void":
            for part in _parts(field.dataType):
                _check_storable(field.name, part, table=table, compared=compared)
    if spec.delta_partition is not None:
        type_ = schema[spec.delta_partition].dataType
        if type_.typeName() not in _PARTITION_TYPES:
            raise ContractError(
                f"the column {spec.delta_partition} of {table} is {_sql(type_)} and cannot be its"
                " `delta_partition`",
                fix="cast it to STRING, DATE, TIMESTAMP, BOOLEAN, DECIMAL or a whole number, or name another"
                " column",
                table=table,
                column=spec.delta_partition,
            )


def columns_of(stored: Snapshot) -> StructType:
    """Return the columns of a table."""
    from pyspark.sql.types import StructType

    return StructType.fromJson({"type": "struct", "fields": stored.fields()})


def check_fits(schema: StructType, columns: StructType, table: Table) -> None:
    """Refuse a frame whose columns are not those of its table.

    A column may be narrower than the table's where every value stays the same: INT in a BIGINT column.
    Nothing is cast that may change a value.

    Raises:
        SchemaMismatch: carries `table` and `column`, with `expected` and `found` types where both have it.
    """
    for field in schema.fields:
        if field.name not in columns.names:
            raise _unknown(field.name, field.dataType, columns.names, table)
    for field in columns.fields:
        if field.name not in schema.names:
            raise SchemaMismatch(
                f"the rows for {table.name} lack its column {field.name} ({_sql(field.dataType)})",
                fix="return it from the asset, with NULL where it is unknown:"
                f" F.lit(None).cast('{field.dataType.simpleString()}')",
                table=table.name,
                column=field.name,
            )
        found = schema[field.name].dataType
        if not _fits(found, field.dataType):
            raise SchemaMismatch(
                f"the column {field.name} of the rows for {table.name} is {_sql(found)}, in its table it is"
                f" {_sql(field.dataType)}",
                fix=f"cast it in the asset: F.col({field.name!r}).cast('{field.dataType.simpleString()}');"
                " for another type in the table declare `schema_changes` widen, which takes wider numbers,"
                f" store the asset under a new name, or remove {table.path} and run all its partitions again",
                table=table.name,
                column=field.name,
                expected=_sql(field.dataType),
                found=_sql(found),
            )


def _unknown(name: str, type_: DataType, columns: list[str], table: Table) -> SchemaMismatch:
    similar = next((other for other in columns if other.lower() == name.lower()), None)
    if similar is not None:
        message, fix = f"in its table it is {similar}", f"rename it in the asset to {similar}"
    else:
        message = "which its table does not have"
        fix = "leave it out, or declare `schema_changes` add, which adds new columns to the table"
        if type_.typeName() == "void":
            fix = f"leave it out, or {_REMEDIES['void']}"
    return SchemaMismatch(
        f"the rows for {table.name} have the column {name} ({_sql(type_)}): {message}",
        fix=fix,
        table=table.name,
        column=name,
    )


def _fits(found: DataType, stored: DataType) -> bool:
    from pyspark.sql.types import DecimalType

    if found.simpleString() == stored.simpleString() or found.typeName() == "void":
        return True
    if isinstance(found, DecimalType) and isinstance(stored, DecimalType):
        return 0 <= stored.scale - found.scale <= stored.precision - found.precision
    return any(
        found.typeName() in order
        and stored.typeName() in order
        and order.index(found.typeName()) < order.index(stored.typeName())
        for order in _WIDER
    )


def _check_storable(column: str, type_: DataType, *, table: str, compared: bool) -> None:
    name = type_.typeName()
    if name in _STORABLE or (name == "map" and not compared):
        return
    remedy = _REMEDIES.get(name, "cast {column} to a type that can be stored, such as STRING")
    by = " by an upsert" if name == "map" else ""
    raise SchemaMismatch(
        f"the column {column} of the rows for {table} has the type {name.upper()}, which cannot be"
        f" stored{by}",
        fix=remedy.format(column=repr(column)),
        table=table,
        column=column,
    )


def _parts(type_: DataType) -> Iterator[DataType]:
    """Return a type and the types nested in it, except those nested in a type that cannot be stored."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    yield type_
    if isinstance(type_, ArrayType):
        yield from _parts(type_.elementType)
    if isinstance(type_, MapType):
        yield from (*_parts(type_.keyType), *_parts(type_.valueType))
    if isinstance(type_, StructType):
        for field in type_.fields:
            yield from _parts(field.dataType)


def _sql(type_: DataType) -> str:
    return type_.simpleString().upper()
