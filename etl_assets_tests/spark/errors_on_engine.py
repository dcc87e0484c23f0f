"""What errors mean on the engine that `ETL_ASSETS_SPARK_MASTER` names: what the engine tests start.

`errors_on_engine FOLDER`: prints as JSON which of three days failed and how (one is bad), as what a commit
fails that another commit came before, and what a new session makes of a row once the one before it has ended.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")


def days_apart(spark: Any, folder: Path) -> dict[str, Any]:
    """An asset's frame over three days is committed; a value of the second is no number."""
    from etl_assets.delta.read.partition_filter import PartitionFilter
    from etl_assets.delta.table import Table
    from etl_assets.delta.write.write_spec import WriteSpec
    from etl_assets.io_managers.frame_step import FrameStep
    from etl_assets.io_managers.partition_split import run_partitions
    from etl_assets_tests.reference.tables import local_domain

    # A range and no rows from here: those Spark computes when it plans, and fails for days that are not asked
    # for.
    rows = spark.range(0, 3, numPartitions=1).selectExpr(
        f"array{DAYS}[id] AS day", "CAST(array('1', 'two', '3')[id] AS INT) AS number"
    )
    step = FrameStep(
        rows=rows,
        table=Table(name="numbers", domain=local_domain(folder), contract=None),
        spec=WriteSpec(keys=("day",), delta_partition="day"),
        all_keys=DAYS,
        partitions={day: PartitionFilter.of(day) for day in DAYS},
    )
    result = run_partitions(step.run, DAYS)
    stored = spark.read.format("delta").load(str(step.table.path)).orderBy("day").collect()
    return {
        "failed": {day: type(error).__name__ for day, error in result.failed.items()},
        "stored": [row["day"] for row in stored],
    }


def overtaken(spark: Any, folder: Path) -> dict[str, Any]:
    """A table is altered while rows for it are in the making."""
    from etl_assets.error_policy import decide

    table, made, go = str(folder / "overtaken"), folder / "made", folder / "go"
    spark.range(1).write.format("delta").save(table)

    def alter() -> None:
        _wait_for(made)
        spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS (other INT)")
        go.touch()

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        made.touch()
        _wait_for(go)
        yield from batches

    with ThreadPoolExecutor(1) as threads:
        altered = threads.submit(alter)
        rows = spark.range(0, 1, numPartitions=1).mapInArrow(slowly, "id LONG")
        try:
            rows.write.format("delta").mode("append").save(table)
        except Exception as error:  # noqa: BLE001 - what it is, is the question
            altered.result()
            return {"error": type(error).__name__, "decision": decide(error)}
    raise AssertionError("the table was altered, and rows were added nevertheless")


def renewed(spark: Any) -> list[int]:
    """The server ends the session, and another one gets a few rows of this process."""
    from pyspark.sql import SparkSession

    from etl_assets.delta.session import frame_of

    spark.client.release_session()
    other = SparkSession.builder.remote(os.environ["ETL_ASSETS_SPARK_MASTER"]).create()
    found = [row["id"] for row in frame_of(other, [(7,)], "id BIGINT").collect()]
    other.stop()
    return found


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{file} does not come")
        time.sleep(0.05)


def main(folder: Path) -> None:
    from etl_assets.resources.spark import SparkResource, spark_config
    from etl_assets.settings import load_settings

    spark = SparkResource(spark_config=spark_config(load_settings().spark)).spark_session
    said = {
        "days": days_apart(spark, folder),
        "overtaken": overtaken(spark, folder),
        "renewed": renewed(spark),
    }
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
