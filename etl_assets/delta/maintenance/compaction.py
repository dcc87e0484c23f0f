"""Compaction: choosing files to merge from the log, and the commit that rewrites their rows into fewer files.

Every commit leaves a file for each day it touches, so a day of many commits has many small files. A closed
day gets no more files, so rewriting it once is enough. An open day, or a table without days, is rewritten
when it has so many files that readers notice.
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
from etl_assets.delta.log.gate import Access
from etl_assets.delta.log.lasting_cursors import lasting_cursors
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.log.partition_values import folder_of
from etl_assets.delta.read.data_files import ROWS_AT_ONCE, new_data_file, pieces_of
from etl_assets.delta.read.rows import DAY_COLUMN
from etl_assets.delta.session import driver_pid, scoped_settings
from etl_assets.delta.write.append import can_write_files, write_files
from etl_assets.delta.write.content import content_of
from etl_assets.delta.write.write_version import (
    DEFAULT_LOCK_WAIT_SECONDS,
    Place,
    commit_metadata,
    put_entry,
    write_settings,
    write_version,
)
from etl_assets.delta.write.writing import writing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from etl_assets.delta.log.entries import LogEntry
    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table
    from etl_assets.delta.write.content import StoredFile

    _Together = Sequence[Sequence[StoredFile]]

SMALL_BYTES = 64 << 20
"""A file of this many bytes or more is not rewritten."""
FILE_BYTES = 256 << 20
"""Up to this many bytes become one file. Two small files always fit, so every plan can be carried out."""
TIERS = (4 << 20, SMALL_BYTES)
"""Where files keep coming, files below the first size are merged; later the results, up to the second."""
CROWDED_FILES = 100
"""A partition with this many small files is rewritten although more will come.

Each time costs at most `SMALL_BYTES` more.
"""
MAX_BYTES_IN_PROCESS = 32 << 20
"""Small files of up to this many bytes together are rewritten by this process, within a second or two."""
_ROWS_READ_AT_ONCE = 500
_BYTES_AT_ONCE = 64 << 20
"""Bytes held in memory at a time: rows may be long, and a megabyte on disk may be thousands in memory."""
MAX_DAYS_PER_COMMIT = 10
MAX_BYTES_PER_COMMIT = 512 << 20
"""Limits the loss from a killed compaction, and how long others wait for the table's lock.

One day may have more bytes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The files that one commit rewrites.

    Attributes:
        days: The days whose files are merged; none for a table without days, all of whose files are.
        smaller_than: Bytes below which a file is rewritten.
        up_to: Bytes of the files they become.
    """

    days: Sequence[dt.date] = ()
    smaller_than: int = SMALL_BYTES
    up_to: int = FILE_BYTES

    def sql(self, target: str) -> str:
        """Return the OPTIMIZE statement."""
        days = ", ".join(f"DATE'{day.isoformat()}'" for day in self.days)
        return f"OPTIMIZE {target} WHERE {DAY_COLUMN} IN ({days})" if days else f"OPTIMIZE {target}"


def plan_compactions(
    snapshot: Snapshot, closed_before: dt.date, *, undated_files: int = 2
) -> Iterator[Compaction]:
    """Plan compactions that leave no two small files in a partition of a closed day, and few in an open one.

    Args:
        snapshot: The newest version.
        closed_before: The first day that is still open.
        undated_files: Number of small files from which a table without days is rewritten.
    """
    small = _small_files(snapshot, SMALL_BYTES)
    # A column of a user's may have the name of the platform's days, and hold anything.
    if all(day is None for day in small):
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
    """Plan the compaction of an open or closed partition with more than `most_files` small files of one tier.

    Each tier counts by itself: a merged file of the first tier is not rewritten because more small ones came.
    """
    for at_least, smaller_than in pairwise((0, *TIERS)):
        small = _small_files(snapshot, smaller_than, at_least)
        day, files = max(small.items(), key=lambda item: item[1], default=(None, 0))
        if files > most_files:
            return Compaction(days=() if day is None else (day,), smaller_than=smaller_than)
    return None


def _still_due(compaction: Compaction, snapshot: Snapshot) -> bool:
    """Return whether a version still has files that the compaction would rewrite."""
    small = _small_files(snapshot, compaction.smaller_than)
    return any(small[day] > 1 for day in compaction.days or (None,))


def _small_files(snapshot: Snapshot, smaller_than: int, at_least: int = 0) -> Counter[dt.date | None]:
    """Return, for each day, the number of small files in its fullest partition.

    A table without days has its number under None.
    """
    columns = snapshot.partition_columns()
    small = Counter(values for size, values in snapshot.sizes_by(*columns) if at_least <= size < smaller_than)
    fullest: Counter[dt.date | None] = Counter()
    for values, files in small.items():
        day = _day(values[columns.index(DAY_COLUMN)]) if DAY_COLUMN in columns else None
        fullest[day] = max(fullest[day], files)
    return fullest


def _small_bytes(snapshot: Snapshot) -> Counter[dt.date]:
    """Return the bytes of each day's small files."""
    of_day: Counter[dt.date] = Counter()
    for size, (value,) in snapshot.sizes_by(DAY_COLUMN):
        if size < SMALL_BYTES and (day := _day(value)) is not None:
            of_day[day] += size
    return of_day


def _day(value: Any) -> dt.date | None:
    try:
        return value if value is None or isinstance(value, dt.date) else dt.date.fromisoformat(value)
    except (TypeError, ValueError):
        return None


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
    """Rewrite the rows of small files into fewer files, as the newest version. No row changes.

    The plan holds for whatever version is the newest by now: others may commit all the time. If the files
    have few bytes, this process rewrites them itself. Delta's OPTIMIZE takes seconds however few they are,
    and no other process can commit meanwhile.

    Args:
        session: Returns the Spark session; called only where Spark is needed.
        table: The table.
        compaction: The files to rewrite.
        wait_seconds: How long to wait for the table's lock.

    Returns:
        The commit; None if another process did it meanwhile, or the files must be planned again.

    Raises:
        TableBusy: another process held the table's lock for too long; nothing was written.
        CommitUnverified: another program writes the table.
        Fenced, QuorumUnavailable: the table is mirrored and the commit was not acknowledged; see `mirroring`.
    """
    # 1. Choose the writer before locking: Spark may have to start, and the lock records the driver's process.
    planned_on = table.snapshot()
    if planned_on is None or not _still_due(compaction, planned_on):
        return None
    is_little = _is_little(table, planned_on, _small_together(compaction, planned_on))
    spark = None if is_little else session()
    with writing(table, wait_seconds=wait_seconds, driver_pid=None if spark is None else driver_pid(spark)):
        # 2. Check the plan again on the newest version.
        if (mirrored := table.replication) is not None:
            mirrored.lead()  # pushes the commits of a dead process, so that the newest version stays so
        newest = table.snapshot()
        if newest is None or not _still_due(compaction, newest):
            return None
        # 3. Rewrite the files, by Delta's OPTIMIZE or in this process.
        if spark is not None:
            return write_version(spark, table, newest.version + 1, partial(_optimize, spark, compaction))
        together = _small_together(compaction, newest)
        if not _is_little(table, newest, together):
            return None  # Too much for this process by now. The next plan leaves it to Delta.
        execute = partial(_rewrite_files, compaction, together, table, newest)
        return write_version(None, table, newest.version + 1, execute)


def _is_little(table: Table, snapshot: Snapshot, together: _Together) -> bool:
    """Return whether this process may rewrite the files, and can within a second or two."""
    # Where the log does not list the columns with statistics, Delta keeps bounds of timestamps as well.
    if not can_write_files(table, snapshot, Access.COMPACT) or snapshot.statistics_columns() is None:
        return False
    files = [file for some in together for file in some]
    return all(file.tells_rows for file in files) and sum(file.size for file in files) <= MAX_BYTES_IN_PROCESS


def _small_together(compaction: Compaction, snapshot: Snapshot) -> _Together:
    """Return groups of small files that become one: the files of a partition with several, oldest first."""

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


def _rewrite_files(
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
        raise RuntimeError(f"{before} rows of {table.name} became {after} when rewritten")
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
    """Concatenate pieces into row groups, so that many small files do not become as many row groups."""
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
