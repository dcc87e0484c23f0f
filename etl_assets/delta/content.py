"""The content of a version as data files, and rows of them that stay when their files go.

Belongs here: what is taken from the log and from the files, so that an entry can name them again. Does not belong here:
which files go (`steps/plan_undo.py`), and the commit (`replacement.py`).
"""

from __future__ import annotations

import datetime as dt
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from etl_assets.delta.durability import write_durably

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.delta.table import Snapshot

_RESTORED = re.compile(r"\.restored-[0-9a-f]{16}(?=(\.parquet)?$)")
"""What an undo adds to the name of a file that it brings back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A data file as the log has it.

    Attributes:
        name: Its path as the log writes it, relative to the table's folder.
        partition: Values of the Delta partition columns.
        size: Bytes.
        modified: When it was written, in milliseconds.
        rows: Number of rows.
        statistics: Delta's statistics, those that JSON has a type for.
    """

    name: str
    partition: Mapping[str, str | None]
    size: int
    modified: int
    rows: int
    statistics: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Relative to the table's folder."""
        return unquote(self.name)

    @property
    def tells_rows(self) -> bool:
        """Whether the log says how many rows it has."""
        return self.statistics.get("numRecords") is not None

    @property
    def day(self) -> dt.date | None:
        """The day it is of; None in a table without days."""
        value = self.partition.get("partition_date")
        return None if value is None else dt.date.fromisoformat(value)

    @property
    def origin(self) -> str:
        """The name that its content first had: a file that an undo brought back has another one."""
        return _RESTORED.sub("", self.name)

    def bring_back(self, folder: Path) -> StoredFile:
        """Give a file that a version is to name again a new name; it counts once a log entry names it.

        A vacuum that began before may be stopped at any moment and remove the old name at any time later, in any domain. It
        never removes a name that it has not seen, nor one that is young: so the file becomes young before it gets the name.

        Raises:
            FileNotFoundError: it is gone.
        """
        os.utime(folder / self.path)
        stem = self.origin.removesuffix(".parquet")
        name = f"{stem}.restored-{uuid.uuid4().hex[:16]}{self.origin.removeprefix(stem)}"
        again = replace(self, name=name, modified=(folder / self.path).stat().st_mtime_ns // 1_000_000)
        (folder / again.path).hardlink_to(folder / self.path)
        return again

    def is_whole(self, folder: Path) -> bool:
        """Whether the file is there, in full."""
        try:
            return (folder / self.path).stat().st_size == self.size
        except FileNotFoundError:
            return False


def content_of(
    snapshot: Snapshot, wanted: Callable[[Mapping[str, Any]], bool] = lambda action: True
) -> dict[str, StoredFile]:
    """The data files of a version by name; of all, those that are wanted by what the log says of them (`add_actions`)."""
    files = (_stored_file(action) for action in snapshot.add_actions() if wanted(action))
    return {file.name: file for file in files}


def _stored_file(action: Mapping[str, Any]) -> StoredFile:
    statistics: dict[str, Any] = {"numRecords": action["num_records"]}
    for kind, key in (("min", "minValues"), ("max", "maxValues"), ("null_count", "nullCount")):
        statistics[key] = {
            name.partition(".")[2]: value.isoformat() if isinstance(value, dt.date) else value
            for name, value in action.items()
            # A missing bound only makes readers open the file; one in the wrong form would make them skip it.
            if name.startswith(f"{kind}.") and (type(value) in (int, str, dt.date))
        }
    modified = action["modification_time"]
    return StoredFile(
        name=action["path"],
        partition={
            name.partition(".")[2]: None if value is None else str(value)
            for name, value in action.items()
            if name.startswith("partition.")
        },
        size=action["size_bytes"],
        modified=int(modified.timestamp() * 1000) if isinstance(modified, dt.datetime) else int(modified),
        rows=action["num_records"] or 0,
        statistics=statistics,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRows:
    """Rows that stay when the file they are in goes: they are written to a file of their own.

    Attributes:
        partition: The Delta partition they are in.
        rows: They, without the partition columns.
        bounded: Columns that the log is to have bounds of: those that it had of the file they are from.
    """

    partition: Mapping[str, str | None]
    rows: pa.Table
    bounded: tuple[str, ...] = ()

    def write(self, folder: Path) -> StoredFile:
        """Write them into a table's folder. The file counts once a log entry names it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts = [f"{column}={quote(value or '')}" for column, value in self.partition.items()]
        path = "/".join([*parts, f"part-kept-{uuid.uuid4()}.parquet"])
        sink = pa.BufferOutputStream()
        pq.write_table(self.rows, sink)
        write_durably(folder / path, sink.getvalue().to_pybytes())
        written = (folder / path).stat()
        return StoredFile(
            name=quote(path),
            partition=self.partition,
            size=written.st_size,
            modified=written.st_mtime_ns // 1_000_000,
            rows=self.rows.num_rows,
            statistics=_statistics_of(self.rows, self.bounded),
        )


def _statistics_of(rows: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
    """Delta's statistics of some columns, or of none: of a column that is left out beside others, delta-rs takes its bounds
    for null, and no reader who asks for a value of it is shown the file.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    simple = all(
        pa.types.is_integer(rows.schema.field(name).type) or pa.types.is_string(rows.schema.field(name).type)
        for name in columns
    )
    if not columns or not simple or any(rows.column(name).null_count for name in columns):
        return {"numRecords": rows.num_rows}
    bounds = {name: pc.call_function("min_max", [rows.column(name)]).as_py() for name in columns}
    return {
        "numRecords": rows.num_rows,
        "minValues": {name: found["min"] for name, found in bounds.items()},
        "maxValues": {name: found["max"] for name, found in bounds.items()},
        "nullCount": dict.fromkeys(columns, 0),
    }


def rows_kept(folder: Path, file: StoredFile, column: str, values: frozenset[str]) -> KeptRows:
    """The rows of a file with one of some values in a text column."""
    import pyarrow.dataset
    import pyarrow.parquet as pq

    wanted = pyarrow.dataset.field(column).isin(sorted(values))
    rows = pq.read_table(folder / file.path, partitioning=None, filters=wanted)
    bounded = tuple(file.statistics.get("minValues", ()))
    return KeptRows(partition=file.partition, rows=with_utc_times(rows), bounded=bounded)


def with_utc_times(rows: pa.Table) -> pa.Table:
    """Rows of a data file with their times as contracts have them.

    Spark may have written them in its old form, which pyarrow reads as nanoseconds without a zone.
    """
    import pyarrow as pa

    fields = [
        field.with_type(pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(field.type) else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
