"""All assets over some days, cut as runs are: as Dagster runs in this process, or as the bare steps."""

from __future__ import annotations

import datetime as dt
import time
from functools import wraps
from pathlib import Path
from typing import Any

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.platform_steps import DATA_PATH, DERIVED, platform, steps

STORING = ("store_event", "store_event_batch")
"""What the event storage does for a run: SQLite, one transaction a call."""


def main() -> None:
    import dagster as dg

    from etl_assets.partitions import ranges
    from etl_assets.resources.spark import SparkResource, spark_config
    from etl_assets.runs import materialize_days
    from etl_assets.settings import SparkSettings
    from etl_assets.steps.step import ReadMode, platform_table

    told = arguments()
    days = [dt.date.fromisoformat(day) for day in told["days"]]
    sizes = {
        day: sum(file.stat().st_size for file in Path(told["landing"], day.isoformat()).iterdir())
        for day in days
    }
    spark = SparkSettings(master="local[2]", driver_memory="2g", config=told["spark"])
    settings = platform(Path(told["home"]), Path(told["landing"])).model_copy(
        update={"start_date": days[0], "spark": spark}
    )
    # The session that runs share and Dagster's instance are there before the clock, for all sides the same.
    session = SparkResource(spark_config=spark_config(spark)).spark_session
    session.range(10).count()
    own = settings.home / "dagster"
    own.mkdir(parents=True)
    seconds_storing = 0.0
    with dg.DagsterInstance.local_temp(str(own)) as instance:
        instance.get_runs_count()
        instance.get_latest_materialization_event(dg.AssetKey(DATA_PATH[0]))
        stored = _timed(instance.event_log_storage)
        mark("session")
        if told["with_dagster"]:
            materialize_days(settings, instance, days, mode=ReadMode.INCREMENTAL, sizes=sizes)
            seconds_storing = sum(stored)
        else:
            path = steps(settings, lambda: session, ReadMode.INCREMENTAL)
            runs = ranges(
                days,
                max_days=settings.runs.max_days_per_run,
                sizes=sizes,
                small_bytes=settings.runs.small_run_bytes,
            )
            for first, last in runs:
                for name in (*DATA_PATH, *DERIVED):
                    path[name].run([day for day in days if first <= day <= last])
        mark("carried")
    domain = settings.placement().domains[0]
    snapshots = {name: platform_table(name, domain).snapshot() for name in (*DATA_PATH, *DERIVED)}
    rows = {name: 0 if found is None else found.row_count() for name, found in snapshots.items()}
    mark("done", rows=rows, seconds_storing=seconds_storing, events_stored=len(stored))


def _timed(storage: Any) -> list[float]:
    """Let the event storage note how long each call takes."""
    seconds: list[float] = []
    for name in STORING:
        call = getattr(storage, name)

        @wraps(call)
        def timed(*given: Any, _call: Any = call, **named: Any) -> Any:
            began = time.monotonic()
            try:
                return _call(*given, **named)
            finally:
                seconds.append(time.monotonic() - began)

        setattr(storage, name, timed)
    return seconds


if __name__ == "__main__":
    main()
