"""A frame that an asset returned, as a step: an upsert into the asset's table, for any of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.delta.commit import DEFAULT_LOCK_WAIT_SECONDS, Commit, Write, commit
from etl_assets.delta.create import create_like
from etl_assets.delta.session import scoped_settings
from etl_assets.delta.table import Table
from etl_assets.delta.upsert import UpsertSpec, check_columns, newest_by_key
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
    """

    rows: DataFrame
    table: Table
    spec: UpsertSpec
    all_keys: tuple[str, ...]
    lock_wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS

    def run(self, keys: Sequence[str]) -> StepReport:
        """Upsert the rows of some of the partitions, in one commit."""
        with nullcontext() if self._is_whole(keys) else self._rows_one_by_one():
            return self._run(keys)

    def _run(self, keys: Sequence[str]) -> StepReport:
        check_columns(self.spec, self.rows.columns, table=self.table.name)
        rows = newest_by_key(self._rows_of(keys), self.spec, table=self.table.name)
        base = create_like(
            rows.sparkSession, self.table, self.rows, self.spec, wait_seconds=self.lock_wait_seconds
        )
        done = commit(
            self.table,
            Write(
                rows=rows,
                base_version=base,
                upsert=self.spec,
                partitions=keys if self.spec.partition_bound else None,
            ),
            wait_seconds=self.lock_wait_seconds,
        )
        return StepReport(
            table=self.table.name, version=done.version, counts=self._counts(done, keys), commits=1
        )

    def _is_whole(self, keys: Sequence[str]) -> bool:
        return set(keys) == set(self.all_keys)

    def _rows_one_by_one(self) -> AbstractContextManager[None]:
        """Queries in this leave rows out before they compute them, so that a bad one is that of its partition only."""
        spark = self.rows.sparkSession
        others = spark.conf.get(_EXCLUDED_RULES, None)
        return scoped_settings(spark, {_EXCLUDED_RULES: ",".join(filter(None, (others, _COMPUTES_LITERALS)))})

    def _rows_of(self, keys: Sequence[str]) -> DataFrame:
        if self._is_whole(keys):
            return self.rows
        if self.spec.delta_partition is None:
            raise ContractError(
                f"the rows of {self.table.name} cannot be told apart by partition, so that the good ones cannot be"
                " committed without the bad ones",
                fix="name the column of the asset's partition in the spec's `delta_partition`",
                table=self.table.name,
            )
        from pyspark.sql import functions as F

        return self.rows.where(F.col(self.spec.delta_partition).cast("string").isin(list(keys)))

    def _counts(self, done: Commit, keys: Sequence[str]) -> dict[str | None, Counter[str]]:
        """Figures of the whole commit, and for each partition what the commit's log entry says of it."""
        counts: dict[str | None, Counter[str]] = {key: Counter() for key in keys}
        totals = upsert_counts(done)
        if len(keys) == 1:
            counts[keys[0]] = totals
            return counts
        for key, rows in done.net_rows_by_partition.items():
            if key in counts:
                counts[key][INSERTED] = rows
                totals[INSERTED] -= rows
        counts[None] = +totals
        return counts
