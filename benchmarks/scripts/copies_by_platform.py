"""The first copies of some captured tables, at the same time as a worker's threads make them, or one after
the other.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benchmarks.captured_home import CAPTURE
from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl_assets.settings import Settings

WARM, COPIED = "session", "copied"


def main() -> None:
    from etl_assets.captures import discover
    from etl_assets.resources.spark import SparkResource
    from etl_assets.settings import load_settings
    from etl_assets.sources.captures.connect import close_readers

    told = arguments()
    settings = load_settings({"ETL_ASSETS_HOME": told["home"]})
    spark = SparkResource(spark_config=told["spark"]).spark_session
    discover(settings, CAPTURE)
    # A worker has copied other tables before: its code is loaded, and the slot is there.
    for name in told["small"]:
        _copy(settings, spark, name)
    mark(WARM)
    with ThreadPoolExecutor(told["at_once"]) as threads:
        list(threads.map(lambda name: _copy(settings, spark, name), told["tables"]))
    mark(COPIED)
    mark("verified", **{name: _rows(settings, name) for name in told["tables"]})
    close_readers(settings.home)
    spark.stop()


def _copy(settings: Settings, spark: SparkSession, table: str) -> None:
    from etl_assets.steps.placing import place
    from etl_assets.steps.step import ReadMode, StepArguments, StepContext, step_of

    session = spark.newSession()
    context = StepContext(session=lambda: session, domain=place(settings.placement(), table))
    step_of(table, StepArguments(settings=settings, context=context, mode=ReadMode.INCREMENTAL)).run([])


def _rows(settings: Settings, table: str) -> int:
    from etl_assets.steps.placing import place
    from etl_assets.steps.step import platform_table

    snapshot = platform_table(table, place(settings.placement(), table)).snapshot()
    return 0 if snapshot is None else snapshot.row_count()


if __name__ == "__main__":
    main()
