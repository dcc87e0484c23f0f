"""Keys of rows as one text each, in Arrow: whether a row is among the keys of a delivery."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def encoded(batch: pa.RecordBatch | pa.Table, names: Sequence[str]) -> pa.Array:
    """Return the key of each row as a text. Two keys have one text only if they are equal, null included."""
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute  # its functions are made at import

    parts = []
    for name in names:
        column = batch.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        text = column.cast(pa.large_string())
        for found, by in (("\\", "\\\\"), ("\x1f", "\\u")):
            text = pc.replace_substring(text, found, by)
        parts.append(pc.fill_null(text, "\\N"))
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _separator())
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def keys_of(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> pa.Array:
    """Return the keys of all rows. Memory holds the keys, and one batch."""
    import pyarrow as pa

    return pa.chunked_array(
        [encoded(batch, names) for batch in batches if batch.num_rows], type=pa.large_string()
    ).combine_chunks()


def _separator() -> pa.Scalar:
    import pyarrow as pa

    return pa.scalar("\x1f", pa.large_string())
