"""The bulk case's events into the table of records of a declared pipeline: from a topic, or from files."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.bulk_by_declared import DECLARATION, SOURCE
from benchmarks.scripts.platform_steps import platform

CONNECTION = "events"
FILES = """\
  type: files
  path: LANDING/{day}/*
  format: json_lines
  id: [event_id]
  settle_seconds: 0
"""
KAFKA = f"""\
  type: kafka
  connection: {CONNECTION}
  topic: TOPIC
  id: [event_id]
"""


def main() -> None:
    from etl_assets.pipelines.placement_class import PlacementClass
    from etl_assets.resources.spark import SparkResource
    from etl_assets.settings.connections import KafkaConnection
    from etl_assets.steps.step import ReadMode, StepArguments, StepContext, platform_table, step_of

    told = arguments()
    home, landing = Path(told["tables"]), Path(told["landing"])
    text = DECLARATION.read_text("utf-8")
    assert FILES in text
    if topic := told["topic"]:
        text = text.replace(FILES, KAFKA.replace("TOPIC", topic))
    declaration = home / "pipelines" / "events.yaml"
    declaration.parent.mkdir(parents=True)
    declaration.write_text(text.replace("LANDING", str(landing)), "utf-8")
    connection = KafkaConnection(type="kafka", bootstrap_servers=(told["brokers"],))
    settings = platform(home, landing).model_copy(update={"file_connections": {CONNECTION: connection}})
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
    step_of(SOURCE, step_arguments).run(days)
    mark("events")
    snapshot = platform_table(SOURCE, domain).snapshot()
    mark("verified", events=0 if snapshot is None else snapshot.row_count())
    spark.stop()


if __name__ == "__main__":
    main()
