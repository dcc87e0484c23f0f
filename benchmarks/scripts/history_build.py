"""Two platforms for the history case: one with a long history, one with a single small day, made by the
steps.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.past import INCREMENT, Past, land_increment, land_past, spread_over_versions
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.platform_steps import DATA_PATH, DERIVED, platform, steps


def main() -> None:
    from etl_assets.resources.spark import SparkResource
    from etl_assets.steps.step import ReadMode, platform_table

    told = arguments()
    past = Past(days=told["days"], files=told["files"])
    spark = SparkResource(spark_config=told["spark"]).spark_session

    def run(home: Path, days: list[dt.date]) -> None:
        path = steps(platform(home, home / "landing"), lambda: spark, ReadMode.INCREMENTAL)
        for name in (*DATA_PATH, *DERIVED):
            path[name].run(days)
            mark(f"{home.name} {name} {len(days)}")

    long, fresh = Path(told["long"]), Path(told["fresh"])
    land_past(long / "landing", past)
    run(long, list(past.past_days))
    domain = platform(long, long / "landing").placement().domains[0]
    for name in (*DATA_PATH, *DERIVED):
        spread_over_versions(spark, platform_table(name, domain).path, past)
        mark(f"{long.name} {name} spread")
    for home in (long, fresh):
        land_increment(home / "landing", past.day, 0, INCREMENT)
        run(home, [past.day])
    spark.stop()


if __name__ == "__main__":
    main()
