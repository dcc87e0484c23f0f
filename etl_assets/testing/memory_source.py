"""A source that is read in ranges, in memory: the twin of Kafka and databases for tests.

Belongs here: the source alone. Does not belong here: what every source must do (the contract tests).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from etl_assets.errors import SourceLost
from etl_assets.sources.ranges import Lag, Positions, RangeRead, ReadRange, StagedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """A record: its time and one line of JSON."""

    time: dt.datetime
    line: bytes


@dataclass(slots=True)
class MemorySource:
    """Lists of records, by the name of a partition. Positions are indexes. Files are JSON Lines.

    Attributes:
        partitions: The records. A record that is gone is None.
        is_repeatable: What it says of itself.
    """

    partitions: dict[str, list[MemoryRecord | None]] = field(default_factory=dict)
    is_repeatable: bool = True

    def add(self, partition: str, time: dt.datetime, lines: Sequence[bytes]) -> None:
        """Append records to a partition."""
        of = self.partitions.setdefault(partition, [])
        of += [MemoryRecord(time=time, line=line) for line in lines]

    def plan(self, positions: Positions, *, max_bytes: int, max_records: int) -> ReadRange | None:
        """Return up to `max_records` records, of one partition after the other."""
        begin = {name: positions.get(name, 0) for name in self.partitions}
        end, left = dict(begin), max_records
        for name, records in sorted(self.partitions.items()):
            end[name] = min(len(records), begin[name] + left)
            left -= end[name] - begin[name]
        if end == begin:
            return None
        more = any(end[name] < len(records) for name, records in self.partitions.items())
        wanted = ReadRange(begin=begin, end=end, more=more)
        self._expect(wanted)
        return wanted

    def read(self, wanted: ReadRange, folder: Path) -> RangeRead:
        """Write a file for each run of records of one day."""
        self._expect(wanted)
        files = []
        for name in sorted(wanted.begin):
            numbered = list(enumerate(self.partitions[name]))[wanted.begin[name] : wanted.end[name]]
            kept = [(number, record) for number, record in numbered if record is not None]
            for day, of_day in groupby(kept, key=lambda pair: pair[1].time.astimezone(dt.UTC).date()):
                some = list(of_day)
                file = StagedFile(day=day, name=f"{len(files):06}.jsonl", place=name, first_line=some[0][0])
                (folder / day.isoformat()).mkdir(exist_ok=True)
                content = b"".join(record.line + b"\n" for _, record in some)
                (folder / day.isoformat() / file.name).write_bytes(content)
                files.append(file)
        return RangeRead(read=wanted, files=tuple(files))

    def confirm(self, positions: Positions) -> None:
        """Do nothing: records stay."""

    def lag(self, positions: Positions) -> Lag:
        """Return the records beyond the positions."""
        unread = [
            record
            for name, records in self.partitions.items()
            for record in records[positions.get(name, 0) :]
        ]
        return Lag(
            records=len(unread), oldest=min((each.time for each in unread if each is not None), default=None)
        )

    def close(self) -> None:
        """Do nothing."""

    def _expect(self, wanted: ReadRange) -> None:
        """Raise if a record of a range is gone."""
        for name, first in wanted.begin.items():
            gone = [
                number
                for number in range(first, wanted.end[name])
                if number >= len(self.partitions[name]) or self.partitions[name][number] is None
            ]
            if gone:
                raise SourceLost(
                    f"records {gone[0]} to {gone[-1]} of {name} are gone",
                    fix="add them again",
                    source=name,
                    lost=f"{name}:{gone[0]}..{gone[-1]}",
                )
