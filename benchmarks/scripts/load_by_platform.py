"""Landing to raw_events by the platform's step; the other tables after it where they are wanted."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.platform_steps import DATA_PATH, DERIVED, platform, steps


def main() -> None:
    from pyspark.sql import SparkSession

    from etl_assets.resources.spark import SparkResource
    from etl_assets.settings import JvmStart
    from etl_assets.steps.step import ReadMode, platform_table

    told = arguments()
    settings = platform(Path(told["home"]), Path(told["landing"]))
    days = [dt.date.fromisoformat(day) for day in told["days"]]
    start = (JvmStart.QUICK if told["quick"] else JvmStart.FULL).value
    resource = SparkResource(spark_config=told["spark"], start=start)
    if not told["quick"]:
        _ = resource.spark_session
    mark("session")
    # As in a run, Spark starts when a step asks for it: the step of few events does not.
    path = steps(settings, lambda: resource.spark_session, ReadMode.INCREMENTAL)
    path["raw_events"].run(days)
    mark("done")
    if told["everything"]:
        for name in (*DATA_PATH, *DERIVED):
            path[name].run(days)
    snapshot = platform_table("raw_events", settings.placement().domains[0]).snapshot()
    mark("verified", rows=0 if snapshot is None else snapshot.row_count())
    if (running := SparkSession.getActiveSession()) is not None:
        running.stop()


if __name__ == "__main__":
    main()
