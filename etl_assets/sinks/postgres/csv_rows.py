"""Rows as CSV for COPY. Nested values and decimals are texts there, and bytes are in hexadecimal."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.scalar_texts import scalar_texts

if TYPE_CHECKING:
    import pyarrow as pa


def csv_of(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Return rows as CSV: a null is empty, and the empty text is in quotes."""
    import pyarrow as pa
    import pyarrow.csv

    columns = [_as_text(column) for column in rows.columns]
    out = io.BytesIO()
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
    pyarrow.csv.write_csv(pa.table(columns, names=rows.schema.names), out, options)
    return out.getvalue()


def json_of(row: dict[str, Any]) -> str:
    """Return a row, or its keys, as JSON."""
    return json.dumps(row, default=_value, ensure_ascii=False, sort_keys=True)


def _as_text(column: Any) -> Any:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_nested(kind):
        # NaN is not JSON: jsonb refuses the row.
        texts = [None if each is None else json_of(_plain(each, kind)) for each in column.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array(
            [None if each is None else "\\x" + each.hex() for each in column.to_pylist()], pa.string()
        )
    has_zone = pa.types.is_timestamp(kind) and kind.tz is not None
    return scalar_texts(column) if has_zone or pa.types.is_decimal(kind) else column


def _plain(value: Any, kind: Any) -> Any:
    """Return maps as objects; pyarrow has them as lists of pairs."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_map(kind):
        return {_name(key): _plain(each, kind.item_type) for key, each in value}
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    return value


def _name(key: Any) -> str:
    return key if isinstance(key, str) else json_of(key).strip('"')


def _value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(type(value).__name__)
