"""Writing down what a stage refuses, before its rows: one insert-only merge by deterministic id."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.spark_types import check_schema
from etl_assets.delta.commit import Write, commit
from etl_assets.delta.create import ensure_table
from etl_assets.delta.upsert import UpsertSpec
from etl_assets.steps.step import StepContext
from etl_assets.testing.failpoints import Failpoint, failpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from etl_assets.contracts.columns import TableContract


def commit_exceptions(
    context: StepContext,
    contract: TableContract,
    rows: DataFrame,
    *,
    output: str,
    days: Collection[dt.date],
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Add a batch's exceptions to their table; those that a killed run wrote already are left as they are.

    Args:
        context: The step's surroundings.
        contract: The exceptions table.
        rows: Its columns but `domain`, `failed_at`, `batch_id`.
        output: The table the stage writes, for failpoints.
        days: Days of the rows.
        facts: What to keep with the commit.
    """
    from pyspark.sql import functions as F

    failpoint(Failpoint.EXCEPTIONS_BEFORE_COMMIT, table=output)
    table = context.table(contract.name)
    version = ensure_table(table, wait_seconds=context.lock_wait_seconds)
    stamped = rows.select(
        "*",
        F.lit(context.domain.name).alias("domain"),
        F.lit(context.clock()).alias("failed_at"),
        F.lit(version + 1).cast("bigint").alias("batch_id"),
    )
    check_schema(contract, stamped.schema)
    commit(
        table,
        Write(
            rows=stamped,
            base_version=version,
            upsert=UpsertSpec.of(contract, partition_bound=True),
            partitions=[day.isoformat() for day in days],
            facts=facts,
            deterministic=True,
        ),
        wait_seconds=context.lock_wait_seconds,
    )
    failpoint(Failpoint.EXCEPTIONS_AFTER_COMMIT, table=output)
