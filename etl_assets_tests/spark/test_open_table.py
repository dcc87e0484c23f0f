"""Tables that Spark wrote, and those to which a Spark user gave features of Delta: each reader has Spark's
rows, or says why not.
"""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import etl_assets
from etl_assets.cli.result_formats import Rows
from etl_assets.cli.sql import sql
from etl_assets.delta.write.create import ensure_table
from etl_assets.errors import FeatureUnsupported
from etl_assets.query.opened_table import OpenedTable
from etl_assets.query.sql import run_query
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table

pytestmark = pytest.mark.spark

READABLE = {
    # feature: how it is given to the table, and what reads the table then besides Spark
    "deletionVectors": (
        ["ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"],
        {"sql", "pandas", "polars"},
    ),
    "columnMapping": (
        [
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "ALTER TABLE {t} RENAME COLUMN customer_region TO `the region`",
        ],
        {"sql", "pandas"},
    ),
    "v2Checkpoint": (
        ["ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')"],
        {"sql", "pandas"},
    ),
    "typeWidening": (
        ["ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"],
        set(),
    ),
    "timestampNtz": (
        [
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')",
            "ALTER TABLE {t} ADD COLUMN seen_at TIMESTAMP_NTZ",
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true',"
            " 'delta.enableRowTracking' = 'true')",
        ],
        {"sql", "pandas", "polars", "dataset"},
    ),
}


@pytest.fixture
def customers(spark, tmp_path, monkeypatch) -> str:
    """The table as Spark SQL names it, with rows by Spark."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    table = platform_table("customers", load_settings().placement().domains[0])
    ensure_table(table)
    spark.sql("SELECT concat('c', id) AS customer_id, 'EU' AS customer_region FROM range(30)").write.format(
        "delta"
    ).mode("append").save(str(table.path))
    return f"delta.`{table.path}`"


def read_by(reader: str, opened: OpenedTable) -> list[str]:
    if reader == "sql":
        done = CliRunner().invoke(
            sql, ["select customer_id from customers where customer_id > 'c'", "--json"]
        )
        if done.exception is not None:
            raise done.exception
        return [row["customer_id"] for row in json.loads(done.stdout)]
    if reader == "polars":
        return opened.polars().select("customer_id").collect()["customer_id"].to_list()
    if reader == "pandas":
        return list(opened.pandas()["customer_id"])
    return opened.dataset().to_table(columns=["customer_id"]).column(0).to_pylist()


@pytest.mark.parametrize("feature", READABLE)
def test_every_reader_has_the_rows_that_spark_has_or_names_the_feature(spark, customers, feature):
    statements, readers = READABLE[feature]
    for statement in statements:
        spark.sql(statement.format(t=customers))
    spark.sql(f"DELETE FROM {customers} WHERE customer_id LIKE '%3'")
    opened = etl_assets.open_table("customers")
    rows = sorted(row.customer_id for row in opened.spark(spark).collect())
    assert len(rows) == 27

    for reader in ("sql", "pandas", "polars", "dataset"):
        if reader in readers:
            assert sorted(read_by(reader, opened)) == rows
        else:
            with pytest.raises(FeatureUnsupported, match=feature) as refused:
                read_by(reader, opened)
            assert "Spark" in refused.value.fix


def test_spark_reads_the_version_that_was_opened_and_no_newer_one(spark, customers):
    opened = etl_assets.open_table("customers")
    spark.sql(f"INSERT INTO {customers} VALUES ('later', 'EU')")
    assert opened.spark(spark).count() == 30
    assert etl_assets.open_table("customers").spark(spark).count() == 31


def test_values_that_spark_wrote_are_those_that_a_query_gives(spark, tmp_path, monkeypatch):
    """Times before 1678 and after 2262, which no 64 bits of nanoseconds hold, among them."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    domain = load_settings().placement().domains[0]
    table = platform_table("order_status_view", domain)
    ensure_table(table)
    columns = {
        field.name: field.dataType.simpleString()
        for field in spark.read.format("delta").load(str(table.path)).schema
    }
    given = {
        "order_id": "'o'",
        "created_at": "timestamp'0001-01-01 00:00:00Z'",
        "paid_at": "timestamp'9999-12-31 23:59:59.999999Z'",
        "order_total": "123456789.12",
    }
    filled = {
        "string": "'ü'",
        "int": "7",
        "bigint": "7",
        "date": "date'2026-01-05'",
        "timestamp": "timestamp'2026-01-05 10:00:00Z'",
    }
    filled |= {kind: "map('EU', 1.5)" for kind in columns.values() if kind.startswith("map")}
    values = ", ".join(
        f"cast({given.get(name) or filled.get(kind, '0')} as {kind}) as {name}"
        for name, kind in columns.items()
    )
    spark.sql(f"select {values}").write.format("delta").mode("append").save(str(table.path))
    result = run_query("select * from order_status_view", domain)
    (row,) = (dict(zip(result.schema.names, row, strict=True)) for row in Rows(result, None))
    (expected,) = spark.read.format("delta").load(str(table.path)).toArrow().to_pylist()
    assert row["created_at"] == "0001-01-01T00:00:00+00:00"
    assert row["paid_at"] == "9999-12-31T23:59:59.999999+00:00"
    for name, kind in columns.items():
        if kind in ("string", "int", "bigint"):
            assert row[name] == expected[name]
        elif kind.startswith("decimal") and expected[name] is not None:
            assert row[name] == f"{expected[name]:f}"
        elif kind.startswith("map"):
            assert row[name] == {"EU": "1.50"}
        elif kind == "date":
            assert row[name] == expected[name].isoformat()
