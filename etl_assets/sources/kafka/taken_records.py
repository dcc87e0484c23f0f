"""Records of one partition of a topic, taken from the client at once, as columns of a staged file.

Belongs here: from messages to columns, many at a time. Does not belong here: the form of the files
(`staged.py`), and which of them a record goes into (`range_writer.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.envelope import BadRecord
from etl_assets.sources.kafka.staged import staged_schema

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from confluent_kafka import Message

    from etl_assets.sources.kafka.registry_values import RegistryValues

_BYTES_BESIDE_CONTENT = 64
"""About what a record has beside its key and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenRecords:
    """The records, in order of their offsets.

    Attributes:
        rows: The columns of a staged file.
    """

    rows: pa.RecordBatch

    @classmethod
    def of(
        cls, messages: Sequence[Message], before: int, values: RegistryValues | None = None
    ) -> TakenRecords:
        """Return the records of messages.

        Args:
            messages: Messages without errors, of one partition.
            before: An offset; later records are left out.
            values: Decodes values with a schema; None: they are JSON as they come.
        """
        import pyarrow as pa

        offsets = [each.offset() or 0 for each in messages]
        count = bisect_left(offsets, before)
        some = messages if count == len(messages) else messages[:count]
        columns: list[Sequence[Any]] = [
            offsets[:count],
            [each.timestamp()[1] for each in some],
            [each.key() for each in some],
            [each.value() for each in some],
            [_headers(each.headers()) for each in some],
        ]
        if values is not None:
            columns[3:4], reasons = _decoded(columns[3], values)
            columns += reasons
            if values.decodes_keys:
                columns[2] = _decoded_keys(columns[2], values)
        schema = staged_schema(decoded=values is not None)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
        return cls(rows=pa.RecordBatch.from_arrays(arrays, schema=schema))

    def __len__(self) -> int:
        return self.rows.num_rows

    def offset(self, number: int) -> int:
        """Return the offset of a record."""
        return self.rows.column("offset")[number].as_py()

    def millis(self) -> npt.NDArray[np.int64]:
        """Return the time of each record, in milliseconds since 1970."""
        return self.rows.column("timestamp").to_numpy()

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return about how many bytes each record has."""
        import numpy as np
        import pyarrow.compute as pc

        lengths = (
            pc.call_function("binary_length", [self.rows.column(name)]).fill_null(0).to_numpy()
            for name in ("key", "value")
        )
        return sum(lengths, start=np.full(len(self), _BYTES_BESIDE_CONTENT, np.int64))

    def between(self, first: int, end: int) -> pa.RecordBatch:
        """Return the columns of some records."""
        return self.rows.slice(first, end - first)


def _headers(headers: Any) -> list[dict[str, Any]] | None:
    return [{"name": name, "value": content} for name, content in headers] if headers else None


def _decoded_keys(keys: Sequence[bytes | None], decoder: RegistryValues) -> list[bytes | None]:
    """Return decoded keys; one that has no schema stays as it is."""
    found: list[bytes | None] = []
    for key in keys:
        decoded = None if key is None else decoder.decode(key)
        found.append(key if isinstance(decoded, BadRecord) else decoded)
    return found


def _decoded(
    values: Sequence[bytes | None], decoder: RegistryValues
) -> tuple[list[list[bytes | None]], list[list[str | None]]]:
    """Return decoded values, and reasons and errors of those that cannot be decoded and stay as they are."""
    found: list[bytes | None] = []
    reasons: list[str | None] = []
    errors: list[str | None] = []
    for value in values:
        decoded = None if value is None else decoder.decode(value)
        bad = decoded if isinstance(decoded, BadRecord) else None
        found.append(value if isinstance(decoded, BadRecord) else decoded)
        reasons.append(None if bad is None else bad.reason.value)
        errors.append(None if bad is None else bad.error)
    return [found], [reasons, errors]
