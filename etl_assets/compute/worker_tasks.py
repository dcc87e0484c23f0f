"""Work that Spark's Python workers do by themselves: files read and written there, only figures go through Spark.

Where there is but one task, this process does it (docs/decisions/0030-little-work-is-done-here.md).

A task may run twice, after a failure or because Spark takes it for slow, and the first attempt may still be at work when
the second one is done. So an attempt writes only files of its own name, and what it returns names them: files that no
returned row names do not count.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from etl_assets.delta.session import frame_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Task = TypeVar("Task")
_ATTEMPTS = "attempts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What an attempt has written of one Delta partition.

    Attributes:
        partition: The partition's folder, such as `partition_date=2026-01-31`.
        name: The attempt's file; None where all rows were left out.
        left_out: Rows that were left out.
    """

    partition: str
    name: str | None
    left_out: int = 0


def in_workers(
    spark: SparkSession, tasks: Sequence[Task], work: Callable[[Task], Iterable[pa.RecordBatch]], schema: str
) -> DataFrame:
    """What `work` makes of each task, as rows; each is one Spark task.

    Args:
        spark: The session.
        tasks: Values that can be pickled; the workers have this package.
        work: Runs in a worker.
        schema: Of what it returns, as Spark's DDL.
    """
    tasks = list(tasks)

    def work_on_each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(tasks[number])

    if not tasks:
        return frame_of(spark, [], schema)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(work_on_each, schema)


def figures_of(
    spark: SparkSession, tasks: Sequence[Task], work: Callable[[Task], Iterable[pa.RecordBatch]], schema: str
) -> list[dict[str, Any]]:
    """The rows of `in_workers`, here.

    A single task is worked on in this process: there is nothing to share out, and a worker, which has its start and a job
    before it, would be no faster.
    """
    if len(tasks) < 2:
        return figures_in_process(tasks, work)
    return [row.asDict() for row in in_workers(spark, tasks, work, schema).collect()]


def figures_in_process(
    tasks: Sequence[Task], work: Callable[[Task], Iterable[pa.RecordBatch]]
) -> list[dict[str, Any]]:
    """The same, by this process alone."""
    return [row for task in tasks for batch in work(task) for row in batch.to_pylist()]


def write_in_workers(
    spark: SparkSession,
    tasks: Sequence[Task],
    write: Callable[[Task, Path], Iterable[Written]],
    folder: Path,
) -> int:
    """Have tasks write data files, and put those that count into a new folder, laid out as Delta has it.

    Attempts write into a folder beside it, where the files of those that do not count stay: some may be at work still.

    Args:
        spark: The session.
        tasks: As of `figures_of`.
        write: Writes the files of a task into a folder.
        folder: The folder.

    Returns:
        How many rows were left out.
    """
    import pyarrow as pa

    def work(task: Task) -> Iterator[pa.RecordBatch]:
        # The schema is said: no name at all would be no text.
        types = {"partition": pa.string(), "name": pa.string(), "left_out": pa.int64()}
        rows = [asdict(written) for written in write(task, attempts)]
        yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(types.items()))

    attempts = folder.with_name(_ATTEMPTS)
    attempts.mkdir(parents=True)
    folder.mkdir()
    left_out = 0
    for row in figures_of(spark, tasks, work, "partition STRING, name STRING, left_out BIGINT"):
        left_out += row["left_out"]
        if (name := row["name"]) is not None:
            target = folder / row["partition"]
            target.mkdir(parents=True, exist_ok=True)
            (attempts / name).rename(target / name)
    return left_out


def attempt_name() -> str:
    """A name that no other attempt has."""
    return uuid.uuid4().hex
