"""Arrow types that can be stored, and their stored types: for frames that are not Spark's.

Values never change: a type becomes a wider one or an equivalent one, or is refused with its column's name.
Does not belong here: pandas or Polars (`returned_frames.py`), and what a table does with a type
(`delta/write/frame_columns.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.errors import SchemaMismatch

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_DIGITS = 38
_ZONE = "UTC"


def storable(table: pa.Table, *, asset: str) -> pa.Table:
    """Return a table with the same values and types that Spark and Delta have.

    Raises:
        SchemaMismatch: a column's type cannot be stored, or its stored type cannot hold a value.
    """
    import pyarrow as pa

    fields, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        type_ = _stored_type(field.name, field.type, asset=asset)
        try:
            columns.append(column if column.type == type_ else column.cast(type_))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(
                f"the column {field.name} that the asset {asset} returned is {field.type} and has a value"
                f" which {type_}, its type as stored, cannot hold",
                fix="round or cast it in the asset; Delta keeps microseconds",
                asset=asset,
                column=field.name,
                found=str(field.type),
                expected=str(type_),
            ) from error
        fields.append(pa.field(field.name, type_))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _stored_type(column: str, type_: pa.DataType, *, asset: str) -> pa.DataType:
    found = _nested_type(column, type_, asset=asset) or _plain_type(type_)
    if found is None:
        raise SchemaMismatch(
            f"the column {column} that the asset {asset} returned has the type {type_}, which cannot be"
            " stored",
            fix=f"cast {column} to another type: a number, a text, a date or a timestamp",
            asset=asset,
            column=column,
            found=str(type_),
        )
    return found


def _nested_type(column: str, type_: pa.DataType, *, asset: str) -> pa.DataType | None:
    import pyarrow as pa
    from pyarrow import types as is_type

    def stored(part: pa.DataType) -> pa.DataType:
        return _stored_type(column, part, asset=asset)

    if is_type.is_dictionary(type_):
        return stored(type_.value_type)
    if is_type.is_map(type_):
        return pa.map_(stored(type_.key_type), stored(type_.item_type))
    if is_type.is_struct(type_):
        return pa.struct([pa.field(part.name, stored(part.type)) for part in type_])
    if (
        is_type.is_list(type_)
        or is_type.is_large_list(type_)
        or is_type.is_fixed_size_list(type_)
        or is_type.is_list_view(type_)
        or is_type.is_large_list_view(type_)
    ):
        return pa.list_(stored(type_.value_type))
    return None


def _plain_type(type_: pa.DataType) -> pa.DataType | None:
    """Return the stored type of a type that is not nested; None if it cannot be stored."""
    import pyarrow as pa
    from pyarrow import types as is_type

    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.float16(): pa.float32(),
        pa.date64(): pa.date32(),
    }
    same = (pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
    if type_ in (*same, pa.date32(), pa.string(), pa.binary()):
        return type_
    if type_ in wider:
        return wider[type_]
    if is_type.is_timestamp(type_):
        return pa.timestamp("us", None if type_.tz is None else _ZONE)
    if is_type.is_decimal(type_):
        fits = 0 <= type_.scale <= type_.precision <= _MAX_DIGITS
        return pa.decimal128(type_.precision, type_.scale) if fits else None
    if is_type.is_large_string(type_) or is_type.is_string_view(type_):
        return pa.string()
    if is_type.is_large_binary(type_) or is_type.is_binary_view(type_) or is_type.is_fixed_size_binary(type_):
        return pa.binary()
    return None
