"""A code location of a user's own, with the resources of an installation: two assets, a day a partition."""
# ruff: noqa: I002 - Dagster does not read postponed annotations

import os
from typing import Any

import dagster as dg

from etl_assets.build import platform_resources
from etl_assets.delta.write.write_spec import WriteMode, WriteSpec
from etl_assets.settings import load_installation

REVISION = "OWN_LOCATION_REVISION"
DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01")
READINGS = WriteSpec(keys=("id",), sequence_by="revision", delta_partition="day")
VISITS = WriteSpec(write_mode=WriteMode.APPEND, delta_partition="day")


def _rows(context: dg.AssetExecutionContext, spark: Any) -> Any:
    revision = int(os.environ[REVISION])
    rows = [(f"{context.partition_key}-{number}", context.partition_key, revision) for number in range(3)]
    return spark.spark_session.createDataFrame(rows, "id STRING, day STRING, revision INT")


@dg.asset(
    key=["lab", "readings"], partitions_def=DAYS, metadata=READINGS.to_metadata(), io_manager_key="delta"
)
def readings(context: dg.AssetExecutionContext, spark: dg.ResourceParam[object]) -> Any:
    """One row for each id."""
    return _rows(context, spark)


@dg.asset(key=["lab", "visits"], partitions_def=DAYS, metadata=VISITS.to_metadata(), io_manager_key="delta")
def visits(context: dg.AssetExecutionContext, spark: dg.ResourceParam[object]) -> Any:
    """Every row of every run."""
    return _rows(context, spark)


defs = dg.Definitions(
    assets=[readings, visits],
    resources=platform_resources(load_installation()),
    executor=dg.in_process_executor,
)
