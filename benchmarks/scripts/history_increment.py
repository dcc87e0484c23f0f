"""Ticks of the landing sensor without news and with, then one incremental run over a day with a new file, in
a process that is warm.

Warm by the same work on a platform of its own first, whose tables have checkpoints: what a process pays once,
such as loading the code that reads one, does not hide what a long history costs.
The tables measured are not touched before, so their logs are read as a new run reads them.
"""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from benchmarks.marks import mark
from benchmarks.past import FIRST_DAY, INCREMENT, checkpoint, land_increment
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.platform_steps import DATA_PATH, DERIVED, platform, steps
from etl_assets.settings import Settings

if TYPE_CHECKING:
    import dagster as dg

TICKS = 20
WARM_UPS = 3


def main() -> None:
    from etl_assets.pipelines.placement_class import PlacementClass
    from etl_assets.resources.spark import SparkResource
    from etl_assets.steps.step import ReadMode, platform_table

    told = arguments()
    day, number = dt.date.fromisoformat(told["day"]), told["number"]
    home, scratch = Path(told["home"]), Path(told["scratch"])
    settings = platform(home, home / "landing")
    _ticks("without_news", settings, None)
    land_increment(settings.landing_path, day, number, INCREMENT)
    _ticks("with_news", settings, day)
    spark = SparkResource(spark_config=told["spark"]).spark_session
    warm = platform(scratch, scratch / "landing")
    domain = warm.placement().place(PlacementClass.INGEST)
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


def _ticks(name: str, settings: Settings, expected: dt.date | None) -> None:
    """Evaluate the sensor as its daemon does, but with Dagster's own records in memory; the mark has the mean
    of a tick.

    Raises:
        RuntimeError: it does not ask for a run over the one day expected, or asks for one where none is.
    """
    import dagster as dg

    from etl_assets.sensors.sources import source_sensors

    settings = settings.model_copy(update={"start_date": FIRST_DAY})
    (sensor,) = source_sensors(settings, settings.catalog().pipelines)
    definitions = dg.Definitions(sensors=[sensor])
    with dg.DagsterInstance.ephemeral() as instance:

        def look(cursor: str | None) -> dg.SensorResult:
            context = dg.build_sensor_context(instance=instance, cursor=cursor, definitions=definitions)
            return cast("dg.SensorResult", sensor(context))

        def tick(cursor: str | None) -> str | None:
            result = look(cursor)
            asked = [request.partition_key for request in result.run_requests or ()]
            if asked != ([] if expected is None else [expected.isoformat()]):
                raise RuntimeError(f"{name}, the sensor asks for {asked} and says {result.skip_reason}")
            return result.cursor

        # What the first ticks of a daemon do is paid once, each up to so many days; the next ones go on from
        # their cursor.
        cursor = tick(look(look(None).cursor).cursor)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(TICKS):
            tick(cursor)
        mark(
            f"ticked_{name}",
            wall_seconds=(time.perf_counter() - wall) / TICKS,
            cpu_seconds=(time.process_time() - cpu) / TICKS,
        )


if __name__ == "__main__":
    main()
