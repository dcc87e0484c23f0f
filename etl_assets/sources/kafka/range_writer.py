"""The writer of staged files: records of one partition of a topic, by day and of bounded size.

Belongs here: which file a record goes into, and the order of the files. Does not belong here: their form
(`staged.py`), and which records are read (`source.py`).
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.sources.kafka.staged import SUFFIX, staged_schema
from etl_assets.sources.ranges import StagedFile

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from etl_assets.sources.kafka.taken_records import TakenRecords

FILE_BYTES = 8 << 20
"""About how many bytes a staged file has: it is the work of one task."""
_EPOCH = dt.date(1970, 1, 1).toordinal()


def by_day(partitions: Iterable[Sequence[StagedFile]]) -> Iterator[StagedFile]:
    """Yield the files of each partition in their order, and those of one day together where that allows it.

    Then the rows of a day are one data file, whatever the number of partitions.
    """
    waiting = [deque(files) for files in partitions if files]
    while waiting:
        day = min(files[0].day for files in waiting)
        for files in waiting:
            while files and files[0].day == day:
                yield files.popleft()
        waiting = [files for files in waiting if files]


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
        is_decoded: bool = False,
    ) -> None:
        self._schema = staged_schema(decoded=is_decoded)
        self._folder, self._partition, self._place, self._identity = folder, partition, place, identity
        self._today, self._most_files = today, most_files
        self._files: list[StagedFile] = []
        self._stream: Any = None
        self._in_file = self.size = 0

    def add(self, records: TakenRecords, most_bytes: int | None) -> int:
        """Write records, and return how many.

        Args:
            records: The records after those written before.
            most_bytes: About how many bytes the files have in all at most. What is left when they have them,
                or would begin a file too many, is not written. None: everything is.
        """
        import numpy as np

        sizes = records.sizes()
        before = self.size + np.cumsum(sizes) - sizes
        count = len(records) if most_bytes is None else int(np.searchsorted(before, most_bytes))
        days = self._days(records.millis()[:count])
        changes = np.flatnonzero(np.diff(days)) + 1
        for first, end in pairwise([0, *changes.tolist(), count] if count else []):
            day = dt.date.fromordinal(_EPOCH + int(days[first]))
            if most_bytes is not None and len(self._files) >= self._most_files and day != self._day:
                return first
            self._write(day, records, first, end, sizes)
        return count

    def close(self) -> list[StagedFile]:
        """Finish the last file, and return all of them."""
        self._end_file()
        return self._files

    @property
    def _day(self) -> dt.date | None:
        return self._files[-1].day if self._files else None

    def _days(self, millis: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the day of each record's timestamp; today for one without, and for one in the future."""
        import numpy as np

        today = self._today.toordinal() - _EPOCH
        numbers = millis // 86_400_000
        return np.where((numbers >= 0) & (numbers < today), numbers, today)

    def _write(
        self, day: dt.date, records: TakenRecords, first: int, end: int, sizes: npt.NDArray[np.int64]
    ) -> None:
        """Write some records of one day. A file ends with the record that fills it."""
        import numpy as np

        while first < end:
            if day != self._day or self._in_file >= FILE_BYTES:
                self._begin_file(day, records.offset(first))
            filled = self._in_file + np.cumsum(sizes[first:end])
            last = min(end - 1, first + int(np.searchsorted(filled, FILE_BYTES)))
            self._stream.write_batch(records.between(first, last + 1))
            written = int(filled[last - first]) - self._in_file
            self._in_file += written
            self.size += written
            first = last + 1

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
            self._stream.close()
            self._stream = None
