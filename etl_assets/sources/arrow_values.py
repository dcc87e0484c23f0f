"""Values of Arrow arrays as JSON has them.

Times are texts as in ISO 8601, with the digits that they need: one time has one text, whatever its unit.
Times with a zone are in UTC. Bytes are base64. A number is a decimal with the digits that identify it at its
own precision.

Belongs here: every type that a Parquet file can have. Does not belong here: reading files (`formats.py`).
"""

from __future__ import annotations

import base64
import uuid
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def json_values(array: pa.Array) -> list[Any]:
    """Return the values of an array. A text that is not UTF-8 has surrogates in it, and no canonical form."""
    import pyarrow as pa
    from pyarrow import types

    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return _extended(array)
    if types.is_dictionary(type_):
        return json_values(array.dictionary_decode())
    if types.is_struct(type_):
        return _structs(array)
    if types.is_map(type_):
        pairs = pa.struct([("key", type_.key_type), ("value", type_.item_type)])
        return [None if each is None else _mapping(each) for each in _lists(array.cast(pa.list_(pairs)))]
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return _lists(array)
    if types.is_temporal(type_):
        return _times(array)
    if types.is_floating(type_):
        return _floats(array)
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return _texts(array)
    values = array.to_pylist()
    return [_text_of_bytes(value) if isinstance(value, bytes) else value for value in values]


def _structs(array: pa.StructArray) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [json_values(column) for column in array.flatten()]
    rows = zip(*columns, strict=True) if columns else [()] * len(array)
    valid = array.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, valid, strict=True)
    ]


def _lists(array: pa.ListArray) -> list[Any]:
    import pyarrow.compute as pc

    lengths = pc.call_function("list_value_length", [array]).to_pylist()
    values = iter(json_values(array.flatten()))
    return [None if length is None else list(islice(values, length)) for length in lengths]


def _mapping(pairs: list[dict[str, Any]]) -> Any:
    """Return the pairs of a map as an object, or as they are if two have one key."""
    found = {_key(pair["key"]): pair["value"] for pair in pairs}
    return found if len(found) == len(pairs) else pairs


def _key(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case Decimal():
            return format(value, "f")
        case _:
            return str(value)


def _floats(array: pa.FloatingPointArray) -> list[Any]:
    from pyarrow import types

    kinds = ((types.is_float16, np.float16), (types.is_float32, np.float32))
    kind = next((each for is_kind, each in kinds if is_kind(array.type)), float)
    return [None if value is None else Decimal(str(kind(value))) for value in array.to_pylist()]


def _texts(array: pa.Array) -> list[Any]:
    import pyarrow as pa

    try:
        return array.to_pylist()
    except UnicodeDecodeError:  # files are not checked when they are written
        values = array.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]


def _text_of_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _extended(array: pa.ExtensionArray) -> list[Any]:
    import pyarrow as pa

    if isinstance(array.type, pa.UuidType):
        ids = array.storage.to_pylist()
        return [None if value is None else str(uuid.UUID(bytes=value)) for value in ids]
    return json_values(array.storage)


def _times(array: pa.Array) -> list[Any]:
    """Return days, times of day, times and durations as texts.

    By their numbers: Python's own types end with the year 9999, and have no nanoseconds.
    """
    import pyarrow as pa
    from pyarrow import types

    type_ = array.type
    if types.is_date32(type_) or types.is_time32(type_):
        array = array.cast(pa.int32())
    numbers = array.cast(pa.int64())
    if types.is_timestamp(type_):
        zone = "" if type_.tz is None else "Z"
        found = [f"{_trimmed(text)}{zone}" for text in _moments(numbers, type_.unit)]
    elif types.is_date32(type_):
        found = _moments(numbers, "D")
    elif types.is_date64(type_):
        found = [text.partition("T")[0] for text in _moments(numbers, "ms")]
    elif types.is_duration(type_):
        found = [_duration(number, type_.unit) for number in numbers.fill_null(0).to_pylist()]
    else:
        found = [
            _trimmed(text.partition("T")[2])
            for text in _moments(numbers, getattr(type_, "unit", None) or _unit_of_time(type_))
        ]
    valid = array.is_valid().to_pylist()
    return [text if there else None for text, there in zip(found, valid, strict=True)]


def _moments(numbers: pa.Array, unit: str) -> list[str]:
    """Return times since 1970 as ISO 8601; anything for null."""
    known = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return np.datetime_as_string(known.astype("int64").view(f"datetime64[{unit}]")).tolist()


def _unit_of_time(type_: pa.DataType) -> str:
    """Return the unit of a time of day, such as `us` of `time64[us]`."""
    return str(type_).partition("[")[2].rstrip("]")


def _duration(number: int, unit: str) -> str:
    seconds, rest = divmod(abs(number), _PER_SECOND[unit])
    digits = len(str(_PER_SECOND[unit])) - 1
    text = _trimmed(f"{seconds}.{rest:0{digits}}") if digits else str(seconds)
    return f"{'-' if number < 0 else ''}PT{text}S"


def _trimmed(text: str) -> str:
    """Return a text without the zeros at the end of its fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text
