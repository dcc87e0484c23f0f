"""Commit the rejects of a stage before its rows: one insert-only merge by deterministic id."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.spark_types import check_schema
from etl_assets.delta.read.rows import KnownFiles
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.delta.write.write import DeferredRows, Write
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.steps.step import StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from etl_assets.contracts.columns import TableContract


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """Columns that all exceptions of one commit have in common."""

    domain: str
    failed_at: dt.datetime
    batch_id: int

    def on(self, rows: DataFrame) -> DataFrame:
        """Return rows with these columns added."""
        from pyspark.sql import functions as F

        return rows.select(
            "*",
            F.lit(self.domain).alias("domain"),
            F.lit(self.failed_at).alias("failed_at"),
            F.lit(self.batch_id).cast("bigint").alias("batch_id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceptions:
    """Exceptions with the columns of their table.

    Attributes:
        frame: The exceptions.
        files: Writes them as data files, which costs less; see `Write.files`.
    """

    frame: DataFrame | DeferredRows
    files: Callable[[Path, KnownFiles], int] | None = None


def commit_exceptions(
    context: StepContext,
    contract: TableContract,
    make: Callable[[Stamps], Exceptions],
    *,
    output: str,
    days: Collection[dt.date],
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Add a batch's exceptions to their table.

    Exceptions that a killed run has already committed are left as they are.

    Args:
        context: The step's context.
        contract: The exceptions table.
        make: Builds the exceptions, with the same ids at each call.
        output: The table that the stage writes, for failpoints.
        days: Days of the exceptions.
        facts: Facts to keep with the commit.
    """
    failpoint(Failpoint.EXCEPTIONS_BEFORE_COMMIT, table=output)
    table = context.table(contract.name)
    version = ensure_table(table, wait_seconds=context.lock_wait_seconds)
    made = make(Stamps(domain=context.domain.name, failed_at=context.clock(), batch_id=version + 1))
    check_schema(contract, made.frame.schema)
    commit(
        table,
        Write(
            rows=made.frame,
            files=made.files,
            base_version=version,
            upsert=UpsertSpec.of(contract, partition_bound=True),
            partitions=[day.isoformat() for day in days],
            facts=facts,
            deterministic=True,
        ),
        wait_seconds=context.lock_wait_seconds,
    )
    failpoint(Failpoint.EXCEPTIONS_AFTER_COMMIT, table=output)
