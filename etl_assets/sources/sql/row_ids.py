"""Ids of rows, by columns: texts that are equal exactly where the ids are.

Arrow reads the fields of most records. Where a value is neither a whole number nor a text, or a line is no
record, the texts of that piece are made in Python.

Belongs here: which rows are one row. Does not belong here: which of their records counts (`comparison.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts import canonical_json
from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.canonical_json import Refused
from etl_assets.contracts.json_fields import json_fields
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.sources.sql.staged import DELETED_FIELD

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES_AT_ONCE = 2 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RowIds:
    """The ids of rows.

    Attributes:
        names: Fields that identify a row.
        deleted_field: Field of a record that says that the row is gone.
    """

    names: tuple[str, ...]
    deleted_field: str = DELETED_FIELD

    def of(self, records: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the id of each record, and whether it says that the row is gone.

        The id is null for a text that is no record; where a field is missing or null, it is a part of the id.
        """
        import pyarrow as pa

        if len(records) == 0:
            return pa.array([], pa.binary()), pa.array([], pa.bool_())
        try:
            types = self._types_like(records[0].as_py())
            found = json_fields(records, {**types, self.deleted_field: pa.bool_()}).combine_chunks()
        except (pa.ArrowInvalid, pa.ArrowCapacityError, Refused):
            return self._of_each(records)
        ids = [_texts(found.column(name).combine_chunks()) for name in self.names]
        is_deleted = call("coalesce", found.column(self.deleted_field).combine_chunks(), pa.scalar(False))
        whole = ids[0] if len(ids) == 1 else call("binary_join_element_wise", *ids, ",")
        return whole.cast(pa.binary()), is_deleted

    def of_file(self, path: Path) -> Iterator[pa.Array]:
        """Yield the ids of the lines of a file, in order."""
        for lines in lines_of(path):
            yield self.of(lines)[0]

    def _types_like(self, record: str | bytes) -> dict[str, pa.DataType]:
        """Return the types of the id fields, if all records have values like those of one.

        Raises:
            Refused: it is no record.
        """
        import pyarrow as pa

        value = _record_of(record)
        return {name: pa.int64() if type(value.get(name)) is int else pa.string() for name in self.names}

    def _of_each(self, records: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return what `of` does, one record after the other."""
        import pyarrow as pa

        ids: list[bytes | None] = []
        is_deleted = []
        for text in records.cast(pa.binary()).to_pylist():
            try:
                record = _record_of(text)
            except Refused:
                ids.append(None)
                is_deleted.append(False)
                continue
            ids.append(",".join(_text(record.get(name)) for name in self.names).encode())
            is_deleted.append(record.get(self.deleted_field) is True)
        return pa.array(ids, pa.binary()), pa.array(is_deleted, pa.bool_())


def lines_of(path: Path) -> Iterator[pa.Array]:
    """Yield the lines of a file without their breaks, some megabytes at once. They need not be UTF-8."""
    with path.open("rb") as file:
        left = b""
        while content := file.read(_BYTES_AT_ONCE):
            content = left + content
            end = content.rfind(b"\n") + 1
            left = content[end:]
            if end:
                yield _cut(content[:end])
        if left:
            yield _cut(left + b"\n")


def _cut(content: bytes) -> pa.Array:
    """Return lines, each of which ends with a break."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    ends = np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    lines = pa.BinaryArray.from_buffers(
        pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    )
    return pc.call_function("binary_slice", [lines], pc.SliceOptions(0, -1))


def _record_of(text: str | bytes) -> Mapping[str, Any]:
    """Return the fields of a record.

    Raises:
        Refused: it is no object of JSON.
    """
    value, _ = canonical_json.parse(text.encode() if isinstance(text, str) else text)
    if not isinstance(value, dict):
        raise Refused(DeadLetterReason.NOT_AN_OBJECT, "the line is JSON, but no object")
    return value


def _texts(values: pa.Array) -> pa.Array:
    """Return `_text` of values that are whole numbers, or texts."""
    import pyarrow as pa

    if pa.types.is_integer(values.type):
        texts = values.cast(pa.string())
    else:
        sizes = call("binary_length", values).cast(pa.string())
        texts = call("binary_join_element_wise", sizes, values, ":")
    return call("coalesce", texts, pa.scalar("null"))


def _text(value: Any) -> str:
    """Return a text for one value of an id. That of a text begins with its size: `a,b` is one value."""
    match value:
        case None:
            return "null"
        case str():
            return f"{len(value.encode())}:{value}"
        case _:
            return canonical_json.write(_strict(value)).decode()


def _strict(value: Any) -> Any:
    """Return a value with its numbers as the strict path of canonical JSON has them."""
    match value:
        case dict():
            return {name: _strict(item) for name, item in value.items()}
        case list():
            return [_strict(item) for item in value]
        case float():
            return Decimal(repr(value))
        case _:
            return value
