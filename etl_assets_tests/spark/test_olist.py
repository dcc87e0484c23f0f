"""Real orders through the whole platform: every figure equals what pandas computes from the CSV files alone.

Those of two months, which come from a hundred days; of all of them, some eight times as long, with
OLIST_MONTHS=all.
"""

from __future__ import annotations

import os
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pandas
import pytest

from etl_assets.orders.generator.faults import FaultRates
from etl_assets.orders.generator.olist import convert
from etl_assets.sources.landing import LANDING, Folders
from etl_assets_tests.reference import olist_pandas

OLIST = Path(os.environ.get("ETL_ASSETS_OLIST", Path(__file__).parents[3] / "shared" / "data" / "olist"))
MONTHS = os.environ.get("OLIST_MONTHS", "2018-01,2018-02")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(
        not OLIST.is_dir(), reason="the real orders may not be redistributed; ETL_ASSETS_OLIST names them"
    ),
]


@pytest.fixture(scope="module")
def orders(tmp_path_factory) -> Path:
    """A folder with the orders of the wanted months and what belongs to them."""
    if MONTHS == "all":
        return OLIST
    folder = tmp_path_factory.mktemp("orders")
    tables = {
        name: pandas.read_csv(OLIST / f"{name}.csv.gz", dtype=str, keep_default_na=False)
        for name in ("orders", "order_items", "order_payments", "customers")
    }
    months = tables["orders"]["order_purchase_timestamp"].str[:7]
    wanted = tables["orders"][months.isin(MONTHS.split(","))]
    for name, rows in tables.items():
        key = "customer_id" if name == "customers" else "order_id"
        rows[rows[key].isin(wanted[key])].to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def mixed(engine, orders, tmp_path_factory):
    """The real orders with 2 % duplicates, 0.1 % conflicts and 0.1 % broken lines, through every step.

    The faults come on top of the clean events, so that the tables must hold exactly what they would without
    them.
    """
    from etl_assets_tests.pipeline import Pipeline

    folder = tmp_path_factory.mktemp("olist")
    rates = FaultRates(duplicates=0.02, conflicts=0.001, malformed=0.001)
    summary = convert(orders, folder / "landing", rates=rates)
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


def test_events_and_sums_by_day_are_those_of_the_csv_files(orders, mixed):
    pipeline, _, _ = mixed
    rows = pipeline.rows("warehouse_rows")
    assert Counter(row["event_type"] for row in rows) == olist_pandas.count_events(orders)
    assert Counter(row["event_date"] for row in rows) == olist_pandas.events_by_day(orders)
    assert all(row["event_date"] == row["partition_date"] for row in rows)
    for event_type, expected in olist_pandas.sums_by_day(orders).items():
        sums: dict = {}
        for row in rows:
            if row["event_type"] == event_type:
                sums[row["event_date"]] = sums.get(row["event_date"], Decimal(0)) + row["amount"]
        assert sums == expected


def test_every_order_has_its_status_totals_and_times(orders, mixed):
    pipeline, _, _ = mixed
    view = {row["order_id"]: row for row in pipeline.rows("order_status_view")}
    assert {order: row["order_status"] for order, row in view.items()} == olist_pandas.last_status(orders)
    assert len(view) == olist_pandas.count_orders(orders)
    tenants, amounts, times = (
        olist_pandas.tenants(orders),
        olist_pandas.order_amounts(orders),
        olist_pandas.times(orders),
    )
    for order, row in view.items():
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
