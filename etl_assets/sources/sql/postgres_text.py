"""Texts of PostgreSQL: names, literals, values as JSON, and what its types can do.

Belongs here: pure functions. Does not belong here: asking the database (`postgres.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from etl_assets.sources.sql.bounds import Key, Pair
from etl_assets.sources.sql.database import QueryColumn

TIMES = frozenset({"date", "timestamp", "timestamptz"})
_NUMBERS = frozenset({"int2", "int4", "int8", "numeric"})
_ORDERED = TIMES | _NUMBERS | {"uuid", "text", "varchar", "bpchar"}
PLAIN = _ORDERED | {"bool", "float4", "float8", "time", "timetz", "interval", "bytea", "jsonb"}
"""Types whose JSON has no line breaks."""
KEY_ALIAS, ID_ALIAS = "_etl_assets_key", "_etl_assets_id"


def column_of(name: str, type_: str) -> QueryColumn:
    refusal = ""
    if name == "?column?":
        refusal = "it has no name; add `AS name`"
    elif type_ == "money":
        refusal = "its texts depend on the server's locale; cast it to numeric"
    return QueryColumn(
        name=name,
        type=type_,
        orders=type_ in _ORDERED,
        overlaps=type_ in TIMES | _NUMBERS,
        refusal=refusal,
    )


def value_of(column: QueryColumn) -> str:
    """Return the value of a column for JSON. What JSON has no exact form for is a text."""
    name = quoted(column.name)
    match column.type:
        case "numeric":
            value = f"q.{name}::text"
        case "bytea":
            value = f"translate(encode(q.{name}, 'base64'), E'\\n', '')"
        case _:
            value = f"q.{name}"
    return f"{value} AS {name}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(key: Key) -> str:
    text = key.text.replace("'", "''")
    return f"'{text}'::pg_catalog.{quoted(key.type)}"


def row_of(pair: Pair) -> str:
    return f"({literal(pair.key)}, {literal(pair.id)})"


def text_of(key: Any) -> str:
    """Return the value of a key, as ADBC has it, as the text from which the server makes it again."""
    return key.isoformat() if isinstance(key, dt.date) else str(key)


def texts_of(column: Any) -> Iterator[memoryview]:
    """Yield the bytes of a column of texts, without making objects of them."""
    import pyarrow as pa

    if len(column) == 0:
        return
    width = 8 if pa.types.is_large_string(column.type) else 4
    _, offsets, content = column.buffers()
    view = memoryview(offsets).cast("q" if width == 8 else "i")
    start, end = view[column.offset], view[column.offset + len(column)]
    if content is not None:
        yield memoryview(content)[start:end]
