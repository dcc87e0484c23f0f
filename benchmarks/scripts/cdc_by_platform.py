"""A table of PostgreSQL by a declared pipeline: its first copy, and then the changes that the log has."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments

SOURCE, TABLE = "sale_source", "sale"
WARM, COPIED, CHANGED, READ, APPLIED = "session", "copied", "changed", "read", "applied"
CHANGE = (
    "UPDATE sale SET amount = amount + 1, updated_at = updated_at + interval '1 day'"
    " WHERE sale_id %% %s = 0 AND sale_id BETWEEN %s AND %s"
)


def main() -> None:
    from etl_assets.pipelines.placement_class import PlacementClass
    from etl_assets.resources.spark import SparkResource
    from etl_assets.settings import load_settings
    from etl_assets.steps.step import ReadMode, StepArguments, StepContext, platform_table, step_of

    told = arguments()
    home = Path(told["home"])
    (home / "pipelines").mkdir(parents=True)
    platform = {"connections": {"shop": told["connection"]}, "pipelines": {"built_in": []}}
    (home / "platform.yaml").write_text(json.dumps(platform), "utf-8")
    (home / "pipelines" / "sale.yaml").write_text(json.dumps(told["pipeline"]), "utf-8")
    settings = load_settings({"ETL_ASSETS_HOME": str(home)})
    spark = SparkResource(spark_config=told["spark"]).spark_session
    spark.range(10).write.format("delta").save(str(home / "warm"))  # Spark runs, and has written a table
    domain = settings.placement().place(PlacementClass.INGEST)
    step_arguments = StepArguments(
        settings=settings,
        context=StepContext(session=lambda: spark, domain=domain),
        mode=ReadMode.INCREMENTAL,
    )
    mark(WARM)
    step_of(SOURCE, step_arguments).run([])
    step_of(TABLE, step_arguments).run([])
    mark(COPIED)
    change(told["address"], told["rows"], told["every"])
    mark(CHANGED)
    step_of(SOURCE, step_arguments).run([])
    mark(READ)
    step_of(TABLE, step_arguments).run([])
    mark(APPLIED)
    snapshot = platform_table(TABLE, domain).snapshot()
    amounts = (
        spark.read.format("delta").load(str(platform_table(TABLE, domain).path)).selectExpr("sum(amount)")
    )
    mark(
        "verified",
        rows=0 if snapshot is None else snapshot.row_count(),
        cents=int(amounts.first()[0] * 100),
    )
    spark.stop()


def change(address: str, rows: int, every: int) -> None:
    """Update one row of so many, in transactions of about 1,000."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as session:
        session.execute("SET synchronous_commit = off")
        step = 1_000 * every
        for first in range(1, rows + 1, step):
            session.execute(CHANGE, [every, first, first + step - 1])
        session.execute("CHECKPOINT")


if __name__ == "__main__":
    main()
