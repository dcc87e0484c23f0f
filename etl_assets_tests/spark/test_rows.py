"""Rows read by the names of their files are those that Delta reads, and no file is opened that cannot hold a
row wanted.
"""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from etl_assets.delta.read.rows import whole_days
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, NEXT_DAY, event

pytestmark = pytest.mark.spark

TABLES = (
    "customers",
    "raw_events",
    "raw_events_exceptions",
    "normalized_orders",
    "normalized_orders_exceptions",
    "warehouse_rows",
    "order_status_view",
    "dead_letters",
    "audit_log",
)


def table_of(pipeline, name: str):
    return pipeline.context.table(name)


def by_delta(spark, table, version: int):
    return spark.read.format("delta").option("versionAsOf", version).load(str(table.path))


def as_set(frame) -> set[str]:
    """Its rows as text: they may hold maps."""
    from pyspark.sql import functions as F

    return {row[0] for row in frame.select(F.to_json(F.struct("*"))).collect()}


def fill_raw_events(pipeline) -> None:
    pipeline.land([event(1), event(2)])
    pipeline.land([event(3, day=NEXT_DAY)], day=NEXT_DAY)
    for day in (DAY, NEXT_DAY):
        pipeline.run([day], only=["raw_events"])


def fill(pipeline) -> None:
    reference = pipeline.landing / "_reference"
    reference.mkdir(parents=True)
    (reference / "customers.csv").write_text("customer_id,customer_region\ncustomer-1,emea\n", "utf-8")
    good, bad = event(1), event(2, payload={"customer_id": "c", "amount": "many", "currency": "EUR"})
    pipeline.land([good, good, bad, "no json", b"\xff"])
    pipeline.land([event(3, day=NEXT_DAY)], day=NEXT_DAY)
    pipeline.run([DAY])
    pipeline.run([NEXT_DAY])


def test_every_table_reads_as_delta_reads_it(pipeline, spark):
    fill(pipeline)
    for name in TABLES:
        table = table_of(pipeline, name)
        version = table.version()
        assert version > 0, name
        rows, expected = table.read(spark, version), by_delta(spark, table, version)
        assert "Delta" not in rows._jdf.queryExecution().toString(), name
        assert [(field.name, field.dataType) for field in rows.schema] == [
            (field.name, field.dataType) for field in expected.schema
        ], name
        assert as_set(rows) == as_set(expected) != set(), name
    raw_events = table_of(pipeline, "raw_events")
    assert as_set(raw_events.read(spark, 1)) == as_set(by_delta(spark, raw_events, 1))
    assert len(as_set(raw_events.read(spark, 1))) < len(as_set(raw_events.read(spark, 2)))


def test_only_files_that_may_hold_what_is_wanted_are_opened(pipeline, spark):
    fill_raw_events(pipeline)
    pipeline.land([event(4)], name="b.jsonl")
    pipeline.run([DAY], only=["raw_events"])
    table = table_of(pipeline, "raw_events")
    version = table.version()

    def ids(after) -> set[str]:
        return {row["event_id"] for row in table.read(spark, version, after).collect()}

    def files(after) -> int:
        return len(table.read(spark, version, after).inputFiles())

    assert files(None) == 3
    assert ids(whole_days([DAY])) == {"event-1", "event-2", "event-4"}
    assert files(whole_days([DAY])) == 2
    assert ids({DAY: version - 1, NEXT_DAY: -1}) == {"event-3", "event-4"}
    assert files({DAY: version - 1, NEXT_DAY: -1}) == 2
    assert ids(version - 1) == {"event-4"}
    assert files(version - 1) == 1
    assert ids({}) == set()
    assert files({DAY: version}) == 0


def test_a_table_whose_log_says_more_than_its_files_is_read_by_delta(pipeline, spark):
    fill_raw_events(pipeline)
    table = table_of(pipeline, "raw_events")
    path = f"delta.`{table.path}`"
    spark.sql(f"ALTER TABLE {path} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {path} WHERE event_id = 'event-1'")
    rows = table.read(spark, table.version(), whole_days([DAY]))
    assert {row["event_id"] for row in rows.collect()} == {"event-2"}


def test_a_folder_may_have_a_name_of_words(pipeline, spark):
    elsewhere = dataclasses.replace(pipeline, root=pipeline.root / "große Daten")
    elsewhere.land([event(1)])
    elsewhere.run([DAY], only=["raw_events", "normalized_orders"])
    elsewhere.run([DAY], mode=ReadMode.WHOLE, only=["normalized_orders"])
    table = table_of(elsewhere, "normalized_orders")
    rows = table.read(spark, table.version(), whole_days([DAY]))
    assert [row["event_id"] for row in rows.collect()] == ["event-1"]


def test_a_table_made_anew_is_not_taken_for_the_one_before(pipeline, spark):
    pipeline.land([event(1)])
    pipeline.run(only=["raw_events"])
    table = table_of(pipeline, "raw_events")
    before = table.snapshot()
    shutil.rmtree(pipeline.root)
    pipeline.land([event(2)])
    pipeline.run(only=["raw_events"])
    after = table.snapshot()
    assert before.version == after.version
    assert before.table_id != after.table_id
    rows = table.read(spark, after.version, whole_days([DAY])).collect()
    assert [row["event_id"] for row in rows] == ["event-2"]
