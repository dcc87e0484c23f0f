"""The content of a version as data files, and rows that stay when their file is removed.

Belongs here: reading from the log and the files all that an entry needs to name files again. Does not belong
here: which files are removed (`undo/plan.py`), and the commit (`replacement.py`).
"""

from __future__ import annotations

import datetime as dt
import os
import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from etl_assets.delta.log.durability import write_durably
from etl_assets.delta.log.partition_values import as_text, folder_of
from etl_assets.delta.log.statistics import Bounds, bounds_of, listed, statistics
from etl_assets.delta.read.times import with_utc_times

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from etl_assets.delta.snapshot import Snapshot

_RESTORED = re.compile(r"\.restored-[0-9a-f]{16}(?=(\.parquet)?$)")
"""Suffix that an undo adds to the name of a restored file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A data file as the log has it.

    Attributes:
        name: Its path as the log writes it, relative to the table's folder.
        partition: Values of the Delta partition columns.
        size: Bytes.
        modified: Time of its last modification, in milliseconds.
        rows: Number of rows.
        statistics: Delta's statistics, their bounds as Python values.
    """

    name: str
    partition: Mapping[str, str | None]
    size: int
    modified: int
    rows: int
    statistics: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Path relative to the table's folder."""
        return unquote(self.name)

    @property
    def tells_rows(self) -> bool:
        """Whether the log reports its number of rows."""
        return self.statistics.get("numRecords") is not None

    @property
    def day(self) -> dt.date | None:
        """The file's day; None in a table without days."""
        return day_in(self.partition)

    @property
    def origin(self) -> str:
        """The file's original name; a restored file has another one."""
        return _RESTORED.sub("", self.name)

    def bring_back(self, folder: Path) -> StoredFile:
        """Link a file to be restored under a new name. It counts once a log entry names it.

        A vacuum that began earlier may be stopped at any moment and remove the old name at any later time, in
        any domain. It never removes a name that it has not seen, nor a young file. So the file's time is set
        to now before it gets the new name.

        Raises:
            FileNotFoundError: the file is missing.
        """
        os.utime(folder / self.path)
        stem = self.origin.removesuffix(".parquet")
        name = f"{stem}.restored-{uuid.uuid4().hex[:16]}{self.origin.removeprefix(stem)}"
        again = replace(self, name=name, modified=(folder / self.path).stat().st_mtime_ns // 1_000_000)
        (folder / again.path).hardlink_to(folder / self.path)
        return again

    def is_whole(self, folder: Path) -> bool:
        """Return whether the file exists with its full size."""
        try:
            return (folder / self.path).stat().st_size == self.size
        except FileNotFoundError:
            return False


def day_in(partition: Mapping[str, str | None]) -> dt.date | None:
    """Return the day of a partition; None if it has none.

    A user's column of that name may hold anything.
    """
    try:
        return dt.date.fromisoformat(partition.get("partition_date") or "")
    except ValueError:
        return None


def content_of(
    snapshot: Snapshot, wanted: Callable[[Mapping[str, Any]], bool] = lambda action: True
) -> dict[str, StoredFile]:
    """Return the data files of a version by name.

    `wanted` selects files by their action in the log (`add_actions`).
    """
    columns = listed(snapshot.fields(), snapshot.statistics_columns())
    actions = filter(wanted, snapshot.add_actions())
    files = (
        _stored_file(action, columns, snapshot.rows_of(action["path"], action["num_records"]))
        for action in actions
    )
    return {file.name: file for file in files}


def _stored_file(action: Mapping[str, Any], columns: Sequence[str], rows: int) -> StoredFile:
    """Return a file as the log has it. If the log has bounds of some listed columns only, all are dropped."""
    told, modified = action["num_records"], action["modification_time"]
    partition = {
        name.removeprefix("partition."): as_text(value)
        for name, value in action.items()
        if name.startswith("partition.")
    }
    bounds = {name: _bounds_in(action, name) for name in columns if name not in partition}
    return StoredFile(
        name=action["path"],
        partition=partition,
        size=action["size_bytes"],
        modified=int(modified.timestamp() * 1000) if isinstance(modified, dt.datetime) else int(modified),
        rows=rows,
        statistics={"numRecords": None} if told is None else statistics(told, bounds),
    )


def _bounds_in(action: Mapping[str, Any], column: str) -> Bounds | None:
    nulls = action.get(f"null_count.{column}")
    return None if nulls is None else Bounds(nulls, action.get(f"min.{column}"), action.get(f"max.{column}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRows:
    """Rows that stay when their file is removed; they are written to a file of their own.

    Attributes:
        partition: Their Delta partition.
        rows: The rows, without the partition columns.
        bounded: Columns that get bounds in the log: those that the original file had bounds of.
        long: Columns of long texts, which get no bounds in the file: a few texts would be there five times.
    """

    partition: Mapping[str, str | None]
    rows: pa.Table
    bounded: tuple[str, ...] = ()
    long: tuple[str, ...] = ()

    def write(self, folder: Path) -> StoredFile:
        """Write the rows into a table's folder. The file counts once a log entry names it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts = [folder_of(self.partition, self.partition)] if self.partition else []
        path = "/".join([*parts, f"part-kept-{uuid.uuid4()}.parquet"])
        sink = pa.BufferOutputStream()
        short = [name for name in self.rows.column_names if name not in self.long]
        pq.write_table(self.rows, sink, write_statistics=short if self.long else True)
        write_durably(folder / path, sink.getvalue().to_pybytes())
        written = (folder / path).stat()
        return StoredFile(
            name=quote(path, safe="/="),
            partition=self.partition,
            size=written.st_size,
            modified=written.st_mtime_ns // 1_000_000,
            rows=self.rows.num_rows,
            statistics=statistics(self.rows.num_rows, {name: self._bounds(name) for name in self.bounded}),
        )

    def _bounds(self, column: str) -> Bounds:
        """Return the bounds of a column. A column that was added after the file was written has no values."""
        there = column in self.rows.column_names
        return bounds_of(self.rows.column(column)) if there else Bounds(self.rows.num_rows)


def rows_kept(folder: Path, file: StoredFile, wanted: pc.Expression) -> KeptRows:
    """Return the rows of a file that meet a condition."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder / file.path, coerce_int96_timestamp_unit="us") as opened:
        rows = with_utc_times(opened.read(), opened)
    bounded = tuple(file.statistics.get("nullCount", ()))
    return KeptRows(partition=file.partition, rows=rows.filter(wanted), bounded=bounded)


def one_of(column: str, values: Collection[str]) -> pc.Expression:
    """Return the condition that a text column has one of some values."""
    import pyarrow.compute as pc

    return pc.field(column).isin(sorted(values))
