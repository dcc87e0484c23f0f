"""A frame that an asset returned, as a step: an upsert into the asset's table, for any of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etl_assets.contracts.sql_text import identifier
from etl_assets.delta.checked_rows import CheckedRows
from etl_assets.delta.commit import DEFAULT_LOCK_WAIT_SECONDS, Commit, Write, commit
from etl_assets.delta.create import create_like
from etl_assets.delta.frame_columns import check_fits, check_frame, columns_of
from etl_assets.delta.partition_filter import PartitionFilter
from etl_assets.delta.session import frame_of, scoped_settings
from etl_assets.delta.table import Snapshot, Table
from etl_assets.delta.upsert import UpsertSpec
from etl_assets.errors import ContractError
from etl_assets.steps.step import INSERTED, StepReport, upsert_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
_COMPUTES_LITERALS = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
"""Where rows are literals of the query, this rule computes all of them before some are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameStep:
    """The rows of a frame on their way into a table.

    Attributes:
        rows: What the asset returned; evaluated once for each commit.
        table: The asset's table; created from the frame's columns when it does not exist.
        spec: The asset's upsert spec.
        all_keys: Every partition key the frame holds rows of, none for an asset without partitions.
        partitions: For each of them the values it stands for in the spec's `delta_partition`, if there is one.
    """

    rows: DataFrame
    table: Table
    spec: UpsertSpec
    all_keys: tuple[str, ...]
    partitions: Mapping[str, PartitionFilter] = field(default_factory=dict)
    lock_wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS

    def run(self, keys: Sequence[str]) -> StepReport:
        """Upsert the rows of some of the partitions, in one commit."""
        with nullcontext() if self._is_whole(keys) else self._rows_one_by_one():
            return self._run(keys)

    def _run(self, keys: Sequence[str]) -> StepReport:
        spark = self.rows.sparkSession
        like = self.rows if self.spec.columns is None else frame_of(spark, [], self.spec.columns)
        self._check_columns(like)
        checked = CheckedRows(
            rows=self._rows_of(keys),
            spec=self.spec,
            table=self.table.name,
            partitions=self._values_of(self.all_keys),
            run=_few(self.all_keys),
        )
        base = create_like(spark, self.table, like, self.spec, wait_seconds=self.lock_wait_seconds)
        self._check_columns(like)  # of a table that another run has made meanwhile
        write = Write(
            rows=checked.newest(), base_version=base, upsert=self.spec, lies_in=self._values_of(keys)
        )
        try:
            done = commit(self.table, write, wait_seconds=self.lock_wait_seconds)
        except Exception as error:
            if (refusal := checked.refusal_in(error)) is not None:
                raise refusal from error
            raise
        return StepReport(
            table=self.table.name, version=done.version, counts=self._counts(done, keys, base), commits=1
        )

    def _check_columns(self, like: DataFrame) -> None:
        """Refuse columns that the table does not have, or would not if it were made like a frame."""
        schema, stored = self.rows.schema, self.table.snapshot()
        check_frame(self.spec, schema, table=self.table.name, is_new=stored is None)
        check_fits(schema, like.schema if stored is None else columns_of(stored), self.table)

    def _values_of(self, keys: Sequence[str]) -> PartitionFilter | None:
        """What the rows of some partitions have in `delta_partition`; None where that is not known, or may be anything."""
        if self.spec.delta_partition is None or not keys:
            return None
        return PartitionFilter.union(self.partitions[key] for key in keys)

    def _is_whole(self, keys: Sequence[str]) -> bool:
        return set(keys) == set(self.all_keys)

    def _rows_one_by_one(self) -> AbstractContextManager[None]:
        """Queries in this leave rows out before they compute them, so that a bad one is that of its partition only."""
        spark = self.rows.sparkSession
        others = spark.conf.get(_EXCLUDED_RULES, None)
        return scoped_settings(spark, {_EXCLUDED_RULES: ",".join(filter(None, (others, _COMPUTES_LITERALS)))})

    def _rows_of(self, keys: Sequence[str]) -> DataFrame:
        """All rows but those of other partitions of the run: what is of none of them is to be refused, and not left out."""
        if self._is_whole(keys):
            return self.rows
        others = self._values_of([key for key in self.all_keys if key not in keys])
        if others is None or self.spec.delta_partition is None:
            raise ContractError(
                f"the rows of {self.table.name} cannot be told apart by partition, so that the good ones cannot be"
                " committed without the bad ones",
                fix="name the column of the asset's partition in the spec's `delta_partition`",
                table=self.table.name,
            )
        return self.rows.where(
            f"NOT coalesce({others.condition(identifier(self.spec.delta_partition))}, FALSE)"
        )

    def _counts(self, done: Commit, keys: Sequence[str], base: int) -> dict[str | None, Counter[str]]:
        """Figures of the whole commit, and for each partition how many rows it has more, where the log tells.

        Nothing is told apart where a partition has fewer rows: then rows have moved between partitions, and what was inserted
        where is not known.
        """
        counts: dict[str | None, Counter[str]] = {key: Counter() for key in keys}
        totals = upsert_counts(done)
        if len(keys) == 1:
            counts[keys[0]] = totals
            return counts
        before, after = (self._rows_by_key(keys, version) for version in (base, done.version))
        more = {key: after[key] - before.get(key, 0) for key in after}
        if sum(more.values()) == totals[INSERTED] and all(rows >= 0 for rows in more.values()):
            for key, rows in more.items():
                counts[key][INSERTED] = rows
            totals[INSERTED] = 0
        counts[None] = +totals
        return counts

    def stored_rows(self, keys: Sequence[str]) -> dict[str, int]:
        """How many rows the table has of some partitions; of which it is not known, is not in it."""
        return self._rows_by_key(keys, None)

    def _rows_by_key(self, keys: Sequence[str], version: int | None) -> dict[str, int]:
        snapshot = self.table.snapshot(version)
        if snapshot is None or self.spec.delta_partition is None:
            return {}
        return rows_by_key(snapshot, self.spec.delta_partition, {key: self.partitions[key] for key in keys})


def rows_by_key(snapshot: Snapshot, column: str, partitions: Mapping[str, PartitionFilter]) -> dict[str, int]:
    """Rows of each partition key, from file statistics; of none in a table that is not laid out by the column."""
    if column not in snapshot.partition_columns():
        return {}
    stored = snapshot.rows_by_value(column)
    return {
        key: sum(rows for value, rows in stored.items() if values.holds(value))
        for key, values in partitions.items()
    }


def _few(keys: Sequence[str]) -> str:
    return ", ".join(keys) if len(keys) <= 3 else f"{len(keys)} from {keys[0]} to {keys[-1]}"
