"""Readings of weather stations: assets of your own, a day a partition, with idempotent upserts."""
# ruff: noqa: I002 - Dagster does not read postponed annotations

from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame

from etl_assets.delta.write.write_spec import WriteSpec
from etl_assets.io_managers import DeltaUpsertIOManager
from etl_assets.resources.spark import SparkResource, spark_config
from etl_assets.settings import SparkSettings

DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01")
READINGS = WriteSpec(keys=("station", "hour"), sequence_by="sent_at", delta_partition="day")


@dg.asset(
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata=READINGS.to_metadata(),
    io_manager_key="delta",
)
def readings(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    """One row for each station and hour; of two that were sent, the later one."""
    files = [str(Path("readings", f"{day}.csv").absolute()) for day in context.partition_keys]
    columns = "station STRING, day DATE, hour TIMESTAMP, celsius DOUBLE, sent_at TIMESTAMP"
    return spark.spark_session.read.schema(columns).option("header", True).csv(files)


@dg.asset(metadata=WriteSpec(keys=("station",)).to_metadata(), io_manager_key="delta")
def warmest(readings: DataFrame) -> DataFrame:
    """The warmest hour of each station, over all days."""
    return readings.groupBy("station").agg({"celsius": "max"}).withColumnRenamed("max(celsius)", "celsius")


spark = SparkResource(spark_config=spark_config(SparkSettings()))
delta = DeltaUpsertIOManager(root=str(Path("data").absolute()), spark=spark)
defs = dg.Definitions(assets=[readings, warmest], resources={"spark": spark, "delta": delta})
