"""Records of one partition of a topic, taken from the client, as columns of a staged file.

Belongs here: from messages to columns, many at a time. Does not belong here: the form of the files
(`staged.py`), and which of them a record goes into (`range_writer.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
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
_MOST_RECORDS, _MOST_BYTES = 10_000, 8 << 20
"""How many records, or about how many bytes of them, are gathered: memory is bounded by them."""
_time = itemgetter(1)


class GatheredRecords:
    """Columns of a partition's records, of messages that come some hundreds at a time.

    A message is an object that the garbage collector counts, and texts and numbers are none. So messages are
    let go of at once, and what is gathered costs no looks at all objects of this process.

    Args:
        before: An offset; later records are left out.
        values: Decodes values with a schema; None: they are JSON as they come.
    """

    def __init__(self, before: int, values: RegistryValues | None = None) -> None:
        self._before, self._values = before, values
        self._begin_again()

    def add(self, messages: Sequence[Message]) -> bool:
        """Take messages without errors, the next ones of the partition. Return whether all belong here."""
        from confluent_kafka import Message

        offsets: list[Any] = list(map(Message.offset, messages))
        count = bisect_left(offsets, self._before)
        some = messages if count == len(messages) else messages[:count]
        values, headers = list(map(Message.value, some)), list(map(Message.headers, some))
        columns = (
            offsets[:count],
            map(_time, map(Message.timestamp, some)),
            map(Message.key, some),
            values,
            map(_headers, headers) if any(headers) else repeat(None, count),
        )
        for column, found in zip(self._columns, columns, strict=True):
            column.extend(found)
        self._bytes += sum(map(len, filter(None, values)))
        return count == len(messages)

    @property
    def is_full(self) -> bool:
        """Whether there are as many as memory has room for."""
        return len(self._columns[0]) >= _MOST_RECORDS or self._bytes >= _MOST_BYTES

    @property
    def is_complete(self) -> bool:
        """Whether the record just before the offset is there."""
        offsets = self._columns[0]
        return bool(offsets) and offsets[-1] + 1 >= self._before

    def take(self) -> TakenRecords:
        """Return the records, and begin again with none."""
        import pyarrow as pa

        columns: list[Sequence[Any]] = [*self._columns]
        self._begin_again()
        if self._values is not None:
            columns[3:4], reasons = _decoded(columns[3], self._values)
            columns += reasons
            if self._values.decodes_keys:
                columns[2] = _decoded_keys(columns[2], self._values)
        schema = staged_schema(decoded=self._values is not None)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
        return TakenRecords(rows=pa.RecordBatch.from_arrays(arrays, schema=schema))

    def _begin_again(self) -> None:
        self._columns: tuple[list[Any], ...] = ([], [], [], [], [])
        self._bytes = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenRecords:
    """Some records of a partition, in order of their offsets.

    Attributes:
        rows: The columns of a staged file.
    """

    rows: pa.RecordBatch

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
