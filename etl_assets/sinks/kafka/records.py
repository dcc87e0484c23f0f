"""Rows as records: the keys as canonical JSON, the row as JSON.

Decimals are numbers with all their digits, times are ISO 8601 in UTC, maps are objects. JSON has no NaN and
no infinity: both are null.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson

from etl_assets.contracts import canonical_json
from etl_assets.contracts.column_types import ArrayType, ColumnType, MapType, StructType
from etl_assets.contracts.trace_context import trace_id_of

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.contracts.columns import TableContract

_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC | orjson.OPT_NON_STR_KEYS


def records(batch: pa.RecordBatch, contract: TableContract) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each row."""
    with_maps = {c.name: c.parsed_type for c in contract.columns if _has_map(c.parsed_type)}
    for row in batch.select(contract.names).to_pylist():
        for name, type_ in with_maps.items():
            row[name] = _plain(row[name], type_)
        yield key_of(row, contract.merge_key), orjson.dumps(row, default=_other, option=_OPTIONS)


def keys(batch: pa.RecordBatch, contract: TableContract) -> Iterator[bytes]:
    """Yield the key of each row of a batch of keys."""
    for row in batch.select(contract.merge_key).to_pylist():
        yield key_of(row, contract.merge_key)


def traceparents(batch: pa.RecordBatch, contract: TableContract) -> Iterable[str | None]:
    """Return the trace context that is sent with each row; None where there is none, or another text."""
    if contract.trace_column is None:
        return [None] * batch.num_rows
    values = batch.column(contract.trace_column).to_pylist()
    return [None if trace_id_of(each) is None else each for each in values]


def key_of(row: dict[str, Any], names: Sequence[str]) -> bytes:
    """Return the keys of a row: an object, its fields sorted."""
    key = {name: row[name] for name in names}
    return orjson.dumps(key, default=_other, option=_OPTIONS | orjson.OPT_SORT_KEYS)


def _other(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(canonical_json.write(value))
    raise TypeError(type(value).__name__)


def _has_map(type_: ColumnType) -> bool:
    match type_:
        case MapType():
            return True
        case ArrayType(element):
            return _has_map(element)
        case StructType(fields):
            return any(_has_map(each) for _, each in fields)
    return False


def _plain(value: Any, type_: ColumnType) -> Any:
    """Return a value in which maps are objects, as Arrow has them as lists of pairs."""
    if value is None:
        return None
    match type_:
        case MapType(_, of):
            return {_key_text(key): _plain(each, of) for key, each in value}
        case ArrayType(element):
            return [_plain(each, element) for each in value]
        case StructType(fields):
            return {name: _plain(value[name], each) for name, each in fields}
    return value


def _key_text(key: Any) -> Any:
    if isinstance(key, Decimal):
        return canonical_json.write(key).decode()
    return key if isinstance(key, (str, int, bool, dt.date, dt.datetime)) else str(key)
