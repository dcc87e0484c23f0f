"""DuckDB's types for the columns of a contract, and which of its types may become which.

Belongs here: names of types. Does not belong here: statements (`table.py`).
"""

from __future__ import annotations

import re

from etl_assets.contracts.column_types import (
    ArrayType,
    ColumnType,
    DecimalType,
    MapType,
    ScalarType,
    StructType,
)

_SCALARS = {
    "STRING": "VARCHAR",
    "INT": "INTEGER",
    "BIGINT": "BIGINT",
    "TIMESTAMP": "TIMESTAMP WITH TIME ZONE",
    "DATE": "DATE",
    "BOOLEAN": "BOOLEAN",
    "DOUBLE": "DOUBLE",
}
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def duckdb_type(type_: ColumnType) -> str:
    """Return the type in DuckDB, spelled as DuckDB spells it.

    Raises:
        KeyError: DuckDB has no type for it.
    """
    match type_:
        case ScalarType(name):
            return _SCALARS[name]
        case DecimalType(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case ArrayType(element):
            return f"{duckdb_type(element)}[]"
        case MapType(key, value):
            return f"MAP({duckdb_type(key)}, {duckdb_type(value)})"
        case StructType(fields):
            return f"STRUCT({', '.join(f'{quoted(name)} {duckdb_type(each)}' for name, each in fields)})"
    raise KeyError(str(type_))


def may_widen(found: str, wanted: str) -> bool:
    """Return whether every value of one of DuckDB's types is a value of the other."""
    if (found, wanted) in (("INTEGER", "BIGINT"), ("INTEGER", "DOUBLE")):
        return True
    old, new = _DECIMAL.fullmatch(found), _DECIMAL.fullmatch(wanted)
    if new is None:
        return False
    digits, scale = int(new[1]), int(new[2])
    if old is None:
        return digits - scale >= {"INTEGER": 10, "BIGINT": 19}.get(found, 99)
    return scale >= int(old[2]) and digits - scale >= int(old[1]) - int(old[2])
