"""A write of rows as a value, which `commit.py` carries out.

Belongs here: what is written, and what is known about it. Does not belong here: by which way it is carried
out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.delta.read.range_predicate import Within
from etl_assets.delta.read.rows import KnownFiles
from etl_assets.delta.write.upsert import UpsertSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


ALL_ROWS = "TRUE"
"""The value of `Write.replaces` that every row meets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Identity of a planned write. A table commits each (`app_id`, `version`) once; versions only grow."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredRows:
    """Rows whose frame is only made if Delta's writer has to write them, because a frame needs Spark.

    Attributes:
        schema: The frame's schema.
        frame: Makes the frame.
    """

    schema: StructType
    frame: Callable[[], DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write to commit.

    Attributes:
        rows: The rows, with the table's columns. Evaluated once, by the write. Deferred rows need `files`.
        base_version: The table's version the rows were planned on; the commit becomes the next one.
        transaction: Identity of the write, under which it is committed once. Without one only `base_version`
            guards it: a repetition finds the table past its base, fails, and must be planned again.
        upsert: How to merge, from a frame with each merge key once; None appends.
        replace: An upsert's rows replace the table's rows with the same keys, whether newer or not.
        replaces: Condition on the table's rows: rows that meet it are removed by this commit. `ALL_ROWS`
            removes all of them, None none.
        partitions: Values of the Delta partition column among the rows, where known.
        rows_at_most: Most rows that there can be, where file statistics tell.
        lies_in: Like `partitions`, for a table without contract, whose column may have any type.
        cursors: Progress on the inputs that this commit consumes: cursor name to source version.
        transactions: Other transaction ids to set with this commit, also to lower versions, such as positions
            in a source.
        facts: Metrics of the batch to keep with the commit.
        deterministic: Every evaluation of the rows gives the same result, so that MERGE need not keep a copy.
        known_within: Ranges that hold every row of the table with a key of this write, if known. Other rows
            are not read. If the ranges hold no rows, an upsert is an append.
        files: Writes the same rows as Parquet files into a new folder, laid out by the Delta partition
            columns, for less than evaluating `rows` costs. Called instead of that where Delta's writer is not
            needed. It gets the table's data files that may already hold rows of an upsert, leaves those rows
            out, and returns their number.
    """

    rows: DataFrame | DeferredRows
    base_version: int
    transaction: Transaction | None = None
    upsert: UpsertSpec | None = None
    replace: bool = False
    replaces: str | None = None
    partitions: Collection[str] | None = None
    rows_at_most: int | None = None
    lies_in: PartitionFilter | None = None
    cursors: Mapping[str, int] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    deterministic: bool = False
    known_within: Within | None = None
    files: Callable[[Path, KnownFiles], int] | None = None
