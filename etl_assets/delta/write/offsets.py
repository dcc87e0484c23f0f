"""Dense offsets for the rows of a batch, assigned from counts per file instead of by one sort in one task.

The rows are staged in files. When each staged file is read as one partition, a row's place in its partition
is its place among the file's remaining rows. That place plus the rows before the file is the offset. A file
may hold several runs of rows (blocks of different input files); runs are put in the order of the source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.delta.session import frame_of
from etl_assets.delta.write.staged import STAGED_FILE, STAGED_ROW

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from etl_assets.delta.snapshot import Snapshot

DEALT, RETIRED = "offsets/dealt", "offsets/retired"
"""Transaction ids of an undo: the number of offsets assigned so far, and of those without a row any more."""
_WHOLE_FILE = str(1 << 40)
ONE_PARTITION_PER_FILE = {
    # A split ends where size and open cost together pass the limit: after every file, and never inside one.
    "spark.sql.files.maxPartitionBytes": _WHOLE_FILE,
    "spark.sql.files.openCostInBytes": _WHOLE_FILE,
}
"""Session settings under which the result of `deal_offsets` must be both counted and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Rows of one staged file that belong together: their key, first row, and number of remaining rows.

    They are in file order.
    """

    file: str
    key: tuple[int, ...]
    first_row: int
    rows: int


def next_offset(snapshot: Snapshot | None) -> int:
    """Return the first offset that no row of the table has or ever had.

    No offset is assigned twice, even after an undo removed rows: readers outside take the row with the higher
    offset for the newer one.
    """
    if snapshot is None:
        return 0
    newest = snapshot.maximum("offset")
    return max(0 if newest is None else newest + 1, snapshot.transaction_version(DEALT))


def first_since_undo(snapshot: Snapshot) -> int:
    """Return the lowest offset that a row made after the last undo can have.

    Rows that an undo restored have lower ones.
    """
    return max(0, snapshot.transaction_version(DEALT))


def retired_offsets(snapshot: Snapshot) -> int:
    """Return the number of offsets below the next one that belonged to rows removed by an undo."""
    return max(0, snapshot.transaction_version(RETIRED))


def count_runs(rows: DataFrame, key: Sequence[str]) -> tuple[Run, ...]:
    """Count the runs of the remaining rows, in one small Spark job over the key columns."""
    from pyspark.sql import functions as F

    counted = rows.groupBy(STAGED_FILE, *key).agg(
        F.min(STAGED_ROW).alias("first_row"), F.count("*").alias("rows")
    )
    return tuple(
        Run(
            file=row[STAGED_FILE],
            key=tuple(row[name] for name in key),
            first_row=row["first_row"],
            rows=row["rows"],
        )
        for row in counted.collect()
    )


def count_runs_in_process(rows: pa.Table, key: Sequence[str]) -> tuple[Run, ...]:
    """Count the runs of rows in memory, as `count_runs` does."""
    counted = rows.group_by([STAGED_FILE, *key]).aggregate([(STAGED_ROW, "min"), (STAGED_ROW, "count")])
    return tuple(
        Run(
            file=row[STAGED_FILE],
            key=tuple(row[name] for name in key),
            first_row=row[f"{STAGED_ROW}_min"],
            rows=row[f"{STAGED_ROW}_count"],
        )
        for row in counted.to_pylist()
    )


def shifts(runs: Sequence[Run], first_offset: int) -> dict[tuple[str, tuple[int, ...]], int]:
    """Return, for each run, the number to add to a row's place in its file to get its offset.

    Runs are in the order of their keys.
    """
    # 1. For each run, the rows of its file before it.
    before_in_file: dict[tuple[str, tuple[int, ...]], int] = {}
    seen: defaultdict[str, int] = defaultdict(int)
    for run in sorted(runs, key=lambda run: (run.file, run.first_row)):
        before_in_file[run.file, run.key] = seen[run.file]
        seen[run.file] += run.rows
    # 2. For each run, the offset of its first row less those rows.
    result, next_offset = {}, first_offset
    for run in sorted(runs, key=lambda run: (run.key, run.file)):
        result[run.file, run.key] = next_offset - before_in_file[run.file, run.key]
        next_offset += run.rows
    return result


def deal_offsets(rows: DataFrame, runs: Sequence[Run], key: Sequence[str], first_offset: int) -> DataFrame:
    """Add `offset`: dense from `first_offset`, in the order of the runs' keys, and within a run as staged.

    Args:
        rows: The rows that `count_runs` counted; no step between may shuffle or drop rows.
        runs: The result of `count_runs`.
        key: The columns that distinguish the runs of a file; their order is the order of offsets.
        first_offset: Offset of the first row.

    Returns:
        The rows with `offset` and without the columns of `StagedRows.frame`. Evaluate them under
        `ONE_PARTITION_PER_FILE`; a row read in another partitioning fails the query.
    """
    from pyspark.sql import functions as F

    spark = rows.sparkSession
    schema = ", ".join([f"{STAGED_FILE} STRING", *(f"{name} BIGINT" for name in key), "__shift BIGINT"])
    rows_by_run = ((file, *values, shift) for (file, values), shift in shifts(runs, first_offset).items())
    by_run = frame_of(spark, rows_by_run, schema)
    placed = rows.join(F.broadcast(by_run), [STAGED_FILE, *key]).withColumn(
        "__place", F.monotonically_increasing_id().bitwiseAND((1 << 33) - 1)
    )
    misplaced = F.raise_error(F.lit("a staged file was read in another partitioning than planned")).cast(
        "bigint"
    )
    offset = F.when(F.col("__place") <= F.col(STAGED_ROW), F.col("__place") + F.col("__shift")).otherwise(
        misplaced
    )
    return placed.withColumn("offset", offset).drop("__place", "__shift", STAGED_FILE, STAGED_ROW)
