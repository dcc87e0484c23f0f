"""Documents: rows of Arrow batches as lines of a bulk request.

Belongs here: the text of each value, and the two lines of each row. Does not belong here: how the engine
indexes a value (`mapping.py`), and how lines are sent (`bulk.py`).

Lines are made column by column in Arrow. Only texts that need JSON escapes and nested values become Python
objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson

from etl_assets.contracts.scalar_texts import scalar_texts
from etl_assets.sinks.search.document_ids import document_ids

if TYPE_CHECKING:
    import pyarrow as pa

MAX_EXACT_DIGITS = 15
"""Decimals of more digits are texts: a double would change them."""
STATE_FIELD = "_etl"
"""The field of the platform's own in each document: the version of its delivery, and whether the row is
deleted."""
_NEEDS_ESCAPE = r'[\x00-\x1f"\\]'
_ROWS_AT_ONCE = 5_000
_BYTES_AT_ONCE = 8 * 1024 * 1024


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches in pieces that suit a request: small ones joined, large ones cut."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _cut(batch):
            if held and (
                rows + piece.num_rows > _ROWS_AT_ONCE or size + piece.get_total_buffer_size() > _BYTES_AT_ONCE
            ):
                yield pa.concat_batches(held)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield pa.concat_batches(held)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    bytes_a_row = max(1, batch.nbytes // batch.num_rows)
    step = max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // bytes_a_row))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def document_lines(batch: pa.RecordBatch, keys: Sequence[str], *, version: int) -> pa.Array:
    """Return the lines of rows for a bulk request: action and document, each with its line end."""
    return _lines(batch, keys, batch.schema.names, version, b'"version":%d' % version)


def tombstone_lines(batch: pa.RecordBatch, keys: Sequence[str], *, version: int) -> pa.Array:
    """Return the lines that replace documents by tombstones, which no search through the alias finds."""
    return _lines(batch, keys, [], version, b'"version":%d,"deleted":true' % version)


def _lines(
    batch: pa.RecordBatch, keys: Sequence[str], columns: Sequence[str], version: int, state: bytes
) -> pa.Array:
    import pyarrow.compute as pc

    ids = document_ids([batch.column(name) for name in keys])
    parts: list[Any] = ['{"index":{"_id":', _quoted(ids)]
    # A document with a higher version stays, an equal one is written again: deliveries can be repeated.
    opening = f',"version":{version},"version_type":"external_gte"}}}}\n{{'
    for name in columns:
        parts += [f'{opening}"{name}":', json_text(batch.column(name))]
        opening = ","
    parts.append(f'{opening}"{STATE_FIELD}":{{{state.decode()}}}}}\n')
    return pc.call_function("binary_join_element_wise", [*parts, ""])


def json_text(column: pa.Array) -> pa.Array:
    """Return the JSON text of each value as an array of strings; `null` for none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        text = column.cast(pa.string())
    elif pa.types.is_floating(kind):
        # JSON has no NaN: as a text the engine refuses it by name.
        text = column.cast(pa.string())
        is_finite = pc.call_function("is_finite", [column])
        text = pc.call_function("if_else", [is_finite, text, _quoted(text)])
    elif pa.types.is_decimal(kind):
        text = column.cast(pa.string())
        text = text if kind.precision <= MAX_EXACT_DIGITS else _quoted(text)
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        text = _quoted(scalar_texts(column))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = _quoted(column.cast(pa.string()))
    else:
        text = pa.array([json_value(each).decode() for each in column.to_pylist()], pa.string())
    return pc.fill_null(text, "null")


def json_value(value: object) -> bytes:
    """Return a value of Arrow's `to_pylist` as JSON."""
    return orjson.dumps(_plain(value), default=str, option=orjson.OPT_NON_STR_KEYS)


def _plain(value: object) -> object:
    match value:
        case Decimal():
            digits = len(value.as_tuple().digits)
            return float(value) if digits <= MAX_EXACT_DIGITS else str(value)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            # A map's entries are pairs.
            if value and all(isinstance(each, tuple) for each in value):
                return {str(key): _plain(each) for key, each in value}
            return [_plain(each) for each in value]
        case _:
            return value


def _quoted(text: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    needs_escape = pc.call_function("match_substring_regex", [text], pc.MatchSubstringOptions(_NEEDS_ESCAPE))
    if pc.call_function("any", [needs_escape]).as_py():
        return pa.array(
            [None if each is None else orjson.dumps(each).decode() for each in text.to_pylist()], pa.string()
        )
    return pc.call_function("binary_join_element_wise", ['"', text, '"', ""])
