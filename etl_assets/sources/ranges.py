"""The interface of a source that is read in ranges, such as Kafka or a database.

Belongs here: what every such source can do, and what its guarantees mean. Does not belong here: sources of
files (`landing.py`), and what happens with the records (`ingest/`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Positions = Mapping[str, Any]
"""A position by partition of the input (`orders/0` in Kafka, one name for a query), each a JSON value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    """What one batch reads: from one position to another, in each partition of the input.

    Attributes:
        begin: The positions that it begins at; a partition that was never read is missing.
        end: The positions after it. They are committed with its rows.
        details: More that the source needs to read exactly this range again, as JSON.
        more: Whether the source had more than this range when it was planned or read.
        notes: What people should know of it, such as partitions that were added.
        facts: What the commit of its rows says beside, such as the place in a log.
    """

    begin: Positions
    end: Positions
    details: Mapping[str, Any] = field(default_factory=dict)
    more: bool = False
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A file with consecutive records of a range, all of one day.

    The source position of a record is `<place>:<number>`: the number of the file's first line, and of each
    line after it. Lines without a record (empty texts of the format) keep the numbers right.

    Attributes:
        day: The day (UTC) that its records belong to.
        name: Name of the file, in the folder `<YYYY-MM-DD>` of its day.
        place: Where in the source its records are: `orders/0` for a Kafka partition.
        first_line: Number of its first line, such as the offset of its first record.
        identity: What identifies the place for records without an id, if `place` is not enough.
        version: What tells its records from others with the same id fields, such as the load that they are
            from; empty if nothing does.
    """

    day: dt.date
    name: str
    place: str
    first_line: int = 1
    identity: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRead:
    """A range that was read.

    Attributes:
        read: The range. It may end before the wanted one, where that is too large for one batch; read once
            more, it is the same.
        files: Its files, in source order.
    """

    read: ReadRange
    files: tuple[StagedFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """What a source has beyond a position.

    Attributes:
        records: About how many records; None if the source cannot say.
        oldest: Time of the first of them, None if there is none or it is not known.
        first_day: The first day that they will be read under, where it is not the day of `oldest`.
        is_copy: Whether rows of a first copy are next, which take long.
        is_same: Without records: returns whether there is still none, at less cost than another look. It
            may return false without a reason; None: the source cannot say.
    """

    records: int | None
    oldest: dt.datetime | None
    first_day: dt.date | None = None
    is_copy: bool = False
    is_same: Callable[[], bool] | None = field(default=None, compare=False)


class RangeSource(Protocol):
    """A source that is read in ranges. It stores no progress: positions are committed with the rows.

    The records of a range are written into files first, by day, and then validated, compared and stored like
    those of files. A position may lag, and then records are read again and nothing changes. It never leads.

    Raises, from every call:
        SourceUnavailable: the source does not answer now; the step is repeated.
        SourceRefused: it can never be read like this: a topic that is missing, a column that is not there.
        SourceLost: records between the position and what is left of the source are gone. Names the range, and
            how to go on; nothing is skipped silently.
    """

    @property
    def is_repeatable(self) -> bool:
        """Whether a range has the same records each time it is read."""
        ...

    def plan(self, positions: Positions, *, max_bytes: int, max_records: int) -> ReadRange | None:
        """Return the next range after the positions; None if there is nothing new.

        A range may be empty, with an end to commit: where reading begins at the newest record, the first
        plan says where that is.
        """
        ...

    def read(self, wanted: ReadRange, folder: Path) -> RangeRead:
        """Write the records of a range into files `<folder>/<YYYY-MM-DD>/<name>`, by the day of each record.

        A new file begins where the day or the place changes, so that the files are in source order. Memory
        does not depend on the number of records.
        """
        ...

    def confirm(self, positions: Positions) -> None:
        """Take notice that the rows before positions are committed and, if mirrored, acknowledged.

        A source that keeps records until then may remove them. It can be late, or never come.
        """
        ...

    def lag(self, positions: Positions) -> Lag:
        """Return what there is beyond the positions. A lost range is no error here.

        It has 0 records exactly where `plan` returns None: nothing else starts a run.
        """
        ...

    def close(self) -> None:
        """Let go of connections. Never raises."""
        ...
