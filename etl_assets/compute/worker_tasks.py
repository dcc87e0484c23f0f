"""Tasks that Spark's Python workers run by themselves.

They read and write files; only figures pass through Spark.

A single task runs in this process, and so do tasks that have little to do
(docs/decisions/0030-little-work-is-done-here.md). A task may run twice,
after a failure or because Spark considers it slow, and the first attempt may still be at work when the second
one is done. So an attempt writes only files with names of its own, and its result names them. Files that no
result names do not count.
"""

from __future__ import annotations

import gc
import sys
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
_frozen_modules = 0
"""How many modules a worker had imported when they were hidden from the garbage collector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Result of one attempt for one Delta partition.

    Attributes:
        partition: The partition's folder, such as `partition_date=2026-01-31`.
        name: The attempt's file; None if all rows were left out.
        left_out: Number of rows left out.
    """

    partition: str
    name: str | None
    left_out: int = 0


def in_workers(
    spark: SparkSession, tasks: Sequence[Task], work: Callable[[Task], Iterable[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Return the rows that `work` yields for each task. Each task is one Spark task.

    Args:
        spark: The session.
        tasks: Values that can be pickled; the workers have this package.
        work: Runs in a worker.
        schema: Schema of its rows, as Spark's DDL.
    """
    tasks = list(tasks)

    def work_on_each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(tasks[number])
        _freeze_modules()

    if not tasks:
        return frame_of(spark, [], schema)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(work_on_each, schema)


def figures_of(
    session: Callable[[], SparkSession],
    tasks: Sequence[Task],
    work: Callable[[Task], Iterable[pa.RecordBatch]],
    schema: str,
    *,
    is_little: bool = False,
) -> list[dict[str, Any]]:
    """Collect the rows of `in_workers`.

    A single task runs in this process, and asks for no session. There is nothing to distribute, and a worker
    would be no faster: it would have to be started, by a job of its own. The same holds for tasks that have
    little to do together (`is_little`), such as many days of some rows each.
    """
    if is_little or len(tasks) < 2:
        return figures_in_process(tasks, work)
    return [row.asDict() for row in in_workers(session(), tasks, work, schema).collect()]


def figures_in_process(
    tasks: Sequence[Task], work: Callable[[Task], Iterable[pa.RecordBatch]]
) -> list[dict[str, Any]]:
    """Collect the rows of `work` for each task, all run in this process."""
    return [row for task in tasks for batch in work(task) for row in batch.to_pylist()]


def write_in_workers(
    session: Callable[[], SparkSession],
    tasks: Sequence[Task],
    write: Callable[[Task, Path], Iterable[Written]],
    folder: Path,
    *,
    is_little: bool = False,
) -> int:
    """Run tasks that write data files, and move those that count into a new folder.

    The folder is laid out as Delta has it.

    Attempts write into a folder beside it. Files that do not count stay there, because some attempts may
    still be at work.

    Args:
        session: Returns the session; not called for a single task, nor for little work.
        tasks: Tasks as for `figures_of`.
        write: Writes the files of a task into a folder.
        folder: The new folder.
        is_little: Whether this process does all tasks.

    Returns:
        Number of rows left out.
    """
    import pyarrow as pa

    attempts = folder.with_name(_ATTEMPTS)

    def work(task: Task) -> Iterator[pa.RecordBatch]:
        # With an explicit schema, because a column of only None would not be inferred as text.
        types = {"partition": pa.string(), "name": pa.string(), "left_out": pa.int64()}
        rows = [asdict(written) for written in write(task, attempts)]
        yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(types.items()))

    attempts.mkdir(parents=True)
    folder.mkdir()
    left_out = 0
    schema = "partition STRING, name STRING, left_out BIGINT"
    for row in figures_of(session, tasks, work, schema, is_little=is_little):
        left_out += row["left_out"]
        if (name := row["name"]) is not None:
            target = folder / row["partition"]
            target.mkdir(parents=True, exist_ok=True)
            (attempts / name).rename(target / name)
    return left_out


def _freeze_modules() -> None:
    """Hide what was imported from the garbage collector.

    Spark's worker collects garbage after each task. With the modules of this package that takes 30 ms each
    time, a fifth of a task over 8 MB of records.
    """
    global _frozen_modules
    if len(sys.modules) != _frozen_modules:
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)


def attempt_name() -> str:
    """Return a name that no other attempt has."""
    return uuid.uuid4().hex
