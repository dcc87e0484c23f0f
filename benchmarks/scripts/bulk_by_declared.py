"""The bulk case's events by a declared pipeline: the table of records, and the table that is made from it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.platform_steps import platform

DECLARATION = Path(__file__).with_name("declared_events.yaml")
SOURCE, TABLE = "events_source", "event_rows"


def main() -> None:
    from etl_assets.pipelines.placement_class import PlacementClass
    from etl_assets.resources.spark import SparkResource
    from etl_assets.steps.step import ReadMode, StepArguments, StepContext, platform_table, step_of

    told = arguments()
    home, landing = Path(told["tables"]), Path(told["landing"])
    declaration = home / "pipelines" / "events.yaml"
    declaration.parent.mkdir(parents=True)
    declaration.write_text(DECLARATION.read_text("utf-8").replace("LANDING", str(landing)), "utf-8")
    settings = platform(home, landing)
    days = [dt.date.fromisoformat(day) for day in told["days"]]
    spark = SparkResource(spark_config=told["spark"]).spark_session
    domain = settings.placement().place(PlacementClass.INGEST)
    step_arguments = StepArguments(
        settings=settings,
        context=StepContext(session=lambda: spark, domain=domain),
        mode=ReadMode.INCREMENTAL,
    )
    step_of("customers", step_arguments).run(days)  # as beside it: Spark runs, and has done a small merge
    mark("session")
    mark("customers")
    for name in (SOURCE, TABLE):
        step_of(name, step_arguments).run(days)
        mark(name)
    mark("tables")
    counts = {}
    for name in (SOURCE, TABLE, f"{TABLE}_rejects"):
        snapshot = platform_table(name, domain).snapshot()
        counts[name] = 0 if snapshot is None else snapshot.row_count()
    mark("verified", **counts)
    spark.stop()


if __name__ == "__main__":
    main()
