"""A platform with a history: raw_events made up, the tables after it by the steps, and the index of ids."""

from __future__ import annotations

from pathlib import Path

from benchmarks.made_history import History, made_rows
from benchmarks.marks import mark
from benchmarks.past import land_increment
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.platform_steps import platform, steps

AFTER_RAW_EVENTS = ("normalized_orders", "warehouse_rows", "order_status_view")


def main() -> None:
    from etl_assets.delta.write.commit import commit
    from etl_assets.delta.write.create import ensure_table
    from etl_assets.delta.write.write import Write
    from etl_assets.resources.spark import SparkResource
    from etl_assets.steps.step import ReadMode, platform_table

    told = arguments()
    home = Path(told["home"])
    history = History(days=told["days"], events_a_day=told["events_a_day"])
    settings = platform(home, home / "landing")
    spark = SparkResource(spark_config=told["spark"]).spark_session
    raw_events = platform_table("raw_events", settings.placement().domains[0])
    base = ensure_table(raw_events)
    commit(raw_events, Write(rows=made_rows(spark, history), base_version=base))
    mark("raw_events")
    path = steps(settings, lambda: spark, ReadMode.INCREMENTAL)
    for name in AFTER_RAW_EVENTS:
        path[name].run(history.all_days)
        mark(name)
    # The first increment of a platform's life makes its index of ids, which every later one finds.
    land_increment(settings.landing_path, history.all_days[-1], 0, 10)
    for name in ("raw_events", *AFTER_RAW_EVENTS):
        path[name].run(history.all_days[-1:])
    mark("indexed")
    spark.stop()


if __name__ == "__main__":
    main()
