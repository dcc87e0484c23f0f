"""Columns of a declared table that were declared wrongly at first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.delta.table import Table
from etl_assets.delta.write.contract_columns import fit_to_contract
from etl_assets.delta.write.create import ensure_table
from etl_assets.errors import ContractError, InputError
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.pipelines.stage import SystemTable
from etl_assets.placement.domains import FailureDomain
from etl_assets.undo.plan import older
from etl_assets_tests.reference.written_tables import write_table

NO_SPARK = cast("Any", None)
WRONG = TableContract(
    name="suppliers",
    description="Suppliers.",
    columns=(
        Column("id", "BIGINT", "Key."),
        Column("since", "STRING", "First day.", nullable=True),
        Column("_batch_id", "BIGINT", "Version."),
    ),
    merge_key=("id",),
)
RIGHT = replace(
    WRONG,
    columns=(
        Column("id", "STRING", "Key."),
        Column("region", "STRING", "Region.", nullable=True),
        Column("since", "DATE", "First day.", nullable=True),
        Column("_batch_id", "BIGINT", "Version."),
    ),
    delta_partition=("region",),
)


def table(domain: FailureDomain, contract: TableContract) -> Table:
    return Table(name="suppliers", domain=domain, contract=contract)


@pytest.fixture
def domain(tmp_path) -> FailureDomain:
    return FailureDomain(name="local", root=tmp_path)


def test_a_table_without_rows_gets_the_columns_that_are_declared_now(domain):
    ensure_table(table(domain, WRONG))
    before = table(domain, WRONG).snapshot()
    now = table(domain, RIGHT)
    assert fit_to_contract(NO_SPARK, now, base_version=0) == 1
    snapshot = now.snapshot()
    assert snapshot is not None
    assert before is not None
    assert [(field["name"], field["type"]) for field in snapshot.fields()] == [
        ("id", "string"), ("region", "string"), ("since", "date"), ("_batch_id", "long"),
    ]  # fmt: skip
    assert snapshot.partition_columns() == ("region",)
    assert snapshot.table_id == before.table_id
    assert snapshot.statistics_columns() == ("id", "_batch_id")
    assert fit_to_contract(NO_SPARK, now, base_version=1) == 1, "nothing to change"
    with pytest.raises(InputError, match=r"version 0 of suppliers has other columns .*\(id, since\)"):
        older(now, 0)


def test_a_table_with_rows_says_how_its_rows_are_made_again(domain):
    catalog = Catalog(system_tables=(SystemTable(table=WRONG, placement=PlacementClass.SINK),))
    write_table(replace(domain, catalog=catalog), "suppliers", [{"id": 1, "since": "2026", "_batch_id": 1}])
    with pytest.raises(ContractError, match="is bigint, and string is declared") as error:
        fit_to_contract(NO_SPARK, table(domain, replace(RIGHT, delta_partition=())), base_version=0)
    assert "etl-assets reprocess --tables suppliers" in error.value.fix
