"""Frames of a few rows: what goes in comes out, and no Python worker is needed for it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from etl_assets.delta.session import frame_of

pytestmark = pytest.mark.spark

DECLARED = StructType([StructField("name", StringType(), False), StructField("number", IntegerType())])
"""One column of them takes no nulls."""


def plan_of(frame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize(
    ("schema", "rows"),
    [
        ("name STRING, number BIGINT", [("ä", 1), (None, None), ("", -(2**63))]),
        ("`a b` INT", [(1,)]),
        ("day DATE", [(dt.date(2026, 3, 29),)]),
        (
            "amounts MAP<STRING, DECIMAL(10,2)>, names ARRAY<STRING>",
            [({"a": Decimal("1.50")}, ["x", None])],
        ),
        (DECLARED, [("a", None)]),
        (DECLARED, []),
        ("name STRING, number BIGINT", []),
    ],
)
def test_a_frame_has_the_rows_and_the_schema_it_is_told_and_is_part_of_the_plan(spark, schema, rows):
    frame = frame_of(spark, iter(rows), schema)
    assert [tuple(row) for row in frame.collect()] == rows
    expected = spark.createDataFrame([], schema).schema
    assert frame.schema == expected
    assert plan_of(frame).startswith("LocalTableScan")


def test_an_empty_frame_shortens_what_it_is_part_of(spark):
    nothing = frame_of(spark, [], "id BIGINT")
    assert plan_of(spark.range(5).join(nothing, "id")).startswith("LocalTableScan <empty>")


def test_a_row_with_a_value_too_many_is_refused(spark):
    with pytest.raises(ValueError, match="longer"):
        frame_of(spark, [(1, 2)], "id BIGINT")
