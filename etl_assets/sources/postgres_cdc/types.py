"""Which Arrow type a column of PostgreSQL becomes, by the OID of its type.

Belongs here: pure decisions over OIDs, type modifiers and policies. Does not belong here: asking a server for
its types (`type_catalog.py`), and reading values (`values.py`).

A type that Delta tables have becomes that type. Every other one, such as uuid, time, interval, json, inet,
ranges, enums and composites, becomes text as PostgreSQL writes it under `SESSION_SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from etl_assets.contracts.column_types import MAX_DECIMAL_PRECISION

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.sources.postgres_cdc.messages import TypeMessage

SESSION_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "client_encoding": "UTF8",
        "DateStyle": "ISO",
        "IntervalStyle": "iso_8601",
        "TimeZone": "UTC",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "lc_monetary": "C",
        "xmlbinary": "base64",
    }
)
"""Settings of every session whose values are read: a value then has one text, whatever the server's are."""
UNBOUNDED_SCALE = 18
"""Digits after the point of numeric without a precision, under `NumericPolicy.DECIMAL`."""
_MODIFIER_OFFSET = 4


class NumericPolicy(StrEnum):
    """What numeric becomes whose precision is not declared, or is more than 38 digits.

    TEXT: text, with all digits.
    DECIMAL: a decimal of 38 digits. A value that does not fit exactly is refused, and so is its row.
    """

    TEXT = "text"
    DECIMAL = "decimal"


class InfinityPolicy(StrEnum):
    """What the dates and times `infinity` and `-infinity` become.

    REJECT: the row is refused.
    LIMITS: the last and the first moment of the years 1 to 9999, between which Spark and Delta have dates.
    """

    REJECT = "reject"
    LIMITS = "limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePolicies:
    """What becomes of values that Arrow and Delta have no equivalent for."""

    numeric: NumericPolicy = NumericPolicy.TEXT
    infinity: InfinityPolicy = InfinityPolicy.REJECT


class ValueKind(StrEnum):
    """How a value's text is read."""

    BOOLEAN = "boolean"
    NUMBER = "number"
    NUMERIC = "numeric"
    BYTES = "bytes"
    DATE = "date"
    TIMESTAMP = "timestamp"
    LIST = "list"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    """What a column becomes.

    Attributes:
        kind: How its texts are read.
        arrow: The Arrow type.
        infinity: Policy for infinite dates and times.
        element: Type of the elements of a list.
        delimiter: What stands between them.
    """

    kind: ValueKind
    arrow: pa.DataType
    infinity: InfinityPolicy = InfinityPolicy.REJECT
    element: ValueType | None = None
    delimiter: str = ","


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresType:
    """A type of a server, as far as the values of its columns need it.

    Attributes:
        oid: Its OID.
        name: Its name.
        element: OID of the elements if it is an array, otherwise 0.
        delimiter: What stands between values of this type in an array.
        base: OID of the type below a domain, otherwise 0.
        base_modifier: The domain's type modifier.
    """

    oid: int
    name: str
    element: int = 0
    delimiter: str = ","
    base: int = 0
    base_modifier: int = -1


@dataclass(frozen=True, slots=True)
class _BuiltIn:
    oid: int
    array: int
    kind: ValueKind
    arrow: str = field(default="string")


_BUILT_IN: Final = {
    "bool": _BuiltIn(16, 1000, ValueKind.BOOLEAN, "bool"),
    "bytea": _BuiltIn(17, 1001, ValueKind.BYTES, "binary"),
    "int8": _BuiltIn(20, 1016, ValueKind.NUMBER, "int64"),
    "int2": _BuiltIn(21, 1005, ValueKind.NUMBER, "int16"),
    "int4": _BuiltIn(23, 1007, ValueKind.NUMBER, "int32"),
    "oid": _BuiltIn(26, 1028, ValueKind.NUMBER, "int64"),
    "float4": _BuiltIn(700, 1021, ValueKind.NUMBER, "float32"),
    "float8": _BuiltIn(701, 1022, ValueKind.NUMBER, "float64"),
    "date": _BuiltIn(1082, 1182, ValueKind.DATE, "date32"),
    "timestamp": _BuiltIn(1114, 1115, ValueKind.TIMESTAMP, "timestamp"),
    "timestamptz": _BuiltIn(1184, 1185, ValueKind.TIMESTAMP, "timestamptz"),
    "numeric": _BuiltIn(1700, 1231, ValueKind.NUMERIC),
    "char": _BuiltIn(18, 1002, ValueKind.TEXT),
    "name": _BuiltIn(19, 1003, ValueKind.TEXT),
    "text": _BuiltIn(25, 1009, ValueKind.TEXT),
    "json": _BuiltIn(114, 199, ValueKind.TEXT),
    "xml": _BuiltIn(142, 143, ValueKind.TEXT),
    "cidr": _BuiltIn(650, 651, ValueKind.TEXT),
    "money": _BuiltIn(790, 791, ValueKind.TEXT),
    "macaddr": _BuiltIn(829, 1040, ValueKind.TEXT),
    "inet": _BuiltIn(869, 1041, ValueKind.TEXT),
    "bpchar": _BuiltIn(1042, 1014, ValueKind.TEXT),
    "varchar": _BuiltIn(1043, 1015, ValueKind.TEXT),
    "time": _BuiltIn(1083, 1183, ValueKind.TEXT),
    "interval": _BuiltIn(1186, 1187, ValueKind.TEXT),
    "timetz": _BuiltIn(1266, 1270, ValueKind.TEXT),
    "bit": _BuiltIn(1560, 1561, ValueKind.TEXT),
    "varbit": _BuiltIn(1562, 1563, ValueKind.TEXT),
    "uuid": _BuiltIn(2950, 2951, ValueKind.TEXT),
    "jsonb": _BuiltIn(3802, 3807, ValueKind.TEXT),
}
_BY_OID: Final = {each.oid: each for each in _BUILT_IN.values()}
BUILT_IN_TYPES: Mapping[int, PostgresType] = MappingProxyType(
    {each.oid: PostgresType(oid=each.oid, name=name) for name, each in _BUILT_IN.items()}
    | {
        each.array: PostgresType(oid=each.array, name=f"_{name}", element=each.oid)
        for name, each in _BUILT_IN.items()
    }
)
"""The types that need no catalog: their OIDs are the same on every server."""


def announced_type(message: TypeMessage) -> PostgresType:
    """Return what the log itself says of a type: a domain's base type if that is built in."""
    base = _BUILT_IN.get(message.name) if message.schema == "pg_catalog" else None
    return PostgresType(oid=message.oid, name=message.name, base=0 if base is None else base.oid)


def value_type(
    oid: int, modifier: int, types: Mapping[int, PostgresType], policies: ValuePolicies
) -> ValueType:
    """Return what a column becomes.

    Args:
        oid: OID of its type.
        modifier: Its type modifier, -1 for none.
        types: The types that are known. One that is missing is text.
        policies: What becomes of values without an equivalent.
    """
    import pyarrow as pa

    known = types.get(oid)
    while known is not None and known.base:
        oid, modifier = known.base, known.base_modifier
        known = types.get(oid)
    if known is not None and known.element:
        element = value_type(known.element, modifier, types, policies)
        below = types.get(known.element)
        return ValueType(
            kind=ValueKind.LIST,
            arrow=pa.list_(element.arrow),
            element=element,
            delimiter="," if below is None else below.delimiter,
        )
    built_in = _BY_OID.get(oid)
    if built_in is None:
        return ValueType(kind=ValueKind.TEXT, arrow=pa.string())
    if built_in.kind is ValueKind.NUMERIC:
        return _numeric(modifier, policies.numeric)
    return ValueType(kind=built_in.kind, arrow=_arrow(built_in.arrow), infinity=policies.infinity)


def numeric_precision(modifier: int) -> tuple[int, int] | None:
    """Return precision and scale that a type modifier of numeric declares; the scale may be negative."""
    if modifier < _MODIFIER_OFFSET:
        return None
    packed = modifier - _MODIFIER_OFFSET
    scale = packed & 0x7FF  # eleven bits with a sign
    return packed >> 16 & 0xFFFF, scale - 0x800 if scale & 0x400 else scale


def _numeric(modifier: int, policy: NumericPolicy) -> ValueType:
    import pyarrow as pa

    declared = numeric_precision(modifier)
    if declared is not None:
        precision, scale = declared
        # Numbers of numeric(3,-2) have five digits, those of numeric(3,5) five after the point.
        digits, scale = max(precision, scale, precision - scale), max(scale, 0)
        if digits <= MAX_DECIMAL_PRECISION:
            return ValueType(kind=ValueKind.NUMERIC, arrow=pa.decimal128(digits, scale))
    if policy is NumericPolicy.TEXT:
        return ValueType(kind=ValueKind.TEXT, arrow=pa.string())
    scale = UNBOUNDED_SCALE if declared is None else min(max(declared[1], 0), MAX_DECIMAL_PRECISION)
    return ValueType(kind=ValueKind.NUMERIC, arrow=pa.decimal128(MAX_DECIMAL_PRECISION, scale))


def _arrow(name: str) -> pa.DataType:
    import pyarrow as pa

    match name:
        case "timestamp":
            return pa.timestamp("us")
        case "timestamptz":
            return pa.timestamp("us", "UTC")
        case _:
            return pa.type_for_alias(name)
