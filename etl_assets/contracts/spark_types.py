"""Spark schema of a contract, and the comparison of a frame's columns with it.

Belongs here: what types alone can show. Does not belong here: anything that runs a Spark job; values are
checked by row rules (`rules.py`) and the full model (`pandera_models.py`). pyspark is imported inside
functions.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts import column_types
from etl_assets.contracts.column_types import ColumnType
from etl_assets.contracts.columns import Column, TableContract
from etl_assets.errors import SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDifference:
    """One difference between a frame's columns and its contract.

    Attributes:
        column: Name of the column, in the frame's spelling if the frame has it.
        expected: The declared type as Spark writes it; None for a column that the contract does not have.
        found: The frame's type; None for a missing column.
        fix: How to remove the difference.
    """

    column: str
    expected: str | None
    found: str | None
    fix: str

    def __str__(self) -> str:
        if self.expected is None:
            return f"unexpected column {self.column!r} ({self.found})"
        if self.found is None:
            return f"no column {self.column!r} (expected {self.expected})"
        return f"column {self.column!r} is {self.found} (expected {self.expected})"


def struct_type(contract: TableContract) -> StructType:
    """Return the Spark schema of a table, in the declared order, with nullability and descriptions."""
    from pyspark.sql import types

    return types.StructType(
        [
            types.StructField(
                column.name, spark_type(column.parsed_type), column.nullable, {"comment": column.description}
            )
            for column in contract.columns
        ]
    )


def schema_differences(
    contract: TableContract, schema: StructType, *, without: Collection[str] = ()
) -> tuple[SchemaDifference, ...]:
    """Return how a frame's columns differ from the declared ones by name and type; empty if they do not.

    Runs no Spark job. Order does not matter, because rows are written by name. Neither does nullability:
    Spark considers nearly every computed column nullable, and Delta itself refuses a null in a NOT NULL
    column.

    Args:
        contract: The table.
        schema: `DataFrame.schema`.
        without: Declared columns that the frame does not have yet.
    """
    expected = {column.name: column for column in contract.without(*without)}
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    names = [field.name for field in schema.fields]
    differences = [_judge(column, found) for column in expected.values()]
    differences += [
        SchemaDifference(column=name, expected=None, found=found[name], fix=_fix_unexpected(name, expected))
        for name in found
        if name not in expected
    ]
    differences += [
        SchemaDifference(
            column=name,
            expected="one column of that name",
            found=f"{names.count(name)} columns of that name",
            fix=f"keep one {name!r}; after a join, drop the other side's",
        )
        for name in found
        if names.count(name) > 1
    ]
    return tuple(difference for difference in differences if difference)


def log_differences(
    contract: TableContract, fields: Sequence[Mapping[str, Any]]
) -> tuple[SchemaDifference, ...]:
    """Return how a table's columns, as in its Delta log, differ from the declared ones.

    Additional columns are ignored.
    """
    from pyspark.sql import types

    schema = types.StructType.fromJson({"type": "struct", "fields": list(fields)})
    return tuple(each for each in schema_differences(contract, schema) if each.expected is not None)


def check_schema(contract: TableContract, schema: StructType, *, without: Collection[str] = ()) -> None:
    """Reject a frame whose columns differ from its contract by name or type. Runs no Spark job.

    Args:
        contract: The table.
        schema: `DataFrame.schema`.
        without: Declared columns that the frame does not have yet, such as those that the commit adds.

    Raises:
        SchemaMismatch: carries `table`, `column`, `expected` and `found` of the first difference, and all
            `differences`.
    """
    differences = schema_differences(contract, schema, without=without)
    if not differences:
        return
    first = differences[0]
    raise SchemaMismatch(
        f"the rows for {contract.name} do not fit its contract: {'; '.join(map(str, differences))}",
        fix="; ".join(difference.fix for difference in differences),
        table=contract.name,
        column=first.column,
        expected=first.expected,
        found=first.found,
        differences=differences,
    )


def _judge(column: Column, found: Mapping[str, str]) -> SchemaDifference | None:
    expected = spark_type(column.parsed_type).simpleString()
    actual = found.get(column.name)
    if actual == expected:
        return None
    if actual is None:
        fix = _fix_missing(column.name, found)
    else:
        fix = f"cast {column.name!r} to {column.type} where it is made, or change the contract"
    return SchemaDifference(column=column.name, expected=expected, found=actual, fix=fix)


def _fix_missing(name: str, found: Mapping[str, str]) -> str:
    near = _near(name, found)
    return f"rename {near!r} to {name!r}" if near else f"add the column {name!r}"


def _fix_unexpected(name: str, expected: Mapping[str, Column]) -> str:
    near = _near(name, expected)
    return f"rename {name!r} to {near!r}" if near else f"drop {name!r}, or add it to the contract"


def _near(name: str, names: Collection[str]) -> str | None:
    by_lower_case = {other.lower(): other for other in names}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.8)
    return by_lower_case[near[0]] if near else None


def spark_type(type_: ColumnType) -> DataType:
    """Return the Spark type of a column type."""
    from pyspark.sql import types

    match type_:
        case column_types.ScalarType(name):
            return {
                "STRING": types.StringType,
                "INT": types.IntegerType,
                "BIGINT": types.LongType,
                "TIMESTAMP": types.TimestampType,
                "DATE": types.DateType,
                "BOOLEAN": types.BooleanType,
                "DOUBLE": types.DoubleType,
            }[name]()
        case column_types.DecimalType(precision, scale):
            return types.DecimalType(precision, scale)
        case column_types.ArrayType(element):
            return types.ArrayType(spark_type(element))
        case column_types.MapType(key, value):
            return types.MapType(spark_type(key), spark_type(value))
        case column_types.StructType(fields):
            return types.StructType([types.StructField(name, spark_type(field)) for name, field in fields])
