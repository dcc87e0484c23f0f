"""The writer of staged files: records of one partition of a topic, by day and of bounded size.

Belongs here: which file a record goes into. Does not belong here: the form of the files (`staged.py`), and
which records are read (`source.py`).
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.envelope import BadRecord
from etl_assets.sources.kafka.staged import SUFFIX, staged_schema
from etl_assets.sources.ranges import StagedFile

if TYPE_CHECKING:
    from confluent_kafka import Message

    from etl_assets.sources.kafka.registry_values import RegistryValues

FILE_BYTES = 8 << 20
"""About how many bytes a staged file has: it is the work of one task."""


class RangeWriter:
    """Writes records of one partition into files, by day and of bounded size.

    A file ends where the day changes, also if records of two days take turns: offsets in the table follow the
    order of files, which is that of the partition. `most_files` bounds them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        partition: int,
        place: str,
        identity: str,
        today: dt.date,
        most_files: int,
        values: RegistryValues | None = None,
    ) -> None:
        self._values, self._schema = values, staged_schema(decoded=values is not None)
        self._folder, self._partition, self._place, self._identity = folder, partition, place, identity
        self._today, self._most_files = today, most_files
        self._files: list[StagedFile] = []
        self._stream: Any = None
        self._rows: list[tuple[Any, ...]] = []
        self._held = self._in_file = self.size = 0

    def is_full(self, message: Message) -> bool:
        """Return whether a record would begin a file too many."""
        return len(self._files) >= self._most_files and self._day(message) != self._files[-1].day

    def add(self, message: Message) -> None:
        """Write a record, or hold it until there are enough."""
        day, value, bad = self._day(message), message.value(), None
        if self._values is not None and value is not None:
            found = self._values.decode(value)
            if isinstance(found, BadRecord):
                bad = found
            else:
                value = found
        if not self._files or day != self._files[-1].day or self._in_file >= FILE_BYTES:
            self._begin_file(day, message.offset() or 0)
        headers = [{"name": name, "value": content} for name, content in message.headers() or ()]
        row = (message.offset(), message.timestamp()[1], message.key(), value, headers)
        if self._values is not None:
            row += (None, None) if bad is None else (bad.reason.value, bad.error)
        self._rows.append(row)
        size = 64 + len(value or b"") + len(message.key() or b"")
        self._held += size
        self._in_file += size
        self.size += size
        if self._held >= 1 << 20 or len(self._rows) >= 8_192:
            self._flush()

    def close(self) -> list[StagedFile]:
        """Finish the last file, and return all of them."""
        self._end_file()
        return self._files

    def _day(self, message: Message) -> dt.date:
        """Return the day of a record's timestamp; today for one without, and for one in the future."""
        millis = message.timestamp()[1]
        today = (self._today - dt.date(1970, 1, 1)).days
        number = millis // 86_400_000
        return dt.date.fromordinal(719_163 + number) if 0 <= number < today else self._today

    def _begin_file(self, day: dt.date, offset: int) -> None:
        import pyarrow as pa

        self._end_file()
        name = f"{self._partition}-{len(self._files):06}{SUFFIX}"
        (self._folder / day.isoformat()).mkdir(exist_ok=True)
        path = self._folder / day.isoformat() / name
        self._stream = pa.ipc.new_stream(str(path), self._schema)
        self._files.append(
            StagedFile(day=day, name=name, place=self._place, first_line=offset, identity=self._identity)
        )
        self._in_file = 0

    def _end_file(self) -> None:
        if self._stream is not None:
            self._flush()
            self._stream.close()
            self._stream = None

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [
                pa.array(list(each), field.type) for each, field in zip(columns, self._schema, strict=True)
            ]
            self._stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            self._rows, self._held = [], 0
