"""Arrow schemas of contracts.

Belongs here: the Arrow type of each column type. Does not belong here: Spark's types (`spark_types.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl_assets.contracts.column_types import (
    ArrayType,
    ColumnType,
    DecimalType,
    MapType,
    ScalarType,
    StructType,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.contracts.columns import TableContract


def arrow_schema(contract: TableContract, *, without: Sequence[str] = ()) -> pa.Schema:
    """Return the Arrow schema of a contract's columns, except those named in `without`."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field(column.name, arrow_type(column.parsed_type), nullable=column.nullable)
            for column in contract.columns
            if column.name not in without
        ]
    )


def data_file_schema(contract: TableContract, *, without: Sequence[str] = ()) -> pa.Schema:
    """Return the Arrow schema of a data file: as `arrow_schema`, but all nullable, as Spark writes it."""
    import pyarrow as pa

    return pa.schema([column.with_nullable(True) for column in arrow_schema(contract, without=without)])


def arrow_type(type_: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column type."""
    import pyarrow as pa

    match type_:
        case ScalarType(name):
            scalars = {
                "STRING": pa.string(),
                "INT": pa.int32(),
                "BIGINT": pa.int64(),
                "TIMESTAMP": pa.timestamp("us", tz="UTC"),
                "DATE": pa.date32(),
                "BOOLEAN": pa.bool_(),
                "DOUBLE": pa.float64(),
            }
            return scalars[name]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ArrayType(element):
            return pa.list_(arrow_type(element))
        case MapType(key, value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case StructType(fields):
            return pa.struct([(name, arrow_type(each)) for name, each in fields])
