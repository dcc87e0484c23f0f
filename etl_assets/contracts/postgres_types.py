"""PostgreSQL types of column types, and which existing types hold them."""

from __future__ import annotations

import re

from etl_assets.contracts.column_types import ColumnType, DecimalType, ScalarType

_SCALARS = {
    "STRING": "text",
    "INT": "integer",
    "BIGINT": "bigint",
    "TIMESTAMP": "timestamp with time zone",
    "TIMESTAMP_NTZ": "timestamp without time zone",
    "DATE": "date",
    "BOOLEAN": "boolean",
    "DOUBLE": "double precision",
    "FLOAT": "real",
    "BINARY": "bytea",
}
_WIDER = {
    "integer": ("bigint", "numeric", "double precision"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "date": ("timestamp without time zone",),
    "jsonb": (),
}
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")


def postgres_type(type_: ColumnType) -> str:
    """Return the type, as `format_type` spells it. Arrays, maps and structs are jsonb."""
    match type_:
        case ScalarType(name):
            return _SCALARS[name]
        case DecimalType(precision, scale):
            return f"numeric({precision},{scale})"
        case _:
            return "jsonb"


def holds(there: str, wanted: str) -> bool:
    """Return whether a column of a type takes every value of another type."""
    if there == wanted or there in _WIDER.get(wanted, ()):
        return True
    if there == "json" and wanted == "jsonb":
        return False  # json values cannot be compared
    if wanted.startswith("numeric("):
        return there == "numeric" or _numeric_holds(there, wanted)
    whole = {"integer": "numeric(10,0)", "bigint": "numeric(19,0)"}.get(wanted)
    return whole is not None and _numeric_holds(there, whole)


def can_widen(there: str, wanted: str) -> bool:
    """Return whether PostgreSQL can change a column to a type without losing a value."""
    return holds(wanted, there) and wanted != there


def _numeric_holds(there: str, wanted: str) -> bool:
    one, other = _NUMERIC.fullmatch(there), _NUMERIC.fullmatch(wanted)
    if one is None or other is None:
        return False
    (precision, scale), (needs, needs_scale) = (map(int, each.groups()) for each in (one, other))
    return scale >= needs_scale and precision - scale >= needs - needs_scale
