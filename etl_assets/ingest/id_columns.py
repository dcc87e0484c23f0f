"""Ids of records that have them in fields, by columns.

Belongs here: ids of records in canonical form, where each field is a whole number or a text. Does not belong
here: all other ids (`json_records.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.json_fields import json_fields

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ID_CHARACTERS = 512
"""A longer id is stood for by its SHA-256."""
_ESCAPED = r'["\\\x00-\x1f]'
"""Characters that canonical JSON escapes."""


def ids_of(records: pa.Array, fields: Sequence[str]) -> pa.Array | None:
    """Return the id of each record; None if one has another kind of id, or none.

    Args:
        records: Objects in canonical form.
        fields: The fields of an id.
    """
    import pyarrow as pa

    first = orjson.loads(records[0].as_py())
    kinds = {int: pa.int64(), str: pa.string()}
    types = {name: kinds.get(type(first.get(name))) for name in fields}
    if None in types.values():
        return None
    try:
        found = json_fields(records, types).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowCapacityError):  # a value is of another kind
        return None
    columns = [found.column(name).combine_chunks() for name in fields]
    if any(column.null_count for column in columns):
        return None
    whole = _one(columns[0]) if len(columns) == 1 else _list(columns)
    if whole is None or not _all("less_equal", call("utf8_length", whole), MAX_ID_CHARACTERS):
        return None
    return whole


def _one(values: pa.Array) -> pa.Array | None:
    """Return the ids of one field: its number, or its text if none is empty."""
    import pyarrow as pa

    texts = values.cast(pa.string())
    return texts if _all("greater", call("binary_length", texts), 0) else None


def _list(columns: Sequence[pa.Array]) -> pa.Array | None:
    """Return the ids of several fields, lists in canonical JSON; None if a text is empty or has escapes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = []
    for values in columns:
        if (texts := _one(values)) is None:
            return None
        if pa.types.is_string(values.type):
            options = pc.MatchSubstringOptions(_ESCAPED)
            if pc.call_function("any", [pc.call_function("match_substring_regex", [texts], options)]).as_py():
                return None
            texts = call("binary_join_element_wise", '"', texts, '"', "")
        parts.append(texts)
    inner = call("binary_join_element_wise", *parts, ",")
    return call("binary_join_element_wise", "[", inner, "]", "")


def _all(function: str, values: pa.Array, bound: int) -> bool:
    return bool(call("all", call(function, values, bound)).as_py())
