"""The state of an order does not depend on the order in which its events arrive, nor on how often they are
read.
"""

from __future__ import annotations

import dataclasses
import shutil
from decimal import Decimal

import pytest

from etl_assets.orders.steps import fold_files
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, NEXT_DAY, event

pytestmark = pytest.mark.spark

STEPS = ["customers", "raw_events", "normalized_orders", "warehouse_rows", "order_status_view"]


def test_days_read_backwards_and_twice_give_the_state_of_days_read_in_order(pipeline):
    def of_order(order: str, kind: str, number: int, payload: dict | None = None, **fields):
        amount = payload if payload is not None else {}
        return event(
            number,
            aggregate_id=order,
            event_id=f"{order}-{kind}-{number}",
            event_type=kind,
            payload=amount,
            **fields,
        )

    early, late = "2026-01-05T08:00:00Z", "2026-01-05T09:00:00Z"
    pipeline.land(
        [
            of_order(
                "o1",
                "OrderCreated",
                1,
                {"customer_id": "c", "amount": "10.00", "currency": "EUR"},
                timestamp=early,
            ),
            of_order("o1", "PaymentProcessed", 2, {"amount": "4.00", "currency": "EUR"}, timestamp=late),
            of_order("o2", "ItemShipped", 3, timestamp=early),
            of_order("o3", "OrderCanceled", 4, timestamp=early),
        ]
    )
    pipeline.land(
        [
            of_order("o1", "PaymentProcessed", 5, {"amount": "6.00", "currency": "EUR"}, timestamp=early),
            of_order("o1", "ItemShipped", 6, timestamp=late),
            of_order("o2", "OrderCreated", 7, {"customer_id": "d", "amount": "7.25"}, timestamp=early),
            of_order("o3", "OrderDelivered", 8, timestamp=late),
        ],
        day=NEXT_DAY,
    )
    forwards = dataclasses.replace(pipeline, root=pipeline.root / "forwards")
    backwards = dataclasses.replace(pipeline, root=pipeline.root / "backwards")
    forwards.run([DAY, NEXT_DAY], only=STEPS)
    for day in (NEXT_DAY, DAY):
        backwards.run([day], only=STEPS)
    backwards.run([NEXT_DAY], mode=ReadMode.WHOLE, only=STEPS)

    def state(platform):
        of_reading = ("last_event_id", "last_offset", "updated_at", "batch_id")
        return [
            {key: _without_order(value) for key, value in row.items() if key not in of_reading}
            for row in platform.rows("order_status_view", order_by="order_id")
        ]

    assert state(backwards) == state(forwards)
    one, two, three = state(forwards)
    assert (one["order_status"], one["order_total"], one["paid_total"]) == (
        "shipped",
        Decimal("10.00"),
        Decimal("10.00"),
    )
    assert one["paid_at"].hour == 8
    assert (two["order_status"], two["order_total"], two["created_at"].hour) == (
        "shipped",
        Decimal("7.25"),
        8,
    )
    assert (three["order_status"], three["delivered_at"].hour, three["created_at"]) == ("canceled", 9, None)


def _without_order(value):
    """A map is read as a list of entries, whose order means nothing."""
    return sorted(value) if isinstance(value, list) else value


def orders_of(pipeline):
    of_run = ("updated_at",)
    return [
        {key: _without_order(value) for key, value in row.items() if key not in of_run}
        for row in pipeline.rows("order_status_view", order_by="order_id")
    ]


def paid(number: int, of: int, **fields):
    return event(
        number,
        aggregate_id=f"order-{of}",
        event_type="PaymentProcessed",
        payload={"amount": "4.00", "currency": "EUR"},
        **fields,
    )


@pytest.fixture
def folded_here(pipeline):
    """The view of two batches, folded without Spark, and the platform they are in."""
    pipeline.land([event(1), event(2), event(3)])
    pipeline.run(only=STEPS[:-1])
    view = pipeline.steps()["order_status_view"]

    def no_session():
        raise AssertionError("it wants Spark")

    without_spark = dataclasses.replace(view, context=dataclasses.replace(view.context, session=no_session))
    assert without_spark.run().total()["inserted"] == 3
    pipeline.land([paid(4, of=1), event(5), paid(6, of=7)], name="b.jsonl")
    pipeline.run(only=STEPS[:-1])
    assert without_spark.run().total() == {"read": 3, "inserted": 2, "updated": 1}
    assert without_spark.run().total() == {}
    return orders_of(pipeline)


@pytest.mark.parametrize("rows_a_part", [1, 250_000])
def test_workers_fold_as_this_process_does(pipeline, folded_here, monkeypatch, rows_a_part):
    elsewhere = dataclasses.replace(pipeline, root=pipeline.root / "elsewhere")
    monkeypatch.setattr(fold_files, "ROWS_PER_PART", rows_a_part)
    monkeypatch.setattr(fold_files, "MAX_ROWS_IN_PROCESS", 0)
    for name in ("a.jsonl", "b.jsonl"):
        elsewhere = dataclasses.replace(elsewhere, landing=pipeline.root / "landing" / name)
        folder = elsewhere.landing / DAY.isoformat()
        folder.mkdir(parents=True)
        shutil.copy(pipeline.landing / DAY.isoformat() / name, folder / name)
        elsewhere.run(only=STEPS)
    assert orders_of(elsewhere) == folded_here


def test_files_that_delta_has_written_are_folded_on(pipeline, folded_here, spark):
    path = f"delta.`{pipeline.context.table('order_status_view').path}`"
    spark.sql(f"OPTIMIZE {path}")
    pipeline.land([paid(8, of=1)], name="c.jsonl")
    pipeline.run(only=STEPS)
    now = orders_of(pipeline)
    assert now[0]["paid_total"] == Decimal("8.00")
    assert now[1:] == folded_here[1:]


def test_a_view_with_a_change_feed_is_merged_by_delta(pipeline, folded_here, spark):
    table = pipeline.context.table("order_status_view")
    path = f"delta.`{table.path}`"
    spark.sql(f"ALTER TABLE {path} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    pipeline.land([paid(8, of=1), paid(1_000, of=1_000), event(3)], name="c.jsonl")
    report = pipeline.run(only=STEPS)["order_status_view"]
    assert report.total() == {"read": 2, "inserted": 1, "updated": 1}
    changes = spark.read.format("delta").option("readChangeFeed", "true")
    told = changes.option("startingVersion", table.version()).load(str(table.path)).collect()
    assert sorted(row["_change_type"] for row in told) == ["insert", "update_postimage", "update_preimage"]


def test_a_view_that_may_only_grow_is_not_changed(pipeline, folded_here, spark):
    table = pipeline.context.table("order_status_view")
    version = table.version()
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    pipeline.land([paid(8, of=1)], name="c.jsonl")
    pipeline.run(only=STEPS[:-1])
    with pytest.raises(Exception, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        pipeline.run(only=STEPS[-1:])
    assert table.version() == version + 1
    assert orders_of(pipeline) == folded_here


@pytest.mark.parametrize("table", ["order_status_view", "warehouse_rows"])
def test_a_table_whose_log_says_more_than_its_files_is_left_to_delta(pipeline, folded_here, spark, table):
    path = f"delta.`{pipeline.context.table(table).path}`"
    spark.sql(f"ALTER TABLE {path} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {path} WHERE order_id = 'order-2'")
    pipeline.land([paid(8, of=1), event(9)], name="c.jsonl")
    pipeline.run(only=STEPS[:-1])
    report = pipeline.run(only=["order_status_view"])["order_status_view"]
    assert report.total() == {"read": 2, "inserted": 1, "updated": 1}
    rows = {row["order_id"]: row for row in _by_spark(spark, pipeline)}
    gone = {"order-2"} if table == "order_status_view" else set()
    assert rows.keys() == {f"order-{number}" for number in (1, 2, 3, 5, 7, 9)} - gone
    assert rows["order-1"]["paid_total"] == Decimal("8.00")
    again = pipeline.run(mode=ReadMode.WHOLE, only=["order_status_view"])["order_status_view"]
    assert again.total()["updated"] == 0


def test_a_whole_that_is_read_again_changes_no_file(pipeline, folded_here):
    before = pipeline.context.table("order_status_view").snapshot()
    report = pipeline.run(mode=ReadMode.WHOLE, only=["order_status_view"])["order_status_view"]
    assert report.total() == {"read": 5, "ignored": 5}
    after = pipeline.context.table("order_status_view").snapshot()
    assert after.version == before.version + 1
    assert set(after.files()) == set(before.files())
    assert orders_of(pipeline) == folded_here


def test_delta_reads_what_was_written_and_finds_a_row_by_its_key(pipeline, folded_here, spark):
    rows = _by_spark(spark, pipeline)
    assert [row["order_id"] for row in rows] == [row["order_id"] for row in folded_here]
    assert [sorted(row["paid_amounts"].items()) for row in rows] == [
        row["paid_amounts"] for row in folded_here
    ]
    path = f"delta.`{pipeline.context.table('order_status_view').path}`"
    found = spark.sql(f"SELECT * FROM {path} WHERE tenant_id = 'acme' AND order_id = 'order-7'")
    assert [row["order_status"] for row in found.collect()] == ["paid"]


def _by_spark(spark, pipeline):
    path = str(pipeline.context.table("order_status_view").path)
    return spark.read.format("delta").load(path).orderBy("order_id").collect()
