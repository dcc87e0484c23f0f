"""One tick of the landing sensor and one incremental run over a day with a new file, in a process that is warm.

Warm by the same work on a platform of its own first, whose tables have checkpoints: what a process pays once, such as
loading the code that reads one, does not hide what a long history costs.
The tables measured are not touched before, so their logs are read as a new run reads them.
"""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.past import FIRST_DAY, INCREMENT, checkpoint, land_increment
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.platform_steps import DATA_PATH, DERIVED, platform, steps
from etl_assets.settings import Settings

TICKS = 20
WARM_UPS = 3


def main() -> None:
    from etl_assets.placement.policy import Stage
    from etl_assets.resources.spark import SparkResource
    from etl_assets.steps.step import ReadMode, platform_table

    told = arguments()
    day, number = dt.date.fromisoformat(told["day"]), told["number"]
    home, scratch = Path(told["home"]), Path(told["scratch"])
    settings = platform(home, home / "landing")
    land_increment(settings.landing_path, day, number, INCREMENT)
    _tick(settings, "", day)
    cursor = _tick(settings, "", day)
    mark("tick")
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(TICKS):
        _tick(settings, cursor, day)
    mark(
        "ticked",
        wall_seconds=(time.perf_counter() - wall) / TICKS,
        cpu_seconds=(time.process_time() - cpu) / TICKS,
    )
    spark = SparkResource(spark_config=told["spark"]).spark_session
    warm = platform(scratch, scratch / "landing")
    domain = warm.placement().place(Stage.INGEST)
    for warm_up in range(WARM_UPS):
        land_increment(warm.landing_path, day, warm_up, INCREMENT)
        for name, step in steps(warm, lambda: spark, ReadMode.INCREMENTAL).items():
            step.run([day])
            if (table := platform_table(name, domain)).version() >= 0:
                checkpoint(spark, table.path)
    path = steps(settings, lambda: spark, ReadMode.INCREMENTAL)
    mark("warm")
    for name in (*DATA_PATH, *DERIVED):
        report = path[name].run([day])
        mark(name, commits=report.commits, inserted=report.total()["inserted"])
    spark.stop()


def _tick(settings: Settings, cursor: str, expected: dt.date) -> str:
    """What the sensor does before it asks Dagster for a run; returns the next cursor."""
    from etl_assets.contracts.tables import RAW_EVENTS
    from etl_assets.placement.policy import Stage
    from etl_assets.sensors.landing import MOST_DAYS_A_TICK
    from etl_assets.sources.ledger import Ledger
    from etl_assets.sources.watch import WatchCursor, watch
    from etl_assets.steps.data_path import source_folders
    from etl_assets.steps.step import platform_table

    domain = settings.placement().place(Stage.INGEST)
    found = watch(
        source_folders(settings, domain),
        Ledger.of(platform_table(RAW_EVENTS.name, domain)),
        WatchCursor.load(cursor),
        first_day=FIRST_DAY,
        now=dt.datetime.now(dt.UTC),
        settle_seconds=0,
        most_days=MOST_DAYS_A_TICK + 1,
    )
    if found.ready != (expected,):
        raise RuntimeError(f"the tick finds {found.ready}, not the one day with a new file")
    return found.cursor.dump()


if __name__ == "__main__":
    main()
