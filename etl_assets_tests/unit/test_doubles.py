"""DOUBLE columns: for measurements, with no part in keys, partitions and the bounds of files."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType

from etl_assets.contracts.arrow_rules import breaking
from etl_assets.contracts.arrow_types import arrow_schema
from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import AtLeast, AtMost
from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.log.statistics import bounds_of, statistics
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import ensure_table
from etl_assets.errors import ContractError
from etl_assets_tests.reference.tables import local_domain


def readings(**changes: Any) -> TableContract:
    fields: dict[str, Any] = {"merge_key": ("reading_id",), "ordering": "celsius"} | changes
    return TableContract(
        name="readings",
        description="Temperatures.",
        columns=(
            Column("reading_id", "STRING", "Its id."),
            Column("celsius", "DOUBLE", "Degrees.", nullable=True, rules=(AtLeast(-273), AtMost(1000))),
        ),
        **fields,
    )


def test_a_double_has_a_type_in_spark_and_arrow():
    assert struct_type(readings())["celsius"].dataType == DoubleType()
    assert arrow_schema(readings()).field("celsius").type == pa.float64()


def test_a_double_is_no_key_and_no_partition():
    for wrong in ({"merge_key": ("celsius",), "append_only": True}, {"delta_partition": ("celsius",)}):
        with pytest.raises(ContractError, match="'celsius', a DOUBLE"):
            readings(**wrong)


def test_a_table_keeps_no_bounds_of_a_double(tmp_path):
    table = Table(name="readings", domain=local_domain(tmp_path), contract=readings())
    ensure_table(table)
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.statistics_columns() == ("reading_id",)
    assert statistics(2, {"celsius": bounds_of(pa.chunked_array([[1.5, math.nan]]))}) == {"numRecords": 2}


def test_rules_hold_for_doubles_as_in_spark_where_nan_is_above_every_number():
    values = pa.chunked_array([[1.5, -0.5, math.nan, None, math.inf, -math.inf]], pa.float64())
    assert breaking(AtLeast(0), values) == 2
    assert breaking(AtMost(1), values) == 3
