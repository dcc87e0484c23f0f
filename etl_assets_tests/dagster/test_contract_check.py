"""The check of a table's full contract: it costs Spark, so a version that has passed is not looked at
again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from etl_assets.checks.contracts import VERSION, _passed_before, broken_by
from etl_assets.contracts.arrow_types import arrow_schema
from etl_assets.contracts.columns import Column
from etl_assets.delta.read.rows import rows_of_batch_in_process
from etl_assets.orders.tables.customers import CUSTOMERS
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl_assets.delta.table import Table

KEY = dg.AssetCheckKey(dg.AssetKey("raw_events"), "contract")


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def evaluated(instance: dg.DagsterInstance, *, passed: bool, version: int | str) -> None:
    @dg.asset_check(asset="raw_events", name="contract")
    def check() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=passed, metadata={VERSION: version})

    @dg.asset
    def raw_events() -> None:
        return None

    dg.materialize([raw_events, check], instance=instance)


@pytest.mark.parametrize("written", [3, "3"])
def test_a_version_that_passed_is_known(instance, written):
    assert not _passed_before(instance, KEY, 3)
    evaluated(instance, passed=True, version=written)
    assert _passed_before(instance, KEY, 3)
    assert not _passed_before(instance, KEY, 4)


def test_a_version_that_failed_last_is_looked_at_again(instance):
    evaluated(instance, passed=True, version=3)
    evaluated(instance, passed=False, version=3)
    assert not _passed_before(instance, KEY, 3)


def test_the_evaluation_that_is_being_made_does_not_hide_the_one_before(instance):
    evaluated(instance, passed=True, version=3)
    seen = []

    @dg.asset_check(asset="raw_events", name="contract")
    def check(context) -> dg.AssetCheckResult:
        seen.append(_passed_before(context.instance, KEY, 3))
        return dg.AssetCheckResult(passed=False, metadata={VERSION: 3})

    @dg.asset
    def raw_events() -> None:
        return None

    dg.materialize([raw_events, check], instance=instance)
    assert seen == [True]
    assert not _passed_before(instance, KEY, 3)


def no_spark() -> SparkSession:
    raise AssertionError("so few rows need no Spark")


@pytest.fixture
def customers(tmp_path: Path) -> Table:
    """The table customers with two rows, one of them twice and without a region."""
    settings = load_settings().model_copy(update={"home": tmp_path})
    table = platform_table(CUSTOMERS.name, settings.placement().domains[0])
    rows = pa.table(
        {"customer_id": ["c1", "c2", "c2"], "customer_region": ["north", "south", ""]},
        schema=arrow_schema(CUSTOMERS),
    )
    write_deltalake(str(table.path), rows)
    return table


def test_few_rows_are_compared_without_spark(customers):
    found = broken_by(customers, CUSTOMERS, 0, no_spark)
    assert [(each.column, each.count) for each in found] == [("customer_region", 1), ("customer_id", 1)]


def test_a_column_of_another_type_is_named_and_no_row_is_read(customers):
    text = Column("customer_region", "BIGINT", "Where.")
    contract = replace(CUSTOMERS, columns=(CUSTOMERS.columns[0], text))
    assert [str(each) for each in broken_by(customers, contract, 0, no_spark)] == [
        "column 'customer_region' is string (expected bigint)"
    ]


def test_more_rows_than_are_read_here_go_to_spark(customers, monkeypatch):
    monkeypatch.setattr("etl_assets.delta.read.rows.MAX_CHECKED_IN_PROCESS", 2)
    with pytest.raises(AssertionError, match="so few rows"):
        broken_by(customers, CUSTOMERS, 0, no_spark)


def test_of_a_declared_table_only_the_rows_of_the_newest_commit_are_checked(tmp_path, monkeypatch):
    """A column of the declaration may be called as the platform's own tables call the version of a row."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "goods.yaml").write_text(
        "name: goods\n"
        "source: {type: files, path: in/*.csv}\n"
        "columns: {id: bigint, batch_id: {type: bigint, at_most: 9}}\n"
        "table: {keys: [id]}\n"
    )
    settings = load_settings()
    contract = settings.catalog().table("goods")
    table = platform_table("goods", settings.placement().domains[0])
    # Each commit writes one row that breaks a rule; none has the number of a commit in `batch_id`.
    for version, ids in enumerate([[1, 2, 3], [4, 5]]):
        columns = {"id": ids, "batch_id": [10, *ids[1:]], "_offset": ids, "_batch_id": [version] * len(ids)}
        write_deltalake(str(table.path), pa.table(columns, schema=arrow_schema(contract)), mode="append")
    found = [(each.column, each.count) for each in broken_by(table, contract, 1, no_spark)]
    assert found == [("batch_id", 1)]
    for version, expected in enumerate([[1, 2, 3], [4, 5]]):
        pieces = rows_of_batch_in_process(table, version)
        assert pieces is not None
        assert [id_ for rows in pieces for id_ in rows.column("id").to_pylist()] == expected
