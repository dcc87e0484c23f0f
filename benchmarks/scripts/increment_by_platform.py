"""Increments of the same size into a short and a long history, in turns, in one session that is warm."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.past import land_increment
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.increment_build import AFTER_RAW_EVENTS
from benchmarks.scripts.platform_steps import platform, steps

STAGES = ("raw_events", *AFTER_RAW_EVENTS)


def main() -> None:
    from etl_assets.resources.spark import SparkResource
    from etl_assets.steps.step import ReadMode

    told = arguments()
    spark = SparkResource(spark_config=told["spark"]).spark_session
    for turn in range(-told["warm_ups"], told["turns"]):
        sides = list(told["homes"].items())
        for side, home in sides if turn % 2 == 0 else sides[::-1]:
            day = dt.date.fromisoformat(told["days"][side])
            settings = platform(Path(home), Path(home, "landing"))
            land_increment(settings.landing_path, day, 1_000 + turn, told["events"])
            path = steps(settings, lambda: spark, ReadMode.INCREMENTAL)
            mark(f"{side} {turn} begins")
            for name in STAGES:
                report = path[name].run([day])
                mark(f"{side} {turn} {name}", inserted=report.total()["inserted"])
    spark.stop()


if __name__ == "__main__":
    main()
