"""A rehearsal: every step of the built-in pipelines over made-up input, in a temporary folder.

It leaves behind what a run has to load and compile before it can work: classes in a JVM's archive (`python -m
etl_assets.rehearsal FILE`, part of `make setup`), or a warm engine (`engine/`). Belongs here: what is run.
Does not belong here: its callers and their purposes.
"""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.resources.jvm import option_string
from etl_assets.settings import LandingSettings, Settings, SparkSettings

if TYPE_CHECKING:
    import subprocess

_DAY = dt.date(2026, 1, 1)
_EXIT_SECONDS = 300


def rehearse(spark: SparkSettings, *, times: int = 2) -> None:
    """Run all assets over a day, with a new file each time.

    Tables are created, appended to and merged, and dead letters are collected.

    Args:
        spark: Settings of the Spark engine to use.
        times: Number of runs. From the second on, rows meet existing rows.
    """
    import dagster as dg

    from etl_assets.runs import materialize_days
    from etl_assets.steps.step import ReadMode

    with tempfile.TemporaryDirectory(prefix="etl-assets-rehearsal-") as folder:
        settings = Settings(
            home=Path(folder),
            start_date=_DAY,
            landing=LandingSettings(settle_seconds=0),
            spark=spark,
        )
        with dg.DagsterInstance.ephemeral() as instance:
            for seed in range(1, times + 1):
                for pipeline in settings.catalog().pipelines:
                    if pipeline.made_up_input is not None:
                        pipeline.made_up_input(settings, _DAY, seed)
                materialize_days(settings, instance, [_DAY], mode=ReadMode.INCREMENTAL)


def _record_classes(archive: Path) -> None:
    """Rehearse with an engine that writes its classes into an archive when it ends."""
    with tempfile.TemporaryDirectory(prefix="etl-assets-rehearsal-") as scratch:
        options = (f"-XX:ArchiveClassesAtExit={archive}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        config = {
            "spark.driver.extraJavaOptions": option_string(options),
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        }
        rehearse(SparkSettings(master="local[2]", config=config))
        _end_of_driver().wait(_EXIT_SECONDS)


def _end_of_driver() -> subprocess.Popen[bytes]:
    """End this process's driver as the process's exit would, and return its process to wait for."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    gateway = context._gateway
    context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    return gateway.proc


if __name__ == "__main__":
    _record_classes(Path(sys.argv[1]))
