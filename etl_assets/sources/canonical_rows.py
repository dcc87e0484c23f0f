"""Rows of Arrow columns as lines of canonical JSON, column by column.

A line is what `canonical_json.write` makes of the row's `json_values`, byte by byte. Arrow writes columns of
texts, numbers, truth values and times. Where its text of a value has another form than canonical JSON, and
for columns of other types, the values are written one by one.

Belongs here: from columns to lines. Does not belong here: what a value is in JSON (`arrow_values.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from etl_assets.contracts import canonical_json
from etl_assets.contracts.arrow_calls import call
from etl_assets.sources.arrow_values import json_values

if TYPE_CHECKING:
    import pyarrow as pa

_ESCAPED = r'["\\\x00-\x1f]'
"""Characters of a text that canonical JSON escapes."""
_NUMBER = r"\A(?:-?(?:0\.[0-9]*[1-9]|[1-9][0-9]*(?:\.[0-9]*[1-9])?)|0)\z"
_DATE = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
_MOMENT = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*[1-9])?\z"


def canonical_rows(columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return each row as a text of canonical JSON.

    A value that JSON does not have, such as NaN, makes a text that is no JSON.

    Args:
        columns: The columns by name, at least one; together their texts have less than 2 GiB.
    """
    parts: list[Any] = []
    for name in sorted(columns):
        parts += [f"{',' if parts else '{'}{orjson.dumps(name).decode()}:", _written(columns[name])]
    return call("binary_join_element_wise", *parts, "}", "")


def _written(column: pa.Array) -> pa.Array:
    """Return the values of a column as JSON."""
    from pyarrow import types

    type_ = column.type
    if types.is_string(type_):
        found = _quoted(column)
    elif types.is_integer(type_) or types.is_boolean(type_):
        found = _texts(column)
    elif types.is_float32(type_) or types.is_float64(type_):
        found = _where_like(_NUMBER, column, _texts(column), _texts(column))
    elif types.is_decimal(type_):
        # With digits after the point, the text has a point.
        texts = _texts(column) if type_.scale <= 0 else _trimmed(_texts(column))
        found = _where_like(_NUMBER, column, texts, texts)
    elif types.is_date32(type_):
        texts = _texts(column)
        found = _where_like(_DATE, column, texts, call("binary_join_element_wise", '"', texts, '"', ""))
    elif types.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC"):
        found = _moments(column)
    else:
        found = _one_by_one(column)
    return found.fill_null("null")


def _quoted(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    quoted = call("binary_join_element_wise", '"', column, '"', "")
    options = pc.MatchSubstringOptions(_ESCAPED)
    has_escapes = pc.call_function("match_substring_regex", [column], options).fill_null(False)
    if not call("any", has_escapes).as_py():
        return quoted
    escaped = [orjson.dumps(text).decode() for text in column.filter(has_escapes).to_pylist()]
    return call("replace_with_mask", quoted, has_escapes, pa.array(escaped, pa.string()))


def _moments(column: pa.Array) -> pa.Array:
    """Return microseconds since 1970 as JSON."""
    import pyarrow as pa
    import pyarrow.compute as pc

    zone = "" if column.type.tz is None else "Z"
    texts = _trimmed(_texts(column.cast(pa.timestamp("us"))))  # Arrow writes six digits after the point
    with_t = pc.call_function("replace_substring", [texts], pc.ReplaceSubstringOptions(" ", "T"))
    return _where_like(_MOMENT, column, texts, call("binary_join_element_wise", '"', with_t, f'{zone}"', ""))


def _where_like(pattern: str, column: pa.Array, texts: pa.Array, written: pa.Array) -> pa.Array:
    """Return what was written of the values whose texts are like a pattern; the others are written here."""
    import pyarrow.compute as pc

    is_other = call(
        "invert", pc.call_function("match_substring_regex", [texts], pc.MatchSubstringOptions(pattern))
    ).fill_null(False)
    if not call("any", is_other).as_py():
        return written
    return call("replace_with_mask", written, is_other, _one_by_one(column.filter(is_other)))


def _one_by_one(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    values = json_values(column)
    texts = [None if value is None else canonical_json.write(value).decode() for value in values]
    return pa.array(texts, pa.string())


def _texts(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    return column.cast(pa.string())


def _trimmed(texts: pa.Array) -> pa.Array:
    """Return texts that have a point without zeros at the end."""
    import pyarrow.compute as pc

    without_zeros = pc.call_function("ascii_rtrim", [texts], pc.TrimOptions("0"))
    return pc.call_function("ascii_rtrim", [without_zeros], pc.TrimOptions("."))
