"""The bulk case by the platform's steps, all safety on; view, dead letters and audit after the tables
compared.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.platform_steps import DATA_PATH, DERIVED, platform, steps


def main() -> None:
    from etl_assets.resources.spark import SparkResource
    from etl_assets.steps.step import ReadMode, platform_table

    told = arguments()
    settings = platform(Path(told["tables"]), Path(told["landing"]), told.get("domains", 1))
    days = [dt.date.fromisoformat(day) for day in told["days"]]
    spark = SparkResource(spark_config=told["spark"]).spark_session
    path = steps(settings, lambda: spark, ReadMode.INCREMENTAL)
    mark("session")
    for name in DATA_PATH:
        path[name].run(days)
        mark(name)
    mark("tables")
    for name in DERIVED:
        path[name].run(days)
        mark(name)
    domain = settings.placement().domains[0]
    counts = {}
    for name in DATA_PATH:
        snapshot = platform_table(name, domain).snapshot()
        counts[name] = 0 if snapshot is None else snapshot.row_count()
    mark("verified", **counts)
    spark.stop()


if __name__ == "__main__":
    main()
