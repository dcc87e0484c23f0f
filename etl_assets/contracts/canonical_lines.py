"""Lines that are canonical JSON already, found by columns, without an object of Python for each value.

Only objects whose values are texts, numbers, true, false and null are looked at. A line that is taken is what
`canonical_json.canonical` makes of it, byte by byte; that one is not taken says nothing about it.

Belongs here: which lines are canonical. Does not belong here: the rules of canonical JSON
(`canonical_json.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\bfnrt]|\\u00(?:0[0-7bef]|1[0-9a-f]))*"'
"""A text with the escapes of canonical JSON, which has one for each character that needs it."""
_NUMBER = r"(?:-?(?:0[.][0-9]{0,15}|[1-9][0-9]{0,18}[.][0-9]{0,15})[1-9]|-?[1-9][0-9]{0,18}|0)"
"""A number of up to 35 digits, without exponent, leading or trailing zeros, and not `-0`."""
_TRUTH = "true|false"
_VALUES = {
    str: _TEXT,
    int: _NUMBER,
    float: _NUMBER,
    bool: _TRUTH,
    type(None): f"{_TEXT}|{_NUMBER}|{_TRUTH}",
}
"""Pattern of the values that are like one of a type."""


def canonical_texts(lines: Sequence[Any]) -> pa.Array | None:
    """Return lines as texts; None if one of them may not be canonical, or has other fields than the first.

    Args:
        lines: Lines without their breaks. What is no bytes is not canonical.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    # Subclasses of bytes have more than their text.
    if set(map(type, lines)) != {bytes} or (fields := _fields_of(lines[0])) is None:
        return None
    try:
        # The cast refuses what is not UTF-8.
        texts = pa.array(lines, pa.binary()).cast(pa.string())
        options = pc.MatchSubstringOptions(_pattern(fields))
        is_canonical = pc.call_function("match_substring_regex", [texts], options)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowCapacityError):
        return None
    all_are = pc.call_function("all", [is_canonical], pc.ScalarAggregateOptions(skip_nulls=False))
    return texts if all_are.as_py() else None


def _fields_of(line: bytes) -> tuple[tuple[str, str], ...] | None:
    """Return the names of a line's fields and patterns of their values; None if it is not canonical."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if type(value) is not dict or not value:
        return None
    names = list(map(str, value))
    if names != sorted(names) or any(type(item) not in _VALUES for item in value.values()):
        return None
    return tuple((name, _VALUES[type(value[name])]) for name in names)


@lru_cache(maxsize=16)
def _pattern(fields: tuple[tuple[str, str], ...]) -> str:
    """Return the pattern of a line with some fields, in their order."""
    parts = (f"{re.escape(orjson.dumps(name).decode())}:(?:{value}|null)" for name, value in fields)
    return r"\A\{" + ",".join(parts) + r"\}\z"
