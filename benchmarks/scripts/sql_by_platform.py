"""A query over PostgreSQL by a declared pipeline: records, the table, and its target if it has one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl_assets.steps.step import StepArguments

SOURCE, TABLE, DELIVERED = "sale_source", "sale", "sale_to_postgres"
WARM, DONE = "session", "done"


def main() -> None:
    from etl_assets.steps.step import platform_table, step_of

    told = arguments()
    spark, step_arguments = prepared(told)
    mark(WARM)
    kept = (SOURCE,) if told["pipeline"]["source"].get("keep_records", True) else ()
    for name in (*kept, TABLE, *((DELIVERED,) if told["pipeline"].get("sinks") else ())):
        step_of(name, step_arguments).run([])
        mark(name)
    mark(DONE)
    counts = {}
    for name in (*kept, TABLE):
        snapshot = platform_table(name, step_arguments.context.domain).snapshot()
        counts[name] = 0 if snapshot is None else snapshot.row_count()
    mark("verified", **counts)
    spark.stop()


def prepared(told: Mapping[str, Any]) -> tuple[SparkSession, StepArguments]:
    """Return a session that is warm, and the arguments of the steps of a pipeline in a new home folder."""
    from etl_assets.pipelines.placement_class import PlacementClass
    from etl_assets.resources.spark import SparkResource
    from etl_assets.settings import load_settings
    from etl_assets.steps.step import ReadMode, StepArguments, StepContext

    home = Path(told["home"])
    (home / "pipelines").mkdir(parents=True)
    platform = {"connections": {"shop": told["connection"]}, "pipelines": {"built_in": []}}
    (home / "platform.yaml").write_text(json.dumps(platform), "utf-8")
    (home / "pipelines" / "sale.yaml").write_text(json.dumps(told["pipeline"]), "utf-8")
    settings = load_settings({"ETL_ASSETS_HOME": str(home)})
    spark = SparkResource(spark_config=told["spark"]).spark_session
    spark.range(10).write.format("delta").save(str(home / "warm"))  # Spark runs, and has written a table
    domain = settings.placement().place(PlacementClass.INGEST)
    context = StepContext(session=lambda: spark, domain=domain)
    return spark, StepArguments(settings=settings, context=context, mode=ReadMode.INCREMENTAL)


if __name__ == "__main__":
    main()
