"""Real orders through the whole platform: every figure equals what pandas computes from the CSV files alone."""

from __future__ import annotations

import os
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pandas
import pytest

from etl_assets.events.faults import FaultRates
from etl_assets.events.olist import convert
from etl_assets.sources.landing import LANDING, Folders
from etl_assets_tests.reference import olist_pandas

OLIST = Path(os.environ.get("ETL_ASSETS_OLIST", Path(__file__).parents[3] / "shared" / "data" / "olist"))

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(
        not OLIST.is_dir(), reason="the real orders may not be redistributed; ETL_ASSETS_OLIST names them"
    ),
]


@pytest.fixture(scope="module")
def mixed(engine, tmp_path_factory):
    """The real orders with 2 % duplicates, 0.1 % conflicts and 0.1 % broken lines, through every step.

    The faults come on top of the clean events, so that the tables must hold exactly what they would without them.
    """
    from etl_assets_tests.pipeline import Pipeline

    folder = tmp_path_factory.mktemp("olist")
    rates = FaultRates(duplicates=0.02, conflicts=0.001, malformed=0.001)
    summary = convert(OLIST, folder / "landing", rates=rates)
    spark = engine.spark_session.newSession()
    pipeline = Pipeline(root=folder / "data", landing=folder / "landing", session=lambda: spark)
    days = sorted(day for day, _ in Folders(source=LANDING, path=pipeline.landing).days())
    reports = pipeline.run(days)
    return pipeline, summary, reports


def test_every_line_is_counted_once(mixed):
    _, summary, reports = mixed
    total = reports["raw_events"].total()
    assert total["read"] == summary.lines
    assert total["accepted"] == total["inserted"] == summary.events
    assert (total["duplicate"], total["conflict"], total["rejected"]) == (
        summary.duplicates,
        summary.conflicts,
        summary.malformed,
    )
    assert reports["normalized_orders"].total()["normalized"] == summary.events


def test_events_and_sums_by_day_are_those_of_the_csv_files(mixed):
    pipeline, _, _ = mixed
    rows = pipeline.rows("warehouse_rows")
    assert Counter(row["event_type"] for row in rows) == olist_pandas.count_events(OLIST)
    assert Counter(row["event_date"] for row in rows) == olist_pandas.events_by_day(OLIST)
    assert all(row["event_date"] == row["partition_date"] for row in rows)
    for event_type, expected in olist_pandas.sums_by_day(OLIST).items():
        sums: dict = {}
        for row in rows:
            if row["event_type"] == event_type:
                sums[row["event_date"]] = sums.get(row["event_date"], Decimal(0)) + row["amount"]
        assert sums == expected


def test_every_order_has_its_status_totals_and_times(mixed):
    pipeline, _, _ = mixed
    orders = {row["order_id"]: row for row in pipeline.rows("order_status_view")}
    assert {order: row["order_status"] for order, row in orders.items()} == olist_pandas.last_status(OLIST)
    assert len(orders) == olist_pandas.count_orders(OLIST)
    tenants, amounts, times = (
        olist_pandas.tenants(OLIST),
        olist_pandas.order_amounts(OLIST),
        olist_pandas.times(OLIST),
    )
    for order, row in orders.items():
        assert row["tenant_id"] == tenants[order]
        for column in ("order_total", "paid_total"):
            assert row[column] == (amounts.at[order, column] or Decimal(0)), (order, column)
        for column in times.columns:
            expected = times.at[order, column]
            assert row[column] == (None if expected is pandas.NaT else expected.to_pydatetime()), (
                order,
                column,
            )


def test_other_readers_of_the_tables_agree(mixed):
    import polars

    pipeline, summary, _ = mixed
    for table in ("raw_events", "normalized_orders", "warehouse_rows"):
        path = str(pipeline.context.table(table).path)
        assert polars.read_delta(path).height == len(pipeline.rows(table)) == summary.events
    path = str(pipeline.context.table("order_status_view").path)
    assert polars.read_delta(path).height == summary.orders
