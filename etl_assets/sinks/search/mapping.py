"""Mappings: how an index holds the columns of a contract.

Belongs here: the field of each column type, and what may change in an index that exists. Does not belong
here: the text of values (`documents.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etl_assets.contracts.column_types import (
    ArrayType,
    ColumnType,
    DecimalType,
    MapType,
    ScalarType,
    StructType,
)
from etl_assets.contracts.columns import TableContract
from etl_assets.errors import SinkRefused
from etl_assets.sinks.search.documents import MAX_EXACT_DIGITS, STATE_FIELD

MAX_TERM_CHARACTERS = 8_191
"""Longer texts are stored and not indexed: at four bytes each, this is the engine's limit for a term. Without
it the engine would refuse the whole row."""
_SCALARS: Mapping[str, Mapping[str, Any]] = {
    "STRING": {"type": "keyword", "ignore_above": MAX_TERM_CHARACTERS},
    # As BIGINT, so that a column can be widened: an engine never changes the type of a field.
    "INT": {"type": "long"},
    "BIGINT": {"type": "long"},
    "TIMESTAMP": {"type": "date"},
    "DATE": {"type": "date"},
    "BOOLEAN": {"type": "boolean"},
    "DOUBLE": {"type": "double"},
}
_RESERVED = frozenset({STATE_FIELD, "_id", "_index", "_source", "_routing", "_version", "_type", "_ignored"})


def mapping_of(
    contract: TableContract, overrides: Mapping[str, Mapping[str, Any]], *, sink: str
) -> dict[str, Any]:
    """Return the mapping of an index for a table.

    Args:
        contract: The table.
        overrides: Fields that replace the default of their column, as the engine spells them.
        sink: The target, for errors.

    Raises:
        SinkRefused: a column cannot be a field, or an override names no column.
    """
    for name in contract.names:
        if name in _RESERVED:
            raise SinkRefused(
                f"{sink}: {contract.name} has a column {name}, which is reserved",
                fix="rename the column",
                sink=sink,
            )
    for name in contract.merge_key:
        if not isinstance(contract.column(name).parsed_type, ScalarType | DecimalType):
            raise SinkRefused(
                f"{sink}: the key column {name} is {contract.column(name).type}, which gives no document id",
                fix="use a key of simple values",
                sink=sink,
            )
    if unknown := sorted(set(overrides) - set(contract.names)):
        raise SinkRefused(
            f"{sink}: mappings names {unknown[0]!r}, which is no column of {contract.name}",
            fix=f"use one of {', '.join(contract.names)}",
            sink=sink,
        )
    fields = {
        column.name: dict(overrides.get(column.name, ())) or field_of(column.parsed_type)
        for column in contract.columns
    }
    state = {"properties": {"version": {"type": "long"}, "deleted": {"type": "boolean"}}}
    return {"dynamic": "strict", "properties": {**fields, STATE_FIELD: state}}


def field_of(type_: ColumnType) -> dict[str, Any]:
    """Return the field of a column type. A decimal is exact up to 15 digits, and a keyword beyond."""
    match type_:
        case ScalarType(name):
            return dict(_SCALARS[name])
        case DecimalType(precision, scale):
            if precision > MAX_EXACT_DIGITS:
                return {"type": "keyword"}
            return {"type": "scaled_float", "scaling_factor": float(10**scale)}
        case ArrayType(element):
            return field_of(element)
        case MapType():
            # Its keys are not known: stored, not indexed.
            return {"type": "object", "enabled": False}
        case StructType(fields):
            return {"properties": {name: field_of(each) for name, each in fields}}


def check_fields(wanted: Mapping[str, Any], found: Mapping[str, Any], *, index: str, sink: str) -> None:
    """Refuse an index whose fields have other types than the columns of the table.

    Args:
        wanted: `properties` of the mapping that the table needs.
        found: `properties` of the mapping that the index has.
        index: The index.
        sink: The target, for errors.

    Raises:
        SinkRefused: names the field and both types.
    """
    for name, field in wanted.items():
        if name in found and _kind(found[name]) != _kind(field):
            raise SinkRefused(
                f"{sink}: the field {name} of {index} is {_kind(found[name])}, not {_kind(field)};"
                " an engine never changes the type of a field",
                fix="give the sink another `index` (it gets the whole table), and point readers there",
                sink=sink,
                field=name,
            )
        if "properties" in field and name in found:
            check_fields(field["properties"], found[name].get("properties", {}), index=index, sink=sink)


def _kind(field: Mapping[str, Any]) -> str:
    kind = str(field.get("type", "object"))
    return f"{kind} × {float(field['scaling_factor']):g}" if "scaling_factor" in field else kind
