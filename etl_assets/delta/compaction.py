"""Fewer files for the same rows: which are to become fewer, decided from the log, and the commit that writes them anew.

Every commit leaves a file for each day it touches, so that a day of many commits has many small ones. Days that are over get no
more, so that writing them anew pays once and for all. A day that goes on, and a table without days, is written anew when it has
so many that readers feel it.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.contracts.sql_text import delta_table
from etl_assets.delta.append import can_write_files, write_files
from etl_assets.delta.commit import (
    DEFAULT_LOCK_WAIT_SECONDS,
    Place,
    commit_metadata,
    put_entry,
    write_settings,
    write_version,
)
from etl_assets.delta.content import content_of
from etl_assets.delta.data_files import ROWS_AT_ONCE, new_data_file, pieces_of
from etl_assets.delta.gate import Access
from etl_assets.delta.lasting_cursors import lasting_cursors
from etl_assets.delta.new_entry import NewEntry
from etl_assets.delta.partition_values import folder_of
from etl_assets.delta.rows import DAY_COLUMN
from etl_assets.delta.session import driver_pid, scoped_settings
from etl_assets.delta.writing import writing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from etl_assets.delta.content import StoredFile
    from etl_assets.delta.log import LogEntry
    from etl_assets.delta.table import Snapshot, Table

    _Together = Sequence[Sequence[StoredFile]]

SMALL_BYTES = 64 << 20
"""A file of so many bytes or more stays as it is."""
FILE_BYTES = 256 << 20
"""Up to this many bytes become one file. Two small ones always fit, so that whatever is planned is done."""
TIERS = (4 << 20, SMALL_BYTES)
"""Where files keep coming, those smaller than the first are made one, and later what became of them, up to the second."""
CROWDED_FILES = 100
"""So many small ones in one partition are written anew though more will come: each time costs at most `SMALL_BYTES` more."""
MAX_BYTES_IN_PROCESS = 32 << 20
"""Small files of so many bytes together are written anew by this process, within a second or two."""
_ROWS_READ_AT_ONCE = 500
_BYTES_AT_ONCE = 64 << 20
"""What is held at a time: rows may be long, and a megabyte on the disk may be thousands in memory."""
MAX_DAYS_PER_COMMIT = 10
MAX_BYTES_PER_COMMIT = 512 << 20
"""What a killed compaction loses at most, and for how long others wait for the table's lock. One day may have more bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What one commit writes anew.

    Attributes:
        days: The days whose files are to become fewer; none for a table without days, of which all are.
        smaller_than: Bytes below which a file is written anew.
        up_to: Bytes of the files they become.
    """

    days: Sequence[dt.date] = ()
    smaller_than: int = SMALL_BYTES
    up_to: int = FILE_BYTES

    def sql(self, target: str) -> str:
        """The statement."""
        days = ", ".join(f"DATE'{day.isoformat()}'" for day in self.days)
        return f"OPTIMIZE {target} WHERE {DAY_COLUMN} IN ({days})" if days else f"OPTIMIZE {target}"


def plan_compactions(
    snapshot: Snapshot, closed_before: dt.date, *, undated_files: int = 2
) -> Iterator[Compaction]:
    """Compactions that leave no two small files in a partition of a closed day, and few in those that will get more.

    Args:
        snapshot: The newest version.
        closed_before: The first day that goes on.
        undated_files: With so many small files a table without days is written anew.
    """
    small = _small_files(snapshot, SMALL_BYTES)
    if DAY_COLUMN not in snapshot.partition_columns():
        if small[None] >= undated_files:
            yield Compaction()
        return
    days = sorted(
        day
        for day, files in small.items()
        if day is not None and files >= (2 if day < closed_before else CROWDED_FILES)
    )
    for some in _batches(days, _small_bytes(snapshot)):
        yield Compaction(days=some)


def plan_crowded(snapshot: Snapshot, most_files: int) -> Compaction | None:
    """The compaction of a partition that has more than `most_files` small files of one tier, its day over or not.

    Each tier counts by itself: what became of the smallest is not written anew because more of them came.
    """
    for at_least, smaller_than in pairwise((0, *TIERS)):
        small = _small_files(snapshot, smaller_than, at_least)
        day, files = max(small.items(), key=lambda item: item[1], default=(None, 0))
        if files > most_files:
            return Compaction(days=() if day is None else (day,), smaller_than=smaller_than)
    return None


def _still_due(compaction: Compaction, snapshot: Snapshot) -> bool:
    """Whether a version still has something that the compaction would write anew."""
    small = _small_files(snapshot, compaction.smaller_than)
    return any(small[day] > 1 for day in compaction.days or (None,))


def _small_files(snapshot: Snapshot, smaller_than: int, at_least: int = 0) -> Counter[dt.date | None]:
    """For each day how many small files its fullest partition has; under None those of a table without days."""
    columns = snapshot.partition_columns()
    small = Counter(values for size, values in snapshot.sizes_by(*columns) if at_least <= size < smaller_than)
    fullest: Counter[dt.date | None] = Counter()
    for values, files in small.items():
        day = _day(values[columns.index(DAY_COLUMN)]) if DAY_COLUMN in columns else None
        fullest[day] = max(fullest[day], files)
    return fullest


def _small_bytes(snapshot: Snapshot) -> Counter[dt.date]:
    """For each day the bytes of its small files."""
    of_day: Counter[dt.date] = Counter()
    for size, (value,) in snapshot.sizes_by(DAY_COLUMN):
        if size < SMALL_BYTES:
            of_day[_day(value)] += size
    return of_day


def _day(value: Any) -> dt.date:
    return value if isinstance(value, dt.date) else dt.date.fromisoformat(value)


def _batches(days: Iterable[dt.date], bytes_of: Mapping[dt.date, int]) -> Iterator[list[dt.date]]:
    some: list[dt.date] = []
    size = 0
    for day in days:
        if some and (len(some) == MAX_DAYS_PER_COMMIT or size + bytes_of[day] > MAX_BYTES_PER_COMMIT):
            yield some
            some, size = [], 0
        some.append(day)
        size += bytes_of[day]
    if some:
        yield some


def commit_compaction(
    session: Callable[[], SparkSession],
    table: Table,
    compaction: Compaction,
    *,
    wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS,
) -> LogEntry | None:
    """Write rows of small files anew, in fewer files, as the newest version. No row changes, and none is new.

    What was planned holds for whatever version is the newest by now: others may commit all the time. Few bytes are written by
    this process, since Delta's OPTIMIZE takes seconds however few they are, in which nobody else can commit.

    Args:
        session: Gives the Spark session, where it is wanted.
        table: The table.
        compaction: What to write anew.
        wait_seconds: How long to wait for the table's lock.

    Returns:
        The commit; None if somebody else did it meanwhile.

    Raises:
        TableBusy: another process held the table's lock for too long; nothing was written.
        CommitUnverified: another program writes the table.
        Fenced, QuorumUnavailable: of a mirrored table; see `mirroring`.
    """
    planned_on = table.snapshot()
    if planned_on is None or not _still_due(compaction, planned_on):
        return None
    is_little = _is_little(table, planned_on, _small_together(compaction, planned_on))
    spark = None if is_little else session()
    with writing(table, wait_seconds=wait_seconds, driver_pid=None if spark is None else driver_pid(spark)):
        if (mirrored := table.replication) is not None:
            mirrored.lead()  # pushes what a dead process left, so that the newest version stays it
        newest = table.snapshot()
        if newest is None or not _still_due(compaction, newest):
            return None
        if spark is not None:
            return write_version(spark, table, newest.version + 1, partial(_optimize, spark, compaction))
        together = _small_together(compaction, newest)
        if not _is_little(table, newest, together):
            return None  # It is no longer for this process to do: planned anew, Delta does it.
        execute = partial(_write_anew, compaction, together, table, newest)
        return write_version(None, table, newest.version + 1, execute)


def _is_little(table: Table, snapshot: Snapshot, together: _Together) -> bool:
    """Whether this process may do it, and within a second or two."""
    # Where the log does not say which columns it keeps bounds of, Delta keeps those of times as well.
    if not can_write_files(table, snapshot, Access.COMPACT) or snapshot.statistics_columns() is None:
        return False
    files = [file for some in together for file in some]
    return all(file.tells_rows for file in files) and sum(file.size for file in files) <= MAX_BYTES_IN_PROCESS


def _small_together(compaction: Compaction, snapshot: Snapshot) -> _Together:
    """Small files that become one: those of a partition, where there are several, the older ones first."""

    def is_due(action: Mapping[str, Any]) -> bool:
        if action["size_bytes"] >= compaction.smaller_than:
            return False
        return not compaction.days or _day(action[f"partition.{DAY_COLUMN}"]) in compaction.days

    found: defaultdict[tuple[str | None, ...], list[StoredFile]] = defaultdict(list)
    for file in content_of(snapshot, is_due).values():
        found[tuple(file.partition[column] for column in snapshot.partition_columns())].append(file)
    return [sorted(files, key=_age) for files in found.values() if len(files) > 1]


def _age(file: StoredFile) -> tuple[int, int]:
    return file.statistics.get("minValues", {}).get("batch_id", -1), file.modified


def _write_anew(
    compaction: Compaction,
    together: _Together,
    table: Table,
    snapshot: Snapshot,
    place: Place,
    writer: str,
) -> None:
    contract = table.contract
    assert contract is not None  # else `can_write_files` is false
    schema = data_file_schema(contract, without=snapshot.partition_columns())

    def write(folder: Path) -> int:
        for files in together:
            target = folder / folder_of(files[0].partition, snapshot.partition_columns())
            target.mkdir(parents=True)
            with new_data_file(target / f"part-{uuid.uuid4()}.zstd.parquet", schema) as data_file:
                for rows in _fewer(
                    piece
                    for file in files
                    for piece in pieces_of(place.path / file.path, schema, at_once=_ROWS_READ_AT_ONCE)
                ):
                    data_file.write_table(rows)
        return 0

    new = write_files(table, place.path, snapshot, write)
    removed = tuple(file for files in together for file in files)
    before, after = sum(file.rows for file in removed), sum(file.rows for file in new.files)
    if before != after:
        raise RuntimeError(f"{before} rows of {table.name} became {after} when written anew")
    entry = NewEntry(
        operation="OPTIMIZE",
        base_version=snapshot.version,
        metrics={
            "numRemovedFiles": len(removed),
            "numRemovedBytes": sum(file.size for file in removed),
            "numAddedFiles": len(new.files),
            "numAddedBytes": sum(file.size for file in new.files),
        },
        removed=removed,
        added=new.files,
        transactions=lasting_cursors(table, snapshot.version, {}),
        user_metadata=commit_metadata(place, writer, _facts(compaction), last=True),
        changes_rows=False,
    )
    put_entry(table, place, snapshot, entry)


def _fewer(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Pieces put together to row groups: of many files of some rows each there would be as many."""
    import pyarrow as pa

    held: list[pa.Table] = []
    rows = size = 0
    for piece in pieces:
        held.append(piece)
        rows += piece.num_rows
        size += piece.nbytes
        if rows >= ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield pa.concat_tables(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_tables(held)


def _optimize(spark: SparkSession, compaction: Compaction, place: Place, writer: str) -> None:
    settings = {
        **write_settings(place, writer, {}, _facts(compaction)),
        "spark.databricks.delta.optimize.minFileSize": str(compaction.smaller_than),
        "spark.databricks.delta.optimize.maxFileSize": str(compaction.up_to),
    }
    with scoped_settings(spark, settings):
        spark.sql(compaction.sql(delta_table(place.path)))


def _facts(compaction: Compaction) -> dict[str, int]:
    return {"compacted_days": len(compaction.days)}
