"""Avro: from the bytes of a value and the schema that it was written with to a JSON record.

A decimal is a text with all its digits, a time is ISO 8601 (in UTC, if it has a zone), a date is a day, a
uuid its text, bytes are base64. A union is its value, a record or map an object, an enum its symbol.

Belongs here: the mapping. Does not belong here: finding a schema (`registry_values.py`).
"""

from __future__ import annotations

import base64
import io
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import orjson

_OPTIONS = orjson.OPT_UTC_Z
_PASSED_ON = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
UNREADABLE = (
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    StopIteration,
    struct.error,
    orjson.JSONEncodeError,
)
"""What reading bytes that are no value of their schema raises."""

Decode = Callable[[bytes], bytes]
LogicalTypes = Callable[[Any, Mapping[str, Any]], Callable[[Any], Any] | None]
"""Returns how values of a parsed schema are changed, by the schema and the named ones; None: not at all."""


class SchemaUnusable(ValueError):
    """A schema is no schema of Avro, or one whose values cannot be read safely."""


def avro_decoder(
    text: str, referenced: Iterable[str] = (), logical_types: LogicalTypes | None = None
) -> Decode:
    """Return what turns a value of a schema into JSON. It raises one of `UNREADABLE` for other bytes.

    Args:
        text: The schema.
        referenced: Schemas that it refers to, each after those that it refers to itself.
        logical_types: Types that Avro does not know; None: there are none.

    Raises:
        SchemaUnusable: it is no schema, or its values may be endless.
        ImportError: fastavro is missing.
    """
    import fastavro

    named: dict[str, Any] = {}
    try:
        for each in referenced:
            fastavro.parse_schema(json.loads(each), named)
        parsed = fastavro.parse_schema(json.loads(text), named)
    except UNREADABLE as error:
        raise SchemaUnusable("it is no schema of Avro") from error
    _expect_bounded(parsed, named)
    has_floats = _has_floats(parsed, named)
    convert = None if logical_types is None else logical_types(parsed, named)
    read = _reader(is_recursive=_is_recursive(parsed, named, (), set()))

    def decode(content: bytes) -> bytes:
        stream = io.BytesIO(content)
        value = read(stream, parsed, None)
        if (left := len(content) - stream.tell()) > 0:
            raise ValueError(f"{left} bytes are left over")
        if convert is not None:
            value = convert(value)
        return orjson.dumps(_exact(value) if has_floats else value, default=_written, option=_OPTIONS)

    return decode


def _reader(*, is_recursive: bool) -> Callable[..., Any]:
    """Return fastavro's reader.

    The compiled one ends the process if a value is nested deeply enough, which a few bytes of a recursive
    schema can be. The one in Python raises `RecursionError`.
    """
    import fastavro

    if not is_recursive:
        return fastavro.schemaless_reader
    from fastavro import _read_py  # not exported: `fastavro.read` is the compiled one where there is one

    return _read_py.schemaless_reader


def _written(value: Any) -> Any:
    match value:
        case Decimal():
            if not value.is_finite():
                raise ValueError("a decimal is no number")
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


def _exact(value: Any) -> Any:
    """Return a value whose floating point numbers have no exponent. JSON has neither NaN nor infinity."""
    match value:
        case float():
            if not math.isfinite(value):
                raise ValueError("a number is not finite")
            if "e" not in (text := repr(value)):
                return value
            return orjson.Fragment(format(Decimal(text), "f"))
        case dict():
            return {key: _exact(each) for key, each in value.items()}
        case list():
            return [_exact(each) for each in value]
    return value


def _has_floats(schema: Any, named: Mapping[str, Any]) -> bool:
    return any(each in ("float", "double") for each in _types(schema, named, set()))


def _is_recursive(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...], done: set[str]) -> bool:
    """Return whether a named schema is a part of itself."""
    name = schema if isinstance(schema, str) else schema.get("name") if isinstance(schema, dict) else None
    if name is not None and name in inside:
        return True
    if name in done:
        return False
    if isinstance(schema, str):
        return schema in named and _is_recursive(named[schema], named, inside, done)
    below = (*inside, name) if name is not None else inside
    found = any(_is_recursive(each, named, below, done) for each in _below(schema, named, set()))
    if name is not None and not found:
        done.add(name)
    return found


def _expect_bounded(schema: Any, named: Mapping[str, Any]) -> None:
    """Refuse arrays whose items need no bytes: a few bytes could say that there are billions of them.

    Raises:
        SchemaUnusable: there is such an array.
    """
    for each in _arrays(schema, named, set()):
        if _is_empty(each["items"], named, set()):
            raise SchemaUnusable("it has an array whose items have no bytes")


def _is_empty(schema: Any, named: Mapping[str, Any], seen: set[str]) -> bool:
    """Return whether a value of a schema may have no bytes."""
    if isinstance(schema, str) and schema not in _PASSED_ON:
        if schema in seen:
            return True
        return _is_empty(named.get(schema, "null"), named, seen | {schema})
    if isinstance(schema, list):
        return False  # the number of the branch
    type_ = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(type_, (dict, list)):
        return _is_empty(type_, named, seen)
    match type_:
        case "null":
            return True
        case "fixed":
            return schema["size"] == 0
        case "record" | "error":
            return all(_is_empty(each["type"], named, seen) for each in schema["fields"])
    return False


def _below(schema: Any, named: Mapping[str, Any], seen: set[str]) -> list[Any]:
    """Return the schemas that a schema consists of. A named one is entered once."""
    if isinstance(schema, str):
        if schema in _PASSED_ON or schema in seen or schema not in named:
            return []
        seen.add(schema)
        return [named[schema]]
    if isinstance(schema, list):
        return schema
    match schema.get("type"):
        case "record" | "error":
            return [each["type"] for each in schema["fields"]]
        case "array":
            return [schema["items"]]
        case "map":
            return [schema["values"]]
        case dict() | list() as inner:
            return [inner]
    return []


def _walk(schema: Any, named: Mapping[str, Any], seen: set[str]) -> Iterable[Any]:
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += _below(one, named, seen)


def _types(schema: Any, named: Mapping[str, Any], seen: set[str]) -> Iterable[Any]:
    for each in _walk(schema, named, seen):
        yield each.get("type") if isinstance(each, dict) else each


def _arrays(schema: Any, named: Mapping[str, Any], seen: set[str]) -> Iterable[Mapping[str, Any]]:
    return (
        each for each in _walk(schema, named, seen) if isinstance(each, dict) and each.get("type") == "array"
    )
