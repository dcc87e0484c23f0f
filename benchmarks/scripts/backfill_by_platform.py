"""The three stages over some days: as Dagster runs in this process, each of a range of days, or as the bare
steps.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.platform_steps import platform, steps

STAGES = ("raw_events", "normalized_orders", "warehouse_rows")


def main() -> None:
    import dagster as dg

    from etl_assets.resources.spark import SparkResource, spark_config
    from etl_assets.runs import materialize_days
    from etl_assets.settings import SparkSettings
    from etl_assets.steps.step import ReadMode, platform_table

    told = arguments()
    days = [dt.date.fromisoformat(day) for day in told["days"]]
    spark = SparkSettings(master="local[2]", driver_memory="2g", config=told["spark"])
    settings = platform(Path(told["home"]), Path(told["landing"])).model_copy(
        update={"start_date": days[0], "spark": spark}
    )
    # The session that runs share and Dagster's instance are there before the clock, for all sides the same.
    session = SparkResource(spark_config=spark_config(spark)).spark_session
    session.range(10).count()
    # Dagster's tables are made once for an installation, not for a backfill.
    own = settings.home / "dagster"
    own.mkdir(parents=True)
    with dg.DagsterInstance.local_temp(str(own)) as instance:
        instance.get_runs_count()
        instance.get_latest_materialization_event(dg.AssetKey(STAGES[0]))
        mark("session")
        if told["days_a_run"] is None:
            path = steps(settings, lambda: session, ReadMode.WHOLE)
            for name in STAGES:
                path[name].run(days)
        else:
            runs = settings.runs.model_copy(update={"max_days_per_run": told["days_a_run"]})
            materialize_days(
                settings.model_copy(update={"runs": runs}),
                instance,
                days,
                mode=ReadMode.WHOLE,
                assets=STAGES,
            )
    domain = settings.placement().domains[0]
    snapshots = [platform_table(name, domain).snapshot() for name in STAGES]
    rows = [0 if snapshot is None else snapshot.row_count() for snapshot in snapshots]
    mark("done", rows=rows)


if __name__ == "__main__":
    main()
